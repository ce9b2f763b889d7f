"""How position IDs enter the model: one encoding per file."""

from longreach.positions.encodings.alibi import AlibiConfig
from longreach.positions.encodings.base import Bias, ContentBias, Encoding, EncodingConfig, Rotation, Shape, rotate
from longreach.positions.encodings.cope import CopeConfig
from longreach.positions.encodings.equal import EqualIdsConfig
from longreach.positions.encodings.fire import FireConfig
from longreach.positions.encodings.kerple import KerpleConfig
from longreach.positions.encodings.learned import LearnedConfig
from longreach.positions.encodings.learned_rope import LearnedRopeConfig
from longreach.positions.encodings.nape import NapeConfig
from longreach.positions.encodings.none import NoEncodingConfig
from longreach.positions.encodings.pairs import PairBias
from longreach.positions.encodings.rope import RopeConfig
from longreach.positions.encodings.rope_far import ReRopeConfig, SelfExtendConfig
from longreach.positions.encodings.rope_scaling import ScaledRopeConfig
from longreach.positions.encodings.shaw import ShawConfig
from longreach.positions.encodings.sinusoidal import SinusoidalConfig
from longreach.positions.encodings.t5 import T5Config
from longreach.positions.encodings.transformer_xl import TransformerXlConfig
from longreach.positions.encodings.xpos import XposConfig

__all__ = [
    "AlibiConfig",
    "Bias",
    "ContentBias",
    "CopeConfig",
    "Encoding",
    "EncodingConfig",
    "EqualIdsConfig",
    "FireConfig",
    "KerpleConfig",
    "LearnedConfig",
    "LearnedRopeConfig",
    "NapeConfig",
    "NoEncodingConfig",
    "PairBias",
    "ReRopeConfig",
    "RopeConfig",
    "Rotation",
    "ScaledRopeConfig",
    "SelfExtendConfig",
    "Shape",
    "ShawConfig",
    "SinusoidalConfig",
    "T5Config",
    "TransformerXlConfig",
    "XposConfig",
    "rotate",
]
