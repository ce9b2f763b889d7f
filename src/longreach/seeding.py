"""Named random streams.  Every random number is a function of its address, so a sample is the same
on every device, in every batch split and after every resume, and no global generator is touched.

The numbers are SplitMix64: number c of a stream is mix(key + (c + 1) * GOLDEN), which needs no state
and so can be computed for any column at once.  All arithmetic is on int64 and wraps around.
"""

import hashlib
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

_GOLDEN = 0x9E3779B97F4A7C15
_MIX1 = 0xBF58476D1CE4E5B9
_MIX2 = 0x94D049BB133111EB
_WORD = 1 << 64


@dataclass(frozen=True)
class Draws:
    """Random numbers for a batch of samples, each sample with its own key."""

    key: Int[Tensor, "b"]

    def bits(self, purpose: str, columns: int) -> Int[Tensor, "b {columns}"]:
        """64 random bits per column.  A column does not depend on how many columns are asked for."""
        steps = torch.arange(1, columns + 1, device=self.key.device) * _signed(_GOLDEN)
        return _mix_((self.key ^ _name_key(purpose))[:, None] + steps)

    def below(self, purpose: str, high: "int | Int[Tensor, '#b #c']", columns: int) -> Int[Tensor, "b {columns}"]:
        """Integers in [0, high), high < 2**31; no value is favoured by more than high / 2**32."""
        return (_shift_right(self.bits(purpose, columns), 32) * high) >> 32

    def at(self, column: Int[Tensor, "b n"], high: int) -> Int[Tensor, "b n"]:
        """Integers in [0, high) as a function of the column: a random table, of which only these entries are made."""
        return (_shift_right(_mix_(self.key[:, None] + (column + 1) * _signed(_GOLDEN)), 32) * high) >> 32

    def uniform(self, purpose: str, columns: int) -> Float[Tensor, "b {columns}"]:
        """Doubles in [0, 1), all 53 bits random."""
        return _shift_right(self.bits(purpose, columns), 11).double() * 2.0**-53

    def rows(self, start: int, stop: int) -> "Draws":
        """The numbers of some of the samples."""
        return Draws(self.key[start:stop])

    def child(self, name: str) -> "Draws":
        """An independent stream for the same samples."""
        return Draws(_mix_(self.key ^ _name_key(name)))


def stream(seed: "int | Int[Tensor, 'b']", name: str, samples: Int[Tensor, "b"]) -> Draws:
    """The stream `name` of a run.  `samples` numbers the samples within the stream; each may have its own seed."""
    if isinstance(seed, Tensor):
        root = _mix_(seed * _signed(_GOLDEN) ^ _name_key(name))
    else:
        first = _signed(seed * _GOLDEN % _WORD) ^ _name_key(name)
        root = _mix_(torch.full((1,), first, device=samples.device))  # a fill, not a copy from the host
    return Draws(_mix_(root + samples.long() * _signed(_MIX2)))


def derived_seed(seed: int, name: str) -> int:
    """Return the seed of a purpose of a run: below 2**63, and another one for every seed and name."""
    return _name_key(f"{seed}/{name}") % (1 << 63)


def generator(seed: int, name: str) -> torch.Generator:
    """A torch generator for what needs one (initial weights).  Always on the CPU: equal on every device."""
    return torch.Generator().manual_seed((seed * _GOLDEN ^ _name_key(name)) % (1 << 63))


def _name_key(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little", signed=True)


def _signed(word: int) -> int:
    return word - _WORD if word >= _WORD // 2 else word


def _shift_right(z: Tensor, count: int) -> Tensor:
    # torch shifts int64 arithmetically; the mask removes the copies of the sign
    return (z >> count).bitwise_and_((1 << (64 - count)) - 1)


def _mix_(z: Tensor) -> Tensor:
    """SplitMix64's finalizer, in place."""
    z.bitwise_xor_(_shift_right(z, 30)).mul_(_signed(_MIX1))
    z.bitwise_xor_(_shift_right(z, 27)).mul_(_signed(_MIX2))
    return z.bitwise_xor_(_shift_right(z, 31))
