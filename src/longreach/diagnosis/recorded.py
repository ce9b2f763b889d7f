"""A user's own samples: a JSONL file of token ids with answers."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from jaxtyping import Int
from torch import Tensor

from longreach.errors import BadInput
from longreach.seeding import Draws, stream
from longreach.tasks import Form, Level, Sample, Task, build_sample

_LONGEST, _LARGEST = 10**6, 1 << 31


@dataclass(frozen=True)
class RecordedSample:
    tokens: list[int]
    answer: list[int]
    length: int
    ids: list[list[int]]
    """Levels of coupled IDs over tokens and answer; empty where the file has none."""


def read_rows(path: Path) -> list[RecordedSample]:
    """One object a line: `tokens` and `answer`, lists of numbers from 0; optionally `length` (without it the number of
    tokens) and `ids`, one number for each token and answer token, or several such lists."""
    rows = []
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"cannot read {path}: {error}") from error
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                rows.append(_row(json.loads(line)))
            except (ValueError, TypeError, AttributeError, RecursionError) as error:
                raise BadInput(f"{path}, line {number}: {error}") from error
    if len({len(row.ids) for row in rows}) > 1:
        raise BadInput(f"{path}: either all rows have ids, with as many levels, or none has")
    if len(rows) < 64:
        raise BadInput(f"{path} has {len(rows)} rows: too few to learn from, 64 are the least and thousands are better")
    return rows


def _row(content: object) -> RecordedSample:
    if not isinstance(content, dict):
        raise ValueError("expected an object with tokens and answer")
    for name in content:
        if name not in ("tokens", "answer", "length", "ids"):
            raise ValueError(f"unknown field {name!r}: tokens, answer, length and ids are known")
    tokens, answer = (_numbers(content, name) for name in ("tokens", "answer"))
    length = content.get("length", len(tokens))
    if type(length) is not int or not 1 <= length <= _LONGEST:
        raise ValueError(f"length must be a whole number from 1 to {_LONGEST}, got {length!r}")
    return RecordedSample(tokens, answer, length, _levels(content.get("ids", []), len(tokens) + len(answer)))


def _levels(ids: object, size: int) -> list[list[int]]:
    """One list or several, each with an ID for every token: 1, 2, ... without gaps, and 0 for those that have none."""
    if not isinstance(ids, list):
        raise ValueError("ids must be a list, or a list of lists")
    several = ids and isinstance(ids[0], list)
    levels = [_numbers({"ids": level}, "ids") for level in (ids if several or not ids else [ids])]
    for level in levels:
        if len(level) != size:
            raise ValueError(f"ids must be {size}, one for each token and answer token, got {len(level)}")
        used = set(level) - {0}
        if used != set(range(1, len(used) + 1)) or not used:
            raise ValueError("ids must count from 1 without gaps; 0 is for tokens that have none")
    return levels


def _numbers(content: dict[str, object], name: str) -> list[int]:
    values = content.get(name)
    if not isinstance(values, list) or not values or not all(type(x) is int and 0 <= x < _LARGEST for x in values):
        raise ValueError(f"{name} must be a list of whole numbers from 0 and below 2**31, not empty")
    return values


@dataclass(frozen=True, kw_only=True, eq=False)
class Recorded(Task):
    """Rows of a file as a task: a sample of a length is one of the rows that have it."""

    rows: Sequence[RecordedSample]
    known: tuple[int, ...]
    """The file's tokens in order; the k-th is token k + 1 here, since 0 is padding."""

    @property
    def name(self) -> str:
        return "recorded"

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        return ("_", *map(str, self.known))

    @cached_property
    def by_length(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for number, row in enumerate(self.rows):
            found.setdefault(row.length, []).append(number)
        return dict(sorted(found.items()))

    @property
    def coupling_levels(self) -> tuple[Level, ...]:
        return tuple(Level(f"ids {number + 1}") for number in range(len(self.rows[0].ids)))

    def check_length(self, length: int) -> None:
        if length not in self.by_length:
            raise BadInput(f"there is no row of length {length}")

    def max_tokens(self, length: int) -> int:
        return max(len(r.tokens) + len(r.answer) for r in self.rows if r.length <= length)

    def max_answer(self, length: int) -> int:
        return max(len(r.answer) for r in self.rows if r.length <= length)

    @cached_property
    def _table(self) -> tuple[Tensor, Tensor, Tensor]:
        """Tokens, prompt sizes and whole sizes of all rows; the rows of each length stand together."""
        numbers = {token: number + 1 for number, token in enumerate(self.known)}
        width = self.max_tokens(max(self.by_length))
        lines = [[numbers[token] for token in (*row.tokens, *row.answer)] for row in self.rows]
        tokens = torch.tensor([line + [0] * (width - len(line)) for line in lines])
        prompts = torch.tensor([len(row.tokens) for row in self.rows])
        return tokens, prompts, torch.tensor([len(line) for line in lines])

    @cached_property
    def _places(self) -> tuple[Tensor, Tensor, Tensor]:
        """All rows in the order of their lengths; by length, where its rows begin and how many there are."""
        order = torch.tensor([number for numbers in self.by_length.values() for number in numbers])
        counts = torch.zeros(max(self.by_length) + 1, dtype=torch.long)
        for length, numbers in self.by_length.items():
            counts[length] = len(numbers)
        return order, counts.cumsum(0) - counts, counts

    def sample(self, length: Int[Tensor, "b"], draws: Draws, max_length: int) -> Sample:
        order, first, count = (part.to(length.device) for part in self._places)
        chosen = order[first[length] + draws.below("row", count[length][:, None], 1)[:, 0]]
        tokens, prompts, sizes = (part.to(length.device)[chosen] for part in self._table)
        width = self.max_tokens(max_length)
        return build_sample(tokens[:, :width], length, prompts, sizes, hidden={"number": chosen})

    def coupling(self, sample: Sample, form: Form) -> Int[Tensor, "b g t"]:
        width = sample.tokens.shape[1]
        rows = [self.rows[number].ids for number in sample.hidden["number"].tolist()]
        return torch.tensor([[level + [0] * (width - len(level)) for level in levels] for levels in rows])


def split(rows: Sequence[RecordedSample], held_out: float = 0.2) -> tuple[Recorded, Recorded]:
    """Rows to learn from and rows to test on: no prompt is in both, and every length is."""
    known = tuple(sorted({token for row in rows for token in (*row.tokens, *row.answer)}))
    prompts = sorted({tuple(row.tokens) for row in rows})
    lot = stream(0, "diagnose split", torch.arange(len(prompts))).uniform("lot", 1)[:, 0].tolist()
    tested = {prompt for prompt, number in zip(prompts, lot, strict=True) if number < held_out}
    parts = [row for row in rows if tuple(row.tokens) not in tested], [r for r in rows if tuple(r.tokens) in tested]
    common = {row.length for row in parts[0]} & {row.length for row in parts[1]}
    learnt, kept = ([row for row in part if row.length in common] for part in parts)
    if not common:
        raise BadInput("rows must have several prompts of each length, so that some can be held out")
    return Recorded(rows=learnt, known=known), Recorded(rows=kept, known=known)
