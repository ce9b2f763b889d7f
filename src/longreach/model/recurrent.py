"""A recurrent reference: what a model does that reads once and keeps a state of fixed size."""

from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from longreach.config.registry import register
from longreach.errors import BadInput
from longreach.model.base import Model, ModelConfig
from longreach.model.block import at_places
from longreach.model.cache import Cache


@register("model", "recurrent")
@dataclass(frozen=True, kw_only=True)
class RecurrentConfig(ModelConfig):
    """Layers of gated recurrent units (Cho et al., EMNLP 2014), each after a norm and around a residual.

    It reads no position IDs and needs none: length is nothing to it, but all that it may need later must fit
    into its state.
    """

    def build(self, vocab_size: int, level_sizes: tuple[int, ...], max_id: int) -> "Recurrent":
        return Recurrent(self, vocab_size, len(level_sizes))


class Recurrent(Model):
    reads_ids = False

    def __init__(self, config: RecurrentConfig, vocab_size: int, levels: int) -> None:
        super().__init__(config, vocab_size, levels)
        self.norms = nn.ModuleList(config.new_norm() for _ in range(config.layers))
        self.units = nn.ModuleList(nn.GRU(config.width, config.width, batch_first=True) for _ in range(config.layers))

    def states(
        self,
        tokens: Int[Tensor, "b t"],
        ids: Int[Tensor, "b g t"],
        cache: Cache | None,
        slots: Int[Tensor, "b t"] | None,
        at: Int[Tensor, "b a"] | None = None,
        keep: Bool[Tensor, "b t t"] | None = None,
    ) -> Float[Tensor, "b _ w"]:
        if keep is not None:
            raise BadInput("a recurrent model has no keys to hide: keep is for attention")
        x, written = self.embed(tokens), []
        for layer, (norm, unit) in enumerate(zip(self.norms, self.units, strict=True)):
            before = cache.states[layer][None] if isinstance(cache, RecurrentCache) else None
            new, _ = unit(norm(x), before)  # a gated unit's output is its state
            written.append(new)
            x = x + new
        if isinstance(cache, RecurrentCache):
            cache.written = torch.stack(written)
        return self.norm(at_places(x, at))  # type: ignore[no-any-return]

    def new_cache(self, batch: int, slots: int) -> "RecurrentCache":
        like = self.embed.weight
        plain = Cache.empty((0, batch, 1, slots, 1), self.levels, self.memory_size, like)
        states = like.new_zeros(self.config.layers, batch, self.config.width)
        return RecurrentCache(**vars(plain), states=states, written=states[:, :, None])


@dataclass
class RecurrentCache(Cache):
    """The states after the tokens read so far, and no keys or values."""

    states: Float[Tensor, "units b w"] = field(kw_only=True)
    written: Float[Tensor, "units b t w"] = field(kw_only=True)
    """After each of the last tokens, padding included."""

    def advance(self, counts: Int[Tensor, "b"]) -> None:
        super().advance(counts)
        last = (counts - 1).clamp(min=0)[None, :, None, None].expand(len(self.states), -1, 1, self.states.shape[2])
        self.states.copy_(torch.where(counts[:, None] > 0, self.written.gather(2, last)[:, :, 0], self.states))
