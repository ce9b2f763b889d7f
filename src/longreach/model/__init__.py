"""Models: a transformer, and what it is compared with."""

from longreach.model.base import Model, ModelConfig, Past, build_model, shape_model
from longreach.model.block import at_places
from longreach.model.cache import Cache
from longreach.model.llama import LlamaConfig
from longreach.model.position_heads import IdChoice, PointerConfig, PositionHead, PositionHeadConfig, TableConfig
from longreach.model.position_heads.base import RESERVED, prompt_ladders
from longreach.model.recurrent import Recurrent, RecurrentConfig
from longreach.model.transformer import Transformer, TransformerConfig

__all__ = [
    "RESERVED",
    "Cache",
    "IdChoice",
    "LlamaConfig",
    "Model",
    "ModelConfig",
    "Past",
    "PointerConfig",
    "PositionHead",
    "PositionHeadConfig",
    "Recurrent",
    "RecurrentConfig",
    "TableConfig",
    "Transformer",
    "TransformerConfig",
    "at_places",
    "build_model",
    "prompt_ladders",
    "shape_model",
]
