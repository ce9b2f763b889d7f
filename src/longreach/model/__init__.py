"""The transformer."""

from longreach.model.cache import Cache
from longreach.model.names import to_gpt_neox
from longreach.model.position_heads import IdChoice, PointerConfig, PositionHead, PositionHeadConfig, TableConfig
from longreach.model.position_heads.base import RESERVED, prompt_ladders
from longreach.model.transformer import ModelConfig, Transformer, build_model

__all__ = [
    "RESERVED",
    "Cache",
    "IdChoice",
    "ModelConfig",
    "PointerConfig",
    "PositionHead",
    "PositionHeadConfig",
    "TableConfig",
    "Transformer",
    "build_model",
    "prompt_ladders",
    "to_gpt_neox",
]
