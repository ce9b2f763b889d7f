"""A GPT-NeoX-style decoder: a function of tokens, position IDs and a cache."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from longreach.attention import AttentionConfig, SoftmaxConfig
from longreach.config import Bounds
from longreach.config.registry import name_of, register
from longreach.errors import BadInput
from longreach.model.base import Model
from longreach.model.block import Block, LayerInputs
from longreach.model.cache import Cache
from longreach.model.layer import LayerConfig
from longreach.model.look_back import CopyHead, LookBack
from longreach.model.position_heads import PositionHeadConfig
from longreach.positions.encodings import EncodingConfig, RopeConfig, Shape


@register("model", "transformer")
@dataclass(frozen=True, kw_only=True)
class TransformerConfig(LayerConfig):
    """A decoder-only transformer as GPT-NeoX has it, with every part to choose."""

    loops: Annotated[int, Bounds(high=10_000)] = 1
    """How often the layers are gone through, with the same weights every time."""
    inject: bool = False
    """Whether every round after the first begins with the embedded input added to the stream."""
    encoding: EncodingConfig = field(default_factory=RopeConfig)
    """How position IDs enter."""
    attention: AttentionConfig = field(default_factory=SoftmaxConfig)
    """How scores become weights."""
    position_head: PositionHeadConfig | None = None
    """How position IDs are predicted, for the ID policy `predicted`."""
    copy_head: bool = False
    """Whether the output may copy a token that was read instead of naming one of the vocabulary."""
    copy_scores: Literal["product", "cosine"] = "product"
    """Scores of the copy head: plain products, or cosines with a learned scale as in the position head `pointer`."""
    dependency_head: bool = False
    """A control: whether training also asks every state to point at the tokens that its answer token depends on.
    Nothing of it is fed back."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.loops < 1:
            raise ValueError(f"model.loops must be at least 1, got {self.loops}")
        if self.copy_scores == "cosine" and not self.copy_head:
            raise ValueError("model.copy_scores: cosine needs model.copy_head")
        if self.inject and self.loops == 1:
            raise ValueError("model.inject needs loops: a single round reads its input anyway")

    @property
    def depth(self) -> int:
        return self.layers * self.loops

    def build(self, vocab_size: int, level_sizes: tuple[int, ...], max_id: int) -> "Transformer":
        return Transformer(self, vocab_size, level_sizes, max_id)


