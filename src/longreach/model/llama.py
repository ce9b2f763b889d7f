"""What most open language models are."""

from dataclasses import dataclass
from typing import Annotated, Literal

from longreach.config import Bounds
from longreach.config.registry import register
from longreach.model.transformer import TransformerConfig


@register("model", "llama")
@dataclass(frozen=True, kw_only=True)
class LlamaConfig(TransformerConfig):
    """A transformer as Llama, SmolLM2 and OLMo are (Touvron et al., 2023): RMS norms, gates, no biases.

    The feed-forward net follows attention instead of standing beside it.  Every part can still be chosen; larger models
    share keys and values among heads, `kv_heads`.
    """

    feed_forward: Annotated[int | float, Bounds(0, 1000)] = 2.6875
    """Hidden units of the feed-forward net, in widths: as in Llama 7B, less than 4 for there is a third matrix."""
    gated: bool = True
    norm: Literal["layer", "rms"] = "rms"
    biases: bool = False
    parallel_residual: bool = False
