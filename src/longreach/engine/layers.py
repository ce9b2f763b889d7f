"""The parts of a transformer, each computed by the faster paths that a plan has chosen for it."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from longreach.attention import Attention
from longreach.attention.base import recomputed
from longreach.attention.entmax import SparseWeights
from longreach.engine import adasplash, flex
from longreach.engine.by_token import TOKENS_PER_ENTRY, Entries, first_layer, product_is_small
from longreach.model import Transformer
from longreach.model.block import Block, LayerInputs, SelfAttention
from longreach.model.cache import Cache
from longreach.positions.encodings import Bias
from longreach.positions.encodings.equal import EqualIds
from longreach.positions.encodings.rope import Rope

if TYPE_CHECKING:
    from longreach.engine.short_attention import Extras


class FastTransformer(Transformer):
    """A transformer that reads whole sequences by faster paths.  With a cache it is the reference."""

    by_token = False
    """Compute the first layer for the vocabulary instead of every token."""
    by_product = False
    """Compute gradients of tables as products."""
    reads_states = False
    """Whether attention rescales scores by the states."""
    fused_in: torch.dtype | None = None
    """The precision of fused layers; None without them.  The caller's autocast has the same one."""
    gelu_in_products = True
    """Compute GELU inside the kernels of the products, in fused layers."""
    recompute = False
    """Keep only the inputs of layers for the backward pass."""
    fused_cross_entropy = False
    """Compute the loss of tokens by a kernel that reads the logits in their own precision."""
    _read: tuple[Tensor, Tensor] | None = None
    """The tokens of the last pass in training and their embeddings, until the heads have read them."""

    def states(
        self,
        tokens: Int[Tensor, "b t"],
        ids: Int[Tensor, "b g t"],
        cache: Cache | None,
        slots: Int[Tensor, "b t"] | None,
        at: Int[Tensor, "b a"] | None = None,
        keep: Bool[Tensor, "b t t"] | None = None,
    ) -> Float[Tensor, "b _ w"]:
        self._read = None
        if cache is not None:
            return super().states(tokens, ids, cache, slots, at, keep)
        inputs = self.layer_inputs(ids, None, None, keep)
        x: Tensor | Entries
        if self.by_token and self._is_worth_it(tokens):
            x = Entries.of(self.embed, tokens, self.by_product)
        else:
            x = self.embedded(tokens, ids)
        if self.fused_in is None:
            normed: Tensor = self.norm(self.run_layers(x, inputs, at))
            return normed
        from longreach.engine.fused import run_fused  # needs Triton

        # the head would round states anyway, and nothing else reads them
        result = self.embed.weight.dtype if self.looks_back else self.fused_in
        return run_fused(
            self.blocks,
            self.norm,
            x,
            at,
            inputs,
            self.fused_in,
            result,
            self.reads_states,
            self.gelu_in_products,
        )

    def embed_read(self, tokens: Int[Tensor, "b t"]) -> Float[Tensor, "b t w"]:
        """Embed tokens once for the layers and the heads, so that autograd adds up gradients before the look-up's."""
        if self._read is not None and self._read[0] is tokens:
            (_, embedded), self._read = self._read, None
            return embedded
        embedded = super().embed_read(tokens)
        if self.looks_back and torch.is_grad_enabled():
            self._read = tokens, embedded
        return embedded

    def cross_entropy(self, logits: Float[Tensor, "b a v"], labels: Int[Tensor, "b a"]) -> Float[Tensor, "b a"]:
        if not self.fused_cross_entropy:
            return super().cross_entropy(logits, labels)
        from longreach.engine.fused.cross_entropy import cross_entropy  # needs Triton

        return cross_entropy(logits, labels)

    def _is_worth_it(self, tokens: Int[Tensor, "b t"]) -> bool:
        """Return whether the batch has enough tokens, and their gradients are added up quickly and exactly."""
        table = self.embed.weight
        by_product = self.by_product or torch.is_autocast_enabled(tokens.device.type)
        slow = by_product and torch.is_grad_enabled() and not product_is_small(tokens, table)
        return tokens.numel() >= TOKENS_PER_ENTRY * table.shape[:-1].numel() and not slow

    def layer_inputs(
        self,
        ids: Int[Tensor, "b g t"],
        cache: Cache | None,
        slots: Int[Tensor, "b t"] | None,
        keep: Bool[Tensor, "b t t"] | None,
    ) -> LayerInputs:
        inputs = super().layer_inputs(ids, cache, slots, keep)
        if inputs.bias is not None and type(self.encoding) is EqualIds and cache is None and keep is None:
            inputs = replace(inputs, bias=EqualIdBias(inputs.bias, self.encoding, ids))
        if self.recompute and inputs.bias is not None:
            inputs.bias.kept = False  # a bias kept in one layer could not be computed again for another
        return inputs

    def run_layers(
        self, x: Float[Tensor, "b t w"] | Entries, inputs: LayerInputs, at: Int[Tensor, "b a"] | None
    ) -> Float[Tensor, "b _ w"]:
        if isinstance(x, Tensor):
            return super().run_layers(x, inputs, at)
        last = self.config.depth - 1
        block = self.blocks[0]
        assert isinstance(block, Block)
        states = first_layer(block, x, inputs, at if last == 0 else None, self.reads_states)
        for layer in range(1, self.config.depth):
            block = self.blocks[layer % self.config.layers]
            states = self.run_layer(block, states, inputs, layer, at if layer == last else None)
        return states

    def run_layer(
        self,
        block: nn.Module,
        x: Float[Tensor, "b t w"],
        inputs: LayerInputs,
        layer: int,
        at: Int[Tensor, "b a"] | None,
    ) -> Float[Tensor, "b _ w"]:
        if self.recompute:
            return recomputed(block, x, inputs, layer, at)
        return super().run_layer(block, x, inputs, layer, at)


