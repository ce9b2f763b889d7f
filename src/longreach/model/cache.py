"""Keys and values of the tokens read so far.  Rows may have read different numbers of tokens."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


@dataclass
class Cache:
    """Fixed buffers; row b has filled its first `filled[b]` slots.

    `columns` bounds the slots in use and is known to the host, so that attention reads no more than it must
    and nothing waits for the device.
    """

    keys: Float[Tensor, "layers b h slots d"]
    values: Float[Tensor, "layers b h slots d"]
    key_ids: Int[Tensor, "b g slots"]
    memory: Float[Tensor, "b slots m"]
    """What heads that look back keep of every token; empty without one."""
    filled: Int[Tensor, "b"]
    columns: int = 0
    fixed: bool = False
    """Whether attention looks at all slots in every step, so that shapes stay the same."""

    def fix(self) -> None:
        """From now on look at all slots; masks hide what is not filled."""
        self.columns, self.fixed = self.key_ids.shape[2], True

    @classmethod
    def empty(cls, shape: tuple[int, int, int, int, int], levels: int, memory: int, like: Tensor) -> "Cache":
        """`shape` is that of `keys`."""
        _, batch, _, slots, _ = shape
        return cls(
            keys=like.new_zeros(shape),
            values=like.new_zeros(shape),
            key_ids=torch.zeros(batch, levels, slots, dtype=torch.long, device=like.device),
            memory=like.new_zeros(batch, slots, memory),
            filled=torch.zeros(batch, dtype=torch.long, device=like.device),
        )

    @property
    def origin(self) -> Int[Tensor, "b g 1"]:
        """The ID from which all angles of a sequence are counted: its first token's."""
        return self.key_ids[:, :, :1]

    def place(self, ids: Int[Tensor, "b g t"]) -> Int[Tensor, "b t"]:
        """Take up the IDs of new tokens and say which slots the tokens get."""
        count = ids.shape[2]
        slots = self.filled[:, None] + torch.arange(count, device=ids.device)
        if not self.fixed:
            self.columns += count
        if self.columns > self.key_ids.shape[2]:
            raise ValueError(f"cache has {self.key_ids.shape[2]} slots, {self.columns} needed")
        self.key_ids.scatter_(2, slots[:, None].expand_as(ids), ids)
        return slots

    def write(self, layer: int, slots: Int[Tensor, "b t"], keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Store one layer's new keys and values [b, h, t, d]; returns all slots in use."""
        at = slots[:, None, :, None].expand_as(keys)
        self.keys[layer].scatter_(2, at, keys.to(self.keys.dtype))
        self.values[layer].scatter_(2, at, values.to(self.values.dtype))
        return self.keys[layer][:, :, : self.columns], self.values[layer][:, :, : self.columns]

    def remember(self, slots: Int[Tensor, "b t"], memory: Float[Tensor, "b t m"]) -> None:
        """Store what heads that look back keep of new tokens."""
        self.memory.scatter_(1, slots[..., None].expand_as(memory), memory.to(self.memory.dtype))

    def mask(self, slots: Int[Tensor, "b t"]) -> Bool[Tensor, "b 1 t k"]:
        """Each new token sees the slots up to its own."""
        return torch.arange(self.columns, device=slots.device) <= slots[:, None, :, None]

    def advance(self, counts: Int[Tensor, "b"]) -> None:
        """Count what was written as read; less than was written where rows were padded."""
        self.filled += counts