class Transformer(Model):
    """Reads tokens with their IDs; `forward` gives hidden states, `logits` turns those asked for into scores."""

    config: TransformerConfig

    def __init__(
        self, config: TransformerConfig, vocab_size: int, level_sizes: tuple[int, ...] = (0,), max_id: int = 0
    ) -> None:
        super().__init__(config, vocab_size, len(level_sizes))
        self.shape = shape = Shape(config.width, config.heads, level_sizes, max_id)
        self.encoding = config.encoding.build(shape)
        if config.id_heads and not self.encoding.reaches_scores:
            raise BadInput(
                "model.id_heads look by IDs alone, which this encoding shows to the embeddings only: use rope"
            )
        self.blocks = nn.ModuleList(Block(config, config.attention.build(shape)) for _ in range(config.layers))
        head = config.position_head
        self.position_head = None if head is None else head.build(shape, self.encoding)
        self.copy_head = CopyHead(config.width, config.copy_scores == "cosine") if config.copy_head else None
        self.dependency_head = LookBack(config.width) if config.dependency_head else None

    def states(
        self,
        tokens: Int[Tensor, "b t"],
        ids: Int[Tensor, "b g t"],
        cache: Cache | None,
        slots: Int[Tensor, "b t"] | None,
        at: Int[Tensor, "b a"] | None = None,
        keep: Bool[Tensor, "b t t"] | None = None,
    ) -> Float[Tensor, "b _ w"]:
        inputs = self.layer_inputs(ids, cache, slots, keep)
        normed: Tensor = self.norm(self.run_layers(self.embedded(tokens, ids), inputs, at))
        return normed

    def embedded(self, tokens: Int[Tensor, "b t"], ids: Int[Tensor, "b g t"]) -> Float[Tensor, "b t w"]:
        """Embed tokens, and add what the encoding adds to embeddings."""
        embedded, position = self.embed_read(tokens), self.encoding.embed(ids)
        return embedded if position is None else embedded + position

    def layer_inputs(
        self,
        ids: Int[Tensor, "b g t"],
        cache: Cache | None,
        slots: Int[Tensor, "b t"] | None,
        keep: Bool[Tensor, "b t t"] | None,
    ) -> LayerInputs:
        """Compute once what all layers share: angles, masks and biases."""
        if cache is None or slots is None:
            mask = None if keep is None else _causal(keep)
            key_ids, origin = ids, ids[:, :, :1]
            visible = torch.arange(1, ids.shape[2] + 1, device=ids.device)[None]
        else:
            key_ids, origin = cache.key_ids[:, :, : cache.columns], cache.origin
            visible = slots + 1
            # the first tokens see only each other, causally
            mask = None if cache.columns == ids.shape[2] and not cache.fixed else cache.mask(slots)
        return LayerInputs(
            rotation=self.encoding.rotation(ids, origin),
            key_rotation=self.encoding.key_rotation(ids, origin),
            visible=visible,
            mask=mask,
            bias=self.encoding.score_bias(ids, key_ids),
            cache=cache,
            slots=slots,
        )

    def run_layers(
        self, x: Float[Tensor, "b t w"], inputs: LayerInputs, at: Int[Tensor, "b a"] | None
    ) -> Float[Tensor, "b _ w"]:
        """Apply all layers, as often as the model loops over them."""
        embedded, last = x, self.config.depth - 1
        for loop in range(self.config.loops):
            if loop and self.config.inject:
                x = x + embedded
            for number, block in enumerate(self.blocks):
                layer = loop * self.config.layers + number
                x = self.run_layer(block, x, inputs, layer, at if layer == last else None)
        return x

    def run_layer(
        self,
        block: nn.Module,
        x: Float[Tensor, "b t w"],
        inputs: LayerInputs,
        layer: int,
        at: Int[Tensor, "b a"] | None,
    ) -> Float[Tensor, "b _ w"]:
        """Apply one layer."""
        return block(x, inputs, layer, at)  # type: ignore[no-any-return]

    @contextmanager
    def exchange_encoding(self, config: EncodingConfig) -> Iterator[None]:
        """For a while, let IDs enter in another way, with the weights that were trained."""
        trained, other = self.encoding, config.build(self.shape).to(self.embed.weight.device)
        try:
            other.load_state_dict(trained.state_dict())
        except RuntimeError as error:
            raise BadInput(
                f"encoding {name_of(type(config))} has other weights than {name_of(type(self.config.encoding))},"
                " which the model was trained with"
            ) from error
        self.encoding = other
        try:
            yield
        finally:
            self.encoding = trained

    def new_cache(self, batch: int, slots: int) -> Cache:
        config = self.config
        shape = (config.depth, batch, config.groups, slots, config.head_dim)
        return Cache.empty(shape, self.levels, self.memory_size, like=self.embed.weight)

    @property
    def largest_id(self) -> int | None:
        """The last ID that the encoding and the position head have an entry for."""
        of_head = None if self.position_head is None else self.position_head.largest_id
        return min((last for last in (self.encoding.largest_id, of_head) if last is not None), default=None)


def _causal(keep: Bool[Tensor, "b t t"]) -> Bool[Tensor, "b 1 t t"]:
    """The keys that each token sees: itself, and those before it that `keep` leaves."""
    own = torch.eye(keep.shape[1], dtype=torch.bool, device=keep.device)
    return (keep.tril() | own)[:, None]
