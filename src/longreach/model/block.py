"""One layer: attention and a feed-forward net, side by side or one after the other."""

import importlib.util

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from longreach.attention import Attention
from longreach.model.cache import Cache
from longreach.positions.encodings import Bias, Rotation, rotate
from longreach.stacking import for_rows

_HAS_TRITON = importlib.util.find_spec("triton") is not None


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
    """Multi-head attention with one fused projection, laid out per head as query, key, value (as in GPT-NeoX)."""

    def __init__(self, width: int, heads: int, eps: float, mix: Attention, norm: bool, id_heads: int) -> None:
        super().__init__()
        self.heads = heads
        head_dim = width // heads
        self.id_heads = IdHeads(id_heads, head_dim) if id_heads else None
        self.norm_q = nn.RMSNorm(head_dim, eps=eps) if norm else nn.Identity()
        self.norm_k = nn.RMSNorm(head_dim, eps=eps) if norm else nn.Identity()
        self.qkv = nn.Linear(width, 3 * width)
        self.mix = mix
        self.out = nn.Linear(width, width)

    def forward(
        self,
        x: Float[Tensor, "b t w"],
        rotation: Rotation | None,
        key_rotation: Rotation | None,
        visible: Int[Tensor, "#b t"],
        mask: Tensor | None,
        bias: Bias | None,
        cache: Cache | None,
        slots: Tensor | None,
        layer: int,
        at: Int[Tensor, "b a"] | None = None,
    ) -> Float[Tensor, "b _ w"]:
        b, t, w = x.shape
        qkv = self.qkv(x)
        alone = cache is None and mask is None and bias is None and key_rotation is None
        if alone and self.fits_one_kernel(qkv, rotation):
            return self.out(at_places(self._in_one_kernel(qkv, rotation, visible, x), at))  # type: ignore[no-any-return]
        qkv = qkv.view(b, t, self.heads, 3 * w // self.heads).transpose(1, 2)
        q, k, v = qkv.chunk(3, dim=-1)  # [b, h, t, d] each
        if self.id_heads is not None:
            q, k = self.id_heads(q, k)
        q = rotate(self.norm_q(q), rotation)
        k = rotate(self.norm_k(k), rotation if key_rotation is None else key_rotation)
        if cache is not None and slots is not None:
            k, v = cache.write(layer, slots, k, v)
        mixed = self.mix(self.mix.rescale(q, visible, x), k, v, visible, mask, bias)
        return self.out(at_places(mixed.transpose(1, 2).reshape(b, t, w), at))  # type: ignore[no-any-return]

    def fits_one_kernel(self, qkv: Float[Tensor, "b t w3"], rotation: Rotation | None) -> bool:
        """Whether the kernel for short sequences computes the same, and is there."""
        if not (_HAS_TRITON and qkv.is_cuda):
            return False
        from longreach.attention.short import fits  # needs Triton

        whole = rotation is None or 6 * self.heads * rotation[0].shape[-1] == qkv.shape[2]
        own = self.id_heads is not None or isinstance(self.norm_q, nn.RMSNorm)
        return self.mix.plain and whole and not own and fits(qkv, self.heads)

    def _in_one_kernel(
        self,
        qkv: Float[Tensor, "b t w3"],
        rotation: Rotation | None,
        visible: Int[Tensor, "#b t"],
        x: Float[Tensor, "b t w"],
    ) -> Float[Tensor, "b t w"]:
        from longreach.attention.short import short_attention

        cos, sin = (None, None) if rotation is None else (part[:, 0] for part in rotation)
        mixed: Tensor = short_attention(qkv, cos, sin, self.mix.growth(visible, x), self.heads)
        return mixed


def at_places(x: Float[Tensor, "b t w"], at: Int[Tensor, "b a"] | None) -> Float[Tensor, "b _ w"]:
    """The states at some places, or at all."""
    return x if at is None else x.gather(1, at[..., None].expand(-1, -1, x.shape[2]))


class FeedForward(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.out = nn.Linear(hidden, width)

    def forward(self, x: Float[Tensor, "b t w"]) -> Float[Tensor, "b t w"]:
        return self.out(torch.nn.functional.gelu(self.up(x)))  # type: ignore[no-any-return]


class Block(nn.Module):
    def __init__(
        self,
        width: int,
        heads: int,
        hidden: int,
        eps: float,
        parallel: bool,
        mix: Attention,
        norm: bool,
        id_heads: int,
    ) -> None:
        super().__init__()
        self.parallel = parallel
        self.norm1 = nn.LayerNorm(width, eps=eps)
        self.norm2 = nn.LayerNorm(width, eps=eps)
        self.attention = SelfAttention(width, heads, eps, mix, norm, id_heads)
        self.feed_forward = FeedForward(width, hidden)

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
