"""Hugging Face: models read from there and written for there, and training of their models with our position IDs."""

from longreach.hf.attention import register_attentions, set_attention
from longreach.hf.convert import from_huggingface, to_huggingface, wrap_for_huggingface
from longreach.hf.load import load_huggingface
from longreach.hf.ppc import with_position_head
from longreach.hf.training import CoupledDataset, PoseDataset, position_callback
from longreach.hf.uncut import UncutCollator, check_attention_uncut, keep_attention_uncut
from longreach.system.huggingface import is_usable, once_imported

__all__ = [
    "CoupledDataset",
    "PoseDataset",
    "UncutCollator",
    "check_attention_uncut",
    "from_huggingface",
    "keep_attention_uncut",
    "load_huggingface",
    "position_callback",
    "set_attention",
    "to_huggingface",
    "with_position_head",
    "wrap_for_huggingface",
]


def _register_types() -> None:
    """Let transformers load folders of our model types; older releases than ours are left alone."""
    if is_usable():
        from longreach.hf.model_type import register_model_type
        from longreach.hf.ppc_config import register_ppc_type

        register_model_type()
        register_ppc_type()


def _register_attentions() -> None:
    """Let `attn_implementation` name attentions of longreach."""
    if is_usable():
        register_attentions()


once_imported("transformers.models.auto.configuration_auto", _register_types)
once_imported("transformers.modeling_utils", _register_attentions)
