"""Expressions in brackets, drawn by the recursion of Deletang et al. (ICLR 2023)."""

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn.functional import pad

from longreach.seeding import Draws

_SHARES = 30
"""Bits of the random number that splits an expression."""


def draw_expression(
    length: Int[Tensor, "b"], draws: Draws, width: int, modulus: int, operators: str, tokens: Mapping[str, int]
) -> tuple[Int[Tensor, "b {width}"], Int[Tensor, "b 1"]]:
    """Draw expressions of `length` tokens and return them, padded to `width`, with their values modulo `modulus`.

    An expression of 1 to 4 tokens is `d`, `-d`, `(d)` or `(-d)`.  A longer one is `(left operator right)`, where the
    size of `left` is uniform among those that leave at least one token for `right`.  Numbers and operators are uniform.
    """
    size, starts, rights = _split(length, draws, width)
    index = torch.arange(width + 1, device=length.device)
    inside = index < length[:, None]
    numbers = draws.below("numbers", modulus, width + 1)
    drawn = tokens[operators[0]] + draws.below("operators", len(operators), width + 1)

    # column `width` takes all that is not there
    leaf = (size > 0) & (size < 5)
    number_at = torch.where(leaf, index + size // 2, width)
    row = torch.where(inside, drawn, 0)
    row.scatter_(1, torch.where(leaf & (size % 2 == 0), number_at - 1, width), tokens["-"])
    row.masked_fill_(size > 2, tokens["("])
    row.scatter_(1, torch.where(size > 2, index + size - 1, width), tokens[")"])
    row.scatter_(1, number_at, tokens["0"] + numbers.gather(1, number_at))

    sign = torch.where(size % 2 == 0, -1, 1)
    value = pad(torch.where(leaf, sign * numbers.gather(1, number_at) % modulus, 0), (0, 1))
    between = row.gather(1, rights - 1)
    for node in reversed(range(starts.shape[1])):  # an operation stands in front of those inside it
        start, operator = starts[:, node, None], between[:, node, None]
        left, right = value.gather(1, start + 1), value.gather(1, rights[:, node, None])
        result = left + torch.where(operator == tokens["-"], -right, right)
        if "*" in operators:
            result = torch.where(operator == tokens["*"], left * right, result)
        value.scatter_(1, start, result % modulus)
    return row[:, :width], value[:, :1]


def _split(
    length: Int[Tensor, "b"], draws: Draws, width: int
) -> tuple[Int[Tensor, "b w"], Int[Tensor, "b n"], Int[Tensor, "b n"]]:
    """Split expressions into smaller ones down to 4 tokens or fewer.

    Returns the size of the expression that starts at each place (0: none does), the places where operations start,
    outer ones in front of inner ones, and the places where their right sides start.  `width` means no operation.
    """
    most = (width - 1) // 4  # an operation has 3 tokens of its own, and one more number than there are operations
    shares = draws.below("splits", 1 << _SHARES, most)
    size = torch.zeros(len(length), width + 1, dtype=torch.long, device=length.device)
    size[:, 0] = length
    starts = torch.full((len(length), most + 1), width, device=length.device)  # the last column is not used
    starts[:, 0] = torch.where(length > 4, 0, width)
    found = (length > 4).long()[:, None]
    rights = []
    for node in range(most):
        start = starts[:, node, None]
        whole = size.gather(1, start)
        there = whole > 4
        left = 1 + (shares[:, node, None] * (whole - 4).clamp(min=0) >> _SHARES)
        right_start = torch.where(there, start + 2 + left, width)
        rights.append(right_start)
        for begin, part in ((torch.where(there, start + 1, width), left), (right_start, whole - 3 - left)):
            size.scatter_(1, begin, part.masked_fill(~there, 0))
            longer = there & (part > 4)
            starts.scatter_(1, torch.where(longer, found, most), begin)
            found = found + longer
    return size, starts[:, :most], torch.cat(rights, dim=1) if rights else starts[:, :0]


def evaluate(words: Sequence[str], modulus: int) -> int | None:
    """Return the value of an expression such as `( ( - 1 + 2 ) * ( 3 ) )`, or None where the words are none."""
    parts: list[list[str | int]] = [[]]  # numbers are the values of pairs that are closed
    for word in words:
        if word == "(":
            parts.append([])
        elif word == ")":
            value = _value_of_pair(parts.pop(), modulus)
            if value is None or not parts:
                return None
            parts[-1].append(value)
        else:
            parts[-1].append(word)
    value, used = _operand(parts[0])
    return value % modulus if len(parts) == 1 and 0 < used == len(parts[0]) else None


def _value_of_pair(items: list[str | int], modulus: int) -> int | None:
    left, used = _operand(items)
    if 0 < used == len(items) and isinstance(items[-1], str):
        return left % modulus
    right, rest = _operand(items[used + 1 :])
    if not used or not rest or used + 1 + rest != len(items):
        return None
    results = {"+": left + right, "-": left - right, "*": left * right}
    operator = items[used]
    return results[operator] % modulus if isinstance(operator, str) and operator in results else None


def _operand(items: Sequence[str | int]) -> tuple[int, int]:
    """Return the number in front, with its sign, and how many items it takes: none where there is no number."""
    match items:
        case ["-", str() as word, *_] if word.isdigit():
            return -int(word), 2
        case [str() as word, *_] if word.isdigit():
            return int(word), 1
        case [int() as value, *_]:
            return value, 1
    return 0, 0


def most_operands(length: int) -> int:
    """Return the most numbers and signs, all tokens but brackets, that an expression of `length` tokens can have."""
    return length - 2 * -(-(length - 2) // 5)  # with n pairs of brackets there are at most 5n + 2 tokens