class FastAttention(SelfAttention):
    """Self-attention by kernels that read the fused projection."""

    short = False
    """Use one kernel for short sequences."""
    rotary = False
    """Turn queries and keys, and take heads apart, by one kernel."""

    def attend(
        self,
        qkv: Float[Tensor, "b t wide"],
        x: Float[Tensor, "b t w"] | None,
        inputs: LayerInputs,
        layer: int,
        qkv_bias: Tensor | None = None,
        missing_bias: Tensor | None = None,
    ) -> Float[Tensor, "b t w"]:
        """Mix values.

        The gradient of the projection's bias `qkv_bias`, if given, is accumulated here.  `missing_bias` is a bias that
        the projection does not contain yet; it needs `is_short`.
        """
        if self.is_short(qkv.shape[1], qkv.dtype, inputs):
            from longreach.engine.short_attention import short_attention  # needs Triton

            turn = inputs.rotation
            cos, sin = (None, None) if turn is None else (turn[0][:, 0], turn[1][:, 0])
            growth = self.mix.growth(inputs.visible, x)
            extras = self._extras(inputs.bias, missing_bias)
            mixed: Tensor = short_attention(_with_gradient(qkv, qkv_bias), cos, sin, growth, self.heads, extras)
            return mixed
        if self.rotary and inputs.rotation is not None and not torch.compiler.is_compiling():
            from longreach.engine.fused.rotary import turn_apart  # needs Triton

            cos, sin = inputs.rotation[0][:, 0], inputs.rotation[1][:, 0]
            return self.mixed(*turn_apart(qkv, cos, sin, qkv_bias, self.heads), x, inputs, layer)
        return super().attend(_with_gradient(qkv, qkv_bias), x, inputs, layer)

    def is_short(self, tokens: int, dtype: torch.dtype, inputs: LayerInputs) -> bool:
        """Return whether the kernel for short sequences attends."""
        if not self.short or inputs.mask is not None or inputs.cache is not None:
            return False
        from longreach.engine.short_attention import most_tokens  # needs Triton

        return tokens <= most_tokens(dtype) and (inputs.bias is None or isinstance(inputs.bias, EqualIdBias))

    def _extras(self, bias: Bias | None, missing_bias: Tensor | None) -> "Extras":
        """Return what the kernel for short sequences computes besides rotations."""
        from longreach.engine.short_attention import Extras  # needs Triton

        def by_model(weight: Tensor, dims: int) -> Tensor:
            return weight if weight.dim() > dims else weight[None]

        own: dict[str, Any] = {"qkv_bias": missing_bias}
        if isinstance(self.norm_q, nn.RMSNorm) and isinstance(self.norm_k, nn.RMSNorm):
            assert self.norm_q.eps is not None
            own |= {"norm_q": by_model(self.norm_q.weight, 1), "norm_k": by_model(self.norm_k.weight, 1)}
            own["eps"] = self.norm_q.eps
        if self.id_heads is not None:
            own |= {"id_q": by_model(self.id_heads.query, 2), "id_k": by_model(self.id_heads.key, 2)}
        if isinstance(bias, EqualIdBias):
            own |= {"ids": bias.ids, "comparing": bias.comparing}
        return Extras(**own)


class KnownFrequencies(Rope):
    """RoPE whose random frequencies are not drawn again for every batch."""

    known: tuple[Float[Tensor, "pairs"], ...] = ()

    def frequencies(self, level: int, device: torch.device) -> Float[Tensor, "pairs"]:
        return self.known[level]


class EqualIdBias(Bias):
    """The bias of heads that compare IDs, with the IDs themselves for a kernel that compares them."""

    def __init__(self, bias: Bias, encoding: EqualIds, ids: Int[Tensor, "b g t"]) -> None:
        super().__init__(bias.make, bias.copies, bias.by_pair)
        self.ids = torch.stack([ids[:, level] for level in encoding.growing], dim=1).int()
        self.comparing = encoding.comparing


