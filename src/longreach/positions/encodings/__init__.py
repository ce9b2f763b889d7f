"""How position IDs enter the model: one encoding per file."""

from longreach.positions.encodings.base import Encoding, EncodingConfig, Rotation, Shape, rotate
from longreach.positions.encodings.learned import LearnedConfig
from longreach.positions.encodings.learned_rope import LearnedRopeConfig
from longreach.positions.encodings.none import NoEncoding
from longreach.positions.encodings.rope import RopeConfig
from longreach.positions.encodings.sinusoidal import SinusoidalConfig

__all__ = [
    "Encoding",
    "EncodingConfig",
    "LearnedConfig",
    "LearnedRopeConfig",
    "NoEncoding",
    "RopeConfig",
    "Rotation",
    "Shape",
    "SinusoidalConfig",
    "rotate",
]
