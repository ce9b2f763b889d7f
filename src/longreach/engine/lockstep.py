"""Generation for prompts of equal length: all rows write the same column, which the host knows.

A step of a small model on a CPU takes as long as Python takes to launch its operations.  Here slices replace scattered
writes, no key is masked, and queries and keys are rotated in one go.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from longreach.attention import Attention
from longreach.decoding import Writing, write_answers
from longreach.engine.twins import Swap, make_twin
from longreach.model import Cache
from longreach.model.block import LayerInputs, SelfAttention
from longreach.positions.encodings import rotate


class LockstepCache(Cache):
    """A cache whose rows have all filled their first `columns` slots."""

    def place(self, ids: Int[Tensor, "b g t"]) -> Int[Tensor, "b t"]:
        first, count = self.columns, ids.shape[2]
        self.columns += count
        self.key_ids.narrow(2, first, count).copy_(ids)
        return torch.arange(first, self.columns, device=ids.device).expand(len(ids), -1)

    def write(self, layer: int, slots: Int[Tensor, "b t"], keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        count = keys.shape[2]
        all_keys, all_values = self.keys[layer], self.values[layer]
        all_keys.narrow(2, self.columns - count, count).copy_(keys)
        all_values.narrow(2, self.columns - count, count).copy_(values)
        return all_keys.narrow(2, 0, self.columns), all_values.narrow(2, 0, self.columns)

    def remember(self, slots: Int[Tensor, "b t"], memory: Float[Tensor, "b t m"]) -> None:
        self.memory.narrow(1, self.columns - memory.shape[1], memory.shape[1]).copy_(memory)

    def advance(self, counts: Int[Tensor, "b"]) -> None:
        """Do nothing: `place` has counted the tokens."""


class LockstepWriting(Writing):
    """Answers whose prompts are equally long.  A finished row goes on reading; nothing of it is written."""

    def __init__(self, writing: Writing, cache: Cache) -> None:
        """Share everything with `writing`, but for the cache."""
        self.__dict__ = writing.__dict__
        self.rows = slice(None)
        self.lockstep = self.cache = LockstepCache(**vars(cache))

    @property
    def here(self) -> int:
        return self.lockstep.columns

    def advance(self) -> None:
        self.at += 1


class LockstepAttention(SelfAttention):
    """Self-attention of one new token per row, which sees all keys."""

    def turned(
        self, qkv: Float[Tensor, "b t wide"], inputs: LayerInputs
    ) -> tuple[Float[Tensor, "b h t d"], Float[Tensor, "b kv t d"], Float[Tensor, "b kv t d"]]:
        b, t, _ = qkv.shape
        alike = inputs.key_rotation is None and self.id_heads is None and isinstance(self.norm_q, nn.Identity)
        if t > 1 or inputs.rotation is None or not alike:
            return super().turned(qkv, inputs)
        shared = self.heads // self.groups
        cos, sin = (part.expand(-1, -1, shared + 1, -1) for part in inputs.rotation)
        q_k, v = torch.split(qkv.view(b, self.groups, shared + 2, -1), [shared + 1, 1], dim=2)
        q, k = torch.split(rotate(q_k, (cos, sin)), [shared, 1], dim=2)
        return q.reshape(b, self.heads, 1, -1), k, v

    def mixed(
        self,
        q: Float[Tensor, "b h t d"],
        k: Float[Tensor, "b kv t d"],
        v: Float[Tensor, "b kv t d"],
        x: Float[Tensor, "b t w"] | None,
        inputs: LayerInputs,
        layer: int,
    ) -> Float[Tensor, "b t w"]:
        if q.shape[2] > 1 or not isinstance(inputs.cache, LockstepCache) or not self._sees_all(inputs):
            return super().mixed(q, k, v, x, inputs, layer)
        assert inputs.slots is not None
        keys, values = inputs.cache.write(layer, inputs.slots, k, v)
        if self.groups < self.heads:
            keys, values = (part.repeat_interleave(self.heads // self.groups, dim=1) for part in (keys, values))
        q = self.mix.rescale(q, inputs.visible, x)
        scores = torch.bmm(q.flatten(0, 1), keys.flatten(0, 1).transpose(1, 2)).mul_(q.shape[3] ** -0.5)
        return torch.bmm(scores.softmax(-1), values.flatten(0, 1)).view(len(q), 1, -1)

    def _sees_all(self, inputs: LayerInputs) -> bool:
        """Return whether attention is a softmax over all keys."""
        mix = self.mix
        return inputs.bias is None and mix.fused and not mix.hides and type(mix).forward is Attention.forward


def write_in_lockstep(writing: Writing) -> None:
    """Write answers as `write_answers` does; where prompts are equally long, all rows write the same column."""
    cache, prompts = writing.cache, writing.prompt.prompt_tokens
    if type(cache) is Cache and bool((prompts == prompts[0]).all()):
        writing.model = make_twin(writing.model, _swap)
        writing = LockstepWriting(writing, cache)
    write_answers(writing)


def _swap(module: nn.Module) -> Swap | None:
    return Swap(LockstepAttention, {}) if isinstance(module, SelfAttention) else None
