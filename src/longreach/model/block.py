"""One layer: attention and a feed-forward net, side by side or one after the other."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from longreach.attention import Attention
from longreach.model.cache import Cache
from longreach.model.layer import LayerConfig
from longreach.positions.encodings import Bias, Rotation, rotate


@dataclass(frozen=True)
class LayerInputs:
    """The inputs that all layers share besides the states."""

    rotation: Rotation | None
    """Angles of the queries."""
    key_rotation: Rotation | None
    """Angles of the keys; None where they are the queries'."""
    visible: Int[Tensor, "#b t"]
    """The number of keys that each token sees."""
    mask: Bool[Tensor, "b 1 t k"] | None
    """The keys that each token sees; None where attention is causal."""
    bias: Bias | None
    """A bias of the scores."""
    cache: Cache | None
    slots: Int[Tensor, "b t"] | None
    """The places of the tokens in the cache."""


class IdHeads(nn.Module):
    """Heads that look by position IDs alone: one query and one key for all tokens, which their IDs turn.

    A head that looks by content too, trained among a few tokens, finds a better match among thousands: another token
    whose content outweighs its ID.
    """

    def __init__(self, heads: int, head_dim: int) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.ones(heads, head_dim))
        self.key = nn.Parameter(torch.ones(heads, head_dim))

    def initialise(self) -> None:
        """Set all dimensions to 1: turned by equal angles they match best, so that a head begins with equal IDs."""
        nn.init.ones_(self.query)
        nn.init.ones_(self.key)

    def forward(
        self, q: Float[Tensor, "b h t d"], k: Float[Tensor, "b h t d"]
    ) -> tuple[Float[Tensor, "b h t d"], Float[Tensor, "b h t d"]]:
        """Replace the queries and keys of the first heads."""
        return self.replace(q, self.query), self.replace(k, self.key)

    def replace(self, x: Float[Tensor, "b h t d"], fixed: Float[Tensor, "n d"]) -> Float[Tensor, "b h t d"]:
        """Replace the first heads of x by the same vectors for all tokens."""
        constant = fixed.to(x.dtype)[:, None].expand(len(x), -1, x.shape[2], -1)
        return torch.cat([constant, x[:, constant.shape[1] :]], dim=1)


