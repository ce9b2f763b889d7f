"""What the layers of a transformer are made of."""

from dataclasses import dataclass
from typing import Annotated, Literal

from torch import nn

from longreach.config import Bounds
from longreach.model.base import ModelConfig


@dataclass(frozen=True, kw_only=True)
class LayerConfig(ModelConfig):
    """The settings of a layer: those of GPT-NeoX, unless told otherwise."""

    heads: int = 8
    """Attention heads; the width is split among them."""
    kv_heads: int = 0
    """Heads of keys and values, each shared by equally many heads of queries (grouped-query attention, Ainslie et al.,
    EMNLP 2023); 0 is one for each head of queries."""
    feed_forward: Annotated[int | float, Bounds(0, 1000)] = 4
    """Hidden units of the feed-forward net, in widths."""
    gated: bool = False
    """Hidden units are silu(gate) * up (SwiGLU, Shazeer, 2020) instead of gelu(up)."""
    norm: Literal["layer", "rms"] = "layer"
    """Layer norm, or RMS norm, which divides by the root mean square and takes no mean off."""
    biases: bool = True
    """Whether matrices and layer norms have biases."""
    parallel_residual: bool = True
    """Attention and feed-forward net side by side (GPT-NeoX) instead of one after the other."""
    norm_queries_and_keys: bool = False
    """Normalise queries and keys within each head, so that scores grow by direction and not by length."""
    id_heads: int = 0
    """Heads of each layer that look by position IDs alone, whatever the tokens are.  Ours."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.heads < 1:
            raise ValueError(f"model.heads must be at least 1, got {self.heads}")
        if self.width % self.heads:
            raise ValueError(f"model.width={self.width} does not split into {self.heads} heads")
        if self.kv_heads < 0 or (self.kv_heads and self.heads % self.kv_heads):
            raise ValueError(f"model.kv_heads={self.kv_heads} cannot be shared evenly by {self.heads} heads")
        if self.hidden < 1:
            raise ValueError(f"model.feed_forward={self.feed_forward} leaves no hidden unit")
        if not 0 <= self.id_heads <= self.heads:
            raise ValueError(f"model.id_heads must be in 0..{self.heads}, the number of heads, got {self.id_heads}")
        if self.id_heads and self.groups != self.heads:
            raise ValueError("model.id_heads have keys of their own, which model.kv_heads would share")

    @property
    def head_dim(self) -> int:
        return self.width // self.heads

    @property
    def groups(self) -> int:
        """Heads of keys and values."""
        return self.kv_heads or self.heads

    @property
    def hidden(self) -> int:
        """Hidden units of the feed-forward net."""
        return round(self.feed_forward * self.width)

    def new_norm(self) -> nn.Module:
        if self.norm == "rms":
            return nn.RMSNorm(self.width, eps=self.norm_eps)
        return nn.LayerNorm(self.width, eps=self.norm_eps, bias=self.biases)
