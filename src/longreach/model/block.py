"""One layer: attention and a feed-forward net, side by side or one after the other."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from longreach.attention import Attention
from longreach.engine.kernels import HAS_TRITON, PRECISIONS
from longreach.engine.rows import for_rows
from longreach.model.cache import Cache
from longreach.model.layer import LayerConfig
from longreach.positions.encodings import Bias, Rotation, rotate


class IdHeads(nn.Module):
    """Heads that look by position IDs alone: one query and one key for all tokens, which their IDs turn.

    A head that looks by content too, trained among a few tokens, finds a better match among thousands: another token
    whose content outweighs its ID.
    """

    stacks = True

    def __init__(self, heads: int, head_dim: int) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.ones(heads, head_dim))
        self.key = nn.Parameter(torch.ones(heads, head_dim))

    def initialise(self) -> None:
        """All dimensions alike: turned by equal angles they match best, so that a head begins with equal IDs."""
        nn.init.ones_(self.query)
        nn.init.ones_(self.key)

    def forward(
        self, q: Float[Tensor, "b h t d"], k: Float[Tensor, "b h t d"]
    ) -> tuple[Float[Tensor, "b h t d"], Float[Tensor, "b h t d"]]:
        """The same with the first heads' queries and keys replaced."""
        return _replace_first(q, self.query), _replace_first(k, self.key)