class SelfAttention(nn.Module):
    """Multi-head attention with one fused projection, laid out per head as query, key, value (as in GPT-NeoX); where
    heads share keys and values, per group as its queries, key, value."""

    def __init__(self, config: LayerConfig, mix: Attention) -> None:
        super().__init__()
        self.heads, self.groups, head_dim = config.heads, config.groups, config.head_dim
        self.id_heads = IdHeads(config.id_heads, head_dim) if config.id_heads else None
        normed = config.norm_queries_and_keys
        self.norm_q = nn.RMSNorm(head_dim, eps=config.norm_eps) if normed else nn.Identity()
        self.norm_k = nn.RMSNorm(head_dim, eps=config.norm_eps) if normed else nn.Identity()
        self.qkv = nn.Linear(config.width, (self.heads + 2 * self.groups) * head_dim, bias=config.biases)
        self.mix = mix
        self.out = nn.Linear(config.width, config.width, bias=config.biases)

    def forward(
        self, x: Float[Tensor, "b t w"], inputs: LayerInputs, layer: int, at: Int[Tensor, "b a"] | None = None
    ) -> Float[Tensor, "b _ w"]:
        """Attend from all tokens, or return the output `at` some of them only."""
        return self.out(at_places(self.attend(self.qkv(x), x, inputs, layer), at))  # type: ignore[no-any-return]

    def attend(
        self, qkv: Float[Tensor, "b t wide"], x: Float[Tensor, "b t w"] | None, inputs: LayerInputs, layer: int
    ) -> Float[Tensor, "b t w"]:
        """Mix the values of the projection `qkv` of the states x.  Only attentions that rescale scores read x."""
        return self.mixed(*self.turned(qkv, inputs), x, inputs, layer)

    def mixed(
        self,
        q: Float[Tensor, "b h t d"],
        k: Float[Tensor, "b kv t d"],
        v: Float[Tensor, "b kv t d"],
        x: Float[Tensor, "b t w"] | None,
        inputs: LayerInputs,
        layer: int,
    ) -> Float[Tensor, "b t w"]:
        """Attend with queries and keys that are turned, and put the heads side by side."""
        if inputs.cache is not None and inputs.slots is not None:
            k, v = inputs.cache.write(layer, inputs.slots, k, v)
        if self.groups < self.heads:
            k, v = (part.repeat_interleave(self.heads // self.groups, dim=1) for part in (k, v))
        q = self.mix.rescale(q, inputs.visible, x)
        mixed: Tensor = self.mix(q, k, v, inputs.visible, inputs.mask, inputs.bias)
        return mixed.transpose(1, 2).flatten(2)

    def turned(
        self, qkv: Float[Tensor, "b t wide"], inputs: LayerInputs
    ) -> tuple[Float[Tensor, "b h t d"], Float[Tensor, "b kv t d"], Float[Tensor, "b kv t d"]]:
        """Split the projection into queries and keys, turned by their angles, and values."""
        q, k, v = self.split(qkv)
        if self.id_heads is not None:
            q, k = self.id_heads(q, k)
        q = rotate(normalized(self.norm_q, q), inputs.rotation)
        return q, rotate(normalized(self.norm_k, k), inputs.key_rotation or inputs.rotation), v

    def split(
        self, qkv: Float[Tensor, "b t wide"]
    ) -> tuple[Float[Tensor, "b h t d"], Float[Tensor, "b kv t d"], Float[Tensor, "b kv t d"]]:
        """Split the projection into queries, keys and values."""
        b, t, wide = qkv.shape
        shared, d = self.heads // self.groups, wide // (self.heads + 2 * self.groups)
        by_group = qkv.view(b, t, self.groups, (shared + 2) * d).transpose(1, 2)
        q, k, v = torch.split(by_group, [shared * d, d, d], dim=-1)
        if shared > 1:
            q = q.reshape(b, self.groups, t, shared, d).transpose(2, 3).flatten(1, 2)
        return q, k, v


def normalized(norm: nn.Module, x: Float[Tensor, "b h t d"]) -> Float[Tensor, "b h t d"]:
    """Apply a norm in the precision of its weights: torch warns where they differ, as under autocast."""
    weight = getattr(norm, "weight", None)
    if weight is None or weight.dtype == x.dtype:
        return norm(x)  # type: ignore[no-any-return]
    return norm(x.to(weight.dtype)).to(x.dtype)  # type: ignore[no-any-return]


def at_places(x: Float[Tensor, "b t w"], at: Int[Tensor, "b a"] | None) -> Float[Tensor, "b _ w"]:
    """Return the states at some places, or at all."""
    return x if at is None else x.gather(1, at[..., None].expand(-1, -1, x.shape[2]))


class FeedForward(nn.Module):
    """Two linear maps with GELU between them, or three with a gate (SwiGLU)."""

    def __init__(self, config: LayerConfig) -> None:
        super().__init__()
        self.gate = nn.Linear(config.width, config.hidden, bias=config.biases) if config.gated else None
        self.up = nn.Linear(config.width, config.hidden, bias=config.biases)
        self.out = nn.Linear(config.hidden, config.width, bias=config.biases)

    def forward(self, x: Float[Tensor, "*n w"]) -> Float[Tensor, "*n w"]:
        up = self.up(x)
        hidden = nn.functional.gelu(up) if self.gate is None else nn.functional.silu(self.gate(x)) * up
        return self.out(hidden)  # type: ignore[no-any-return]


class Block(nn.Module):
    """A layer with its two norms and residual connections."""

    def __init__(self, config: LayerConfig, mix: Attention) -> None:
        super().__init__()
        self.parallel = config.parallel_residual
        self.norm1 = config.new_norm()
        self.norm2 = config.new_norm()
        self.attention = SelfAttention(config, mix)
        self.feed_forward = FeedForward(config)

    def forward(
        self, x: Float[Tensor, "b t w"], inputs: LayerInputs, layer: int, at: Int[Tensor, "b a"] | None = None
    ) -> Float[Tensor, "b _ w"]:
        """Return new states; with `at`, those at some places only, which is all that the last layer may be asked."""
        attended = self.attention(self.norm1(x), inputs, layer, at)
        x = at_places(x, at)
        if self.parallel:
            return x + attended + self.feed_forward(self.norm2(x))  # type: ignore[no-any-return]
        x = x + attended
        return x + self.feed_forward(self.norm2(x))  # type: ignore[no-any-return]
