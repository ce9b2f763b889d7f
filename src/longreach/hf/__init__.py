"""Hugging Face: models read from there and written for there, and training of their models with our position IDs."""

from longreach.hf.attention import set_attention
from longreach.hf.convert import from_huggingface, to_huggingface, wrap_for_huggingface
from longreach.hf.load import load_huggingface
from longreach.hf.ppc import register_huggingface, with_position_head
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
    "register_huggingface",
    "set_attention",
    "to_huggingface",
    "with_position_head",
    "wrap_for_huggingface",
]


def _register() -> None:
    """Let transformers load folders of the model type `longreach`; older releases than ours are left alone."""
    if is_usable():
        from longreach.hf.model_type import register_model_type

        register_model_type()


once_imported("transformers.models.auto.configuration_auto", _register)