def _replace_first(x: Float[Tensor, "b h t d"], fixed: Float[Tensor, "*m n d"]) -> Float[Tensor, "b h t d"]:
    constant = for_rows(fixed, 2, len(x)).to(x.dtype)[:, :, None].expand(len(x), -1, x.shape[2], -1)
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
        self, x: Float[Tensor, "b t w"], at: Int[Tensor, "b a"] | None = None, **context: Any
    ) -> Float[Tensor, "b _ w"]:
        return self.out(at_places(self.attend(self.qkv(x), x, **context), at))  # type: ignore[no-any-return]

    def attend(
        self,
        qkv: Float[Tensor, "b t wide"],
        x: Float[Tensor, "b t w"] | None,
        rotation: Rotation | None,
        key_rotation: Rotation | None,
        visible: Int[Tensor, "#b t"],
        mask: Tensor | None,
        bias: Bias | None,
        cache: Cache | None,
        slots: Tensor | None,
        layer: int,
        qkv_bias: Tensor | None = None,
    ) -> Float[Tensor, "b t w"]:
        """Mixed values of what the states x were projected to; x itself only scores that grow may read.  The
        projection's bias is given where its gradient is wanted from here."""
        alone = cache is None and mask is None and bias is None and key_rotation is None
        if alone and self.fits_one_kernel(qkv, rotation):
            return self._in_one_kernel(_with_gradient(qkv, qkv_bias), rotation, visible, x)
        q, k, v = self._turned(qkv, rotation, key_rotation, qkv_bias)
        if cache is not None and slots is not None:
            k, v = cache.write(layer, slots, k, v)
        if self.groups < self.heads:
            k, v = (x.repeat_interleave(self.heads // self.groups, dim=1) for x in (k, v))
        mixed: Tensor = self.mix(self.mix.rescale(q, visible, x), k, v, visible, mask, bias)
        return mixed.transpose(1, 2).flatten(2)

    def _turned(
        self,
        qkv: Float[Tensor, "b t wide"],
        rotation: Rotation | None,
        key_rotation: Rotation | None,
        qkv_bias: Tensor | None,
    ) -> tuple[Float[Tensor, "b h t d"], Float[Tensor, "b kv t d"], Float[Tensor, "b kv t d"]]:
        """Queries and keys by their angles, and values."""
        alike = key_rotation is None and self._only_turns(qkv, rotation)
        if rotation is not None and alike and _may_launch(qkv, rotation[0].shape[-1]):
            from longreach.engine.fused.rotary import turn_apart  # needs Triton

            return turn_apart(qkv, rotation[0][:, 0], rotation[1][:, 0], qkv_bias, self.heads)
        q, k, v = self._apart(_with_gradient(qkv, qkv_bias))
        if self.id_heads is not None:
            q, k = self.id_heads(q, k)
        return rotate(self.norm_q(q), rotation), rotate(self.norm_k(k), key_rotation or rotation), v

    def _apart(
        self, qkv: Float[Tensor, "b t wide"]
    ) -> tuple[Float[Tensor, "b h t d"], Float[Tensor, "b kv t d"], Float[Tensor, "b kv t d"]]:
        """Queries, keys and values."""
        b, t, wide = qkv.shape
        shared, d = self.heads // self.groups, wide // (self.heads + 2 * self.groups)
        by_group = qkv.view(b, t, self.groups, (shared + 2) * d).transpose(1, 2)
        q, k, v = torch.split(by_group, [shared * d, d, d], dim=-1)
        if shared > 1:
            q = q.reshape(b, self.groups, t, shared, d).transpose(2, 3).flatten(1, 2)
        return q, k, v

    def fits_one_kernel(self, qkv: Float[Tensor, "b t wide"], rotation: Rotation | None) -> bool:
        """Whether the kernel for short sequences computes the same, and is there."""
        if not (HAS_TRITON and qkv.is_cuda):
            return False
        from longreach.engine.short_attention import fits  # needs Triton

        return self.mix.plain and self._only_turns(qkv, rotation) and fits(qkv, self.heads)

    def _only_turns(self, qkv: Float[Tensor, "b t wide"], rotation: Rotation | None) -> bool:
        """Whether nothing happens to queries and keys but that all of their dimensions are turned, or none."""
        whole = rotation is None or 6 * self.heads * rotation[0].shape[-1] == qkv.shape[2]
        own = self.id_heads is not None or isinstance(self.norm_q, nn.RMSNorm)
        return whole and not own and self.groups == self.heads

    def _in_one_kernel(
        self,
        qkv: Float[Tensor, "b t w3"],
        rotation: Rotation | None,
        visible: Int[Tensor, "#b t"],
        x: Float[Tensor, "b t w"] | None,
    ) -> Float[Tensor, "b t w"]:
        from longreach.engine.short_attention import short_attention

        cos, sin = (None, None) if rotation is None else (part[:, 0] for part in rotation)
        mixed: Tensor = short_attention(qkv, cos, sin, self.mix.growth(visible, x), self.heads)
        return mixed


def _with_gradient(qkv: Float[Tensor, "b t wide"], qkv_bias: Tensor | None) -> Float[Tensor, "b t wide"]:
    """The projection, whose bias gets its gradient here where it is given."""
    if qkv_bias is None:
        return qkv
    from longreach.engine.fused.branches import with_bias_gradient  # needs Triton

    return with_bias_gradient(qkv, qkv_bias)


def _may_launch(qkv: Float[Tensor, "b t wide"], angles: int) -> bool:
    """Whether to turn by a kernel of ours, whose blocks are powers of two: compiled layers fuse the plain way into what
    surrounds it."""
    suits = angles & (angles - 1) == 0 and qkv.dtype in PRECISIONS
    return HAS_TRITON and qkv.is_cuda and suits and not torch.compiler.is_compiling()


def at_places(x: Float[Tensor, "b t w"], at: Int[Tensor, "b a"] | None) -> Float[Tensor, "b _ w"]:
    """The states at some places, or at all."""
    return x if at is None else x.gather(1, at[..., None].expand(-1, -1, x.shape[2]))


class FeedForward(nn.Module):
    def __init__(self, config: LayerConfig) -> None:
        super().__init__()
        self.gate = nn.Linear(config.width, config.hidden, bias=config.biases) if config.gated else None
        self.up = nn.Linear(config.width, config.hidden, bias=config.biases)
        self.out = nn.Linear(config.hidden, config.width, bias=config.biases)

    def forward(self, x: Float[Tensor, "b t w"]) -> Float[Tensor, "b t w"]:
        up = self.up(x)
        hidden = nn.functional.gelu(up) if self.gate is None else nn.functional.silu(self.gate(x)) * up
        return self.out(hidden)  # type: ignore[no-any-return]


class Block(nn.Module):
    def __init__(self, config: LayerConfig, mix: Attention) -> None:
        super().__init__()
        self.parallel = config.parallel_residual
        self.norm1 = config.new_norm()
        self.norm2 = config.new_norm()
        self.attention = SelfAttention(config, mix)
        self.feed_forward = FeedForward(config)

    def forward(
        self, x: Float[Tensor, "b t w"], at: Int[Tensor, "b a"] | None = None, **context: object
    ) -> Float[Tensor, "b _ w"]:
        """New states; of the last layer those at some places may be all that is wanted."""
        attended = self.attention(self.norm1(x), at=at, **context)
        x = at_places(x, at)
        if self.parallel:
            return x + attended + self.feed_forward(self.norm2(x))  # type: ignore[no-any-return]
        x = x + attended
        return x + self.feed_forward(self.norm2(x))  # type: ignore[no-any-return]