def _with_gradient(qkv: Float[Tensor, "b t wide"], qkv_bias: Tensor | None) -> Float[Tensor, "b t wide"]:
    """Return the projection; where its bias is given, the bias gets its gradient here."""
    if qkv_bias is None:
        return qkv
    from longreach.engine.fused.branches import with_bias_gradient  # needs Triton

    return with_bias_gradient(qkv, qkv_bias)


class CpuAttention(SelfAttention):
    """Self-attention on a CPU, where queries and keys are rotated together."""

    def turned(
        self, qkv: Float[Tensor, "b t wide"], inputs: LayerInputs
    ) -> tuple[Float[Tensor, "b h t d"], Float[Tensor, "b h t d"], Float[Tensor, "b h t d"]]:
        if inputs.rotation is None or inputs.rotation[0].dtype != qkv.dtype:
            return super().turned(qkv, inputs)
        found: tuple[Tensor, Tensor, Tensor] = _SplitAndRotate.apply(qkv, *inputs.rotation, self.heads)  # type: ignore[no-untyped-call]
        return found


class _SplitAndRotate(torch.autograd.Function):
    """Splits the projection into queries, keys and values, and rotates queries and keys."""

    @staticmethod
    def forward(ctx: Any, qkv: Tensor, cos: Tensor, sin: Tensor, heads: int) -> tuple[Tensor, Tensor, Tensor]:
        cos, sin = torch.cat([cos, cos], dim=-1), torch.cat([-sin, sin], dim=-1)
        ctx.save_for_backward(cos, sin)
        by_part = _by_part(qkv, heads)
        queries_and_keys = by_part[:2].contiguous()
        q, k = (queries_and_keys * cos).addcmul_(_swap_halves(queries_and_keys), sin)
        return q, k, by_part[2]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        cos, sin = ctx.saved_tensors
        b, heads, t, d = gradients[0].shape
        d_qkv = torch.empty(b, t, heads * 3 * d, dtype=gradients[0].dtype, device=gradients[0].device)
        by_part = _by_part(d_qkv, heads)
        d_rotated = torch.stack(gradients[:2])
        by_part[:2].copy_((d_rotated * cos).addcmul_(_swap_halves(d_rotated), sin, value=-1))
        by_part[2].copy_(gradients[2])
        return d_qkv, None, None, None


def _by_part(qkv: Float[Tensor, "b t wide"], heads: int) -> Float[Tensor, "3 b h t d"]:
    """Return a view of the queries, keys and values of all heads."""
    b, t, _ = qkv.shape
    return qkv.view(b, t, heads, 3, -1).permute(3, 0, 2, 1, 4)


def _swap_halves(x: Float[Tensor, "2 b h t d"]) -> Float[Tensor, "2 b h t d"]:
    """Exchange the first half of each head with the second."""
    half = x.shape[-1] // 2
    return torch.cat([x[..., half:], x[..., :half]], dim=-1)


class FlexBias(Attention):
    """Adds the biases of long sequences inside torch's flex_attention."""

    def forward(
        self,
        q: Float[Tensor, "b h q d"],
        k: Float[Tensor, "b h k d"],
        v: Float[Tensor, "b h k d"],
        visible: Int[Tensor, "#b q"],
        mask: Bool[Tensor, "b 1 q k"] | None,
        bias: Bias | None,
    ) -> Float[Tensor, "b h q d"]:
        if bias is not None and mask is None and v.shape[2] >= flex.FROM:
            by_pair = bias.by_pair()
            if by_pair is not None:
                return flex.attend(q, k, v, by_pair)
        return super().forward(q, k, v, visible, mask, bias)


class ExactAttention(Attention):
    """Attends in fp32 by tensor cores where no gradient is wanted."""

    def forward(
        self,
        q: Float[Tensor, "b h q d"],
        k: Float[Tensor, "b h k d"],
        v: Float[Tensor, "b h k d"],
        visible: Int[Tensor, "#b q"],
        mask: Bool[Tensor, "b 1 q k"] | None,
        bias: Bias | None,
    ) -> Float[Tensor, "b h q d"]:
        if mask is None and bias is None:
            from longreach.engine.exact_attention import attend, serves  # needs Triton

            if serves(q, k, v):
                return attend(q, k, v)
        return super().forward(q, k, v, visible, mask, bias)


class AdaSplash(SparseWeights):
    """Computes entmax over long sequences by the kernels of the package adasplash."""

    def write_out(
        self,
        q: Float[Tensor, "b h q d"],
        k: Float[Tensor, "b h k d"],
        v: Float[Tensor, "b h k d"],
        visible: Int[Tensor, "#b q"],
        mask: Bool[Tensor, "b 1 q k"] | None,
        bias: Bias | None,
    ) -> Float[Tensor, "b h q d"]:
        if mask is None and bias is None and q.shape[2] >= adasplash.FROM:
            return adasplash.attend(q, k, v)
        return super().write_out(q, k, v, visible, mask, bias)
