"""How position IDs enter the model: one encoding per file."""

from longreach.positions.encodings.alibi import AlibiConfig
from longreach.positions.encodings.base import Bias, Encoding, EncodingConfig, Rotation, Shape, rotate
from longreach.positions.encodings.fire import FireConfig
from longreach.positions.encodings.kerple import KerpleConfig
from longreach.positions.encodings.learned import LearnedConfig
from longreach.positions.encodings.learned_rope import LearnedRopeConfig
from longreach.positions.encodings.none import NoEncoding
from longreach.positions.encodings.rope import RopeConfig
from longreach.positions.encodings.sinusoidal import SinusoidalConfig
from longreach.positions.encodings.t5 import T5Config

__all__ = [
    "AlibiConfig",
    "Bias",
    "Encoding",
    "EncodingConfig",
    "FireConfig",
    "KerpleConfig",
    "LearnedConfig",
    "LearnedRopeConfig",
    "NoEncoding",
    "RopeConfig",
    "Rotation",
    "Shape",
    "SinusoidalConfig",
    "T5Config",
    "rotate",
]
