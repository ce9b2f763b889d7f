"""Hugging Face: models read from there and written for there."""

from longreach.hf.convert import from_huggingface, to_huggingface
from longreach.hf.load import load_huggingface

__all__ = ["from_huggingface", "load_huggingface", "to_huggingface"]
