"""The transformer."""

from longreach.model.cache import Cache
from longreach.model.names import to_gpt_neox
from longreach.model.transformer import ModelConfig, Transformer, build_model

__all__ = ["Cache", "ModelConfig", "Transformer", "build_model", "to_gpt_neox"]
