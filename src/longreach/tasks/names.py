"""Names, for tasks whose tokens stand for things: how they are written, and drawn without repetition."""

import math

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from longreach.seeding import Draws

LAST = torch.iinfo(torch.int64).max
"""A key that sorts behind every random key."""
_SHUFFLED = 512
_ROUNDS = 8


def letters(number: int) -> str:
    """a, b, ..., z, aa, ab, ..."""
    word = ""
    while number >= 0:
        word = chr(ord("a") + number % 26) + word
        number = number // 26 - 1
    return word


def smallest(keys: Int[Tensor, "b n"], count: int) -> Int[Tensor, "b {count}"]:
    """Indices of the smallest keys, in their order: `count` distinct indices at random."""
    return keys.topk(count, dim=1, largest=False).indices


def distinct(draws: Draws, purpose: str, among: int, count: int) -> Int[Tensor, "b {count}"]:
    """`count` different numbers below `among` at random, in random order; few of many are as cheap as few of few.

    Few numbers are shuffled.  Many are permuted by a Feistel network on a grid of rows and columns, with random rounds:
    each number 0, 1, 2, ... goes to a cell of its own (Black and Rogaway, CT-RSA 2002).
    """
    if among <= _SHUFFLED:
        return smallest(draws.bits(purpose, among), count)
    rows = math.isqrt(among)
    columns = -(-among // rows)
    spare = rows * columns - among  # cells that stand for no number: fewer than there are rows
    cell = torch.arange(count + spare, device=draws.key.device)
    row, column = (cell % rows).expand(len(draws.key), -1), (cell // rows).expand(len(draws.key), -1)
    for number in range(_ROUNDS):
        rounds = draws.child(f"{purpose} {number}")
        if number % 2:
            row = (row + rounds.at(column, rows)) % rows
        else:
            column = (column + rounds.at(row, columns)) % columns
    cell = row * columns + column
    order = (cell >= among).to(torch.uint8).argsort(dim=1, stable=True)[:, :count]  # those that stand for a number
    return cell.gather(1, order)


def distinct_besides(
    draws: Draws, purpose: str, among: int, count: int, taken: Int[Tensor, "b m"], is_taken: Bool[Tensor, "b m"]
) -> Int[Tensor, "b {count}"]:
    """As `distinct`, and none of those that are taken; where there are too few, taken ones stand last."""
    m = taken.shape[1]
    fresh = distinct(draws, purpose, among, min(count + m, among))
    known = taken.masked_fill(~is_taken, LAST).sort(dim=1).values
    met = known.gather(1, torch.searchsorted(known, fresh).clamp(max=m - 1)) == fresh
    return fresh.gather(1, met.to(torch.uint8).argsort(dim=1, stable=True)[:, :count])


def renew(
    names: Int[Tensor, "b n"], keep: Bool[Tensor, "b n"], num_names: int, draws: Draws, purpose: str
) -> Int[Tensor, "b n"]:
    """Other names where `keep` is False, by the law of distinct names given the kept ones."""
    rank = ((~keep).cumsum(1) - 1).clamp(min=0)  # no more are used than are renewed
    fresh = distinct_besides(draws, purpose, num_names, names.shape[1], names, keep)
    return torch.where(keep, names, fresh.gather(1, rank))
