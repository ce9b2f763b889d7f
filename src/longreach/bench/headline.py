"""`benchmarks/results/headline.json`: one row for each aim, the newest figure of each."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from longreach.bench.comparison import ComparisonRow, SpeedComparison
from longreach.bench.lengths import EVALUATION, TRAINING, Figures, LengthReport
from longreach.bench.machine import MEMORY_ON_GPU
from longreach.bench.recipes import OURS, RecipeReport
from longreach.system.files import read_json, write_atomically

HEADLINE = Path("benchmarks") / "results" / "headline.json"


@dataclass(frozen=True)
class Stamp:
    """Where figures come from."""

    device: str
    command: str
    commit: str
    date: str

    def to_json(self) -> dict[str, str]:
        return asdict(self)


@dataclass(frozen=True)
class HeadlineRow:
    name: str
    device: str
    ours: float
    theirs: float | None
    unit: str
    """Of ours and theirs."""
    ratio: float | None
    floor_share: float | None
    """Ours; None where the operations cannot be counted."""
    command: str
    commit: str
    date: str


def headline_rows(found: SpeedComparison | LengthReport | RecipeReport, stamp: Stamp) -> list[HeadlineRow]:
    """A row for each rival, or one for ours alone; by length, for each kind of work, one at its longest length,
    and on a GPU one about its memory; of recipes a row for each number of models and each rival."""
    if isinstance(found, RecipeReport):
        return list(_of_recipes(found, stamp))
    if isinstance(found, LengthReport):
        return list(_of_lengths(found, stamp))
    ours, *rivals = found.rows
    if not rivals:
        return [_row(found.name, ours, None, None, stamp, found.unit)]
    return [_row(f"{found.name} against {rival.side}", ours, rival, rival.ratio, stamp, found.unit) for rival in rivals]


def _of_lengths(found: LengthReport, stamp: Stamp) -> Iterator[HeadlineRow]:
    measured = {(row.side, row.length): row.figures for row in found.rows if row.figures is not None}
    for side in (EVALUATION, TRAINING):
        longest = max((length for name, length in measured if name == side), default=None)
        if longest is None:
            continue
        ours, theirs = measured[side, longest], measured.get((f"hf {side}", longest))
        ratio = None if theirs is None else ours.tokens_per_second / theirs.tokens_per_second
        speed = _row(f"{found.name}: {side} of {longest} tokens", ours, theirs, ratio, stamp)
        yield speed
        if found.memory == MEMORY_ON_GPU:
            yield _memory(speed, ours.memory, None if theirs is None else theirs.memory)


def _of_recipes(found: RecipeReport, stamp: Stamp) -> Iterator[HeadlineRow]:
    alone = {row.recipe: row for row in found.rows if row.side == OURS and row.models == 1}
    for row in found.rows:
        ours = row if row.side == OURS else alone.get(row.recipe)
        if ours is None:
            continue
        theirs = None if row is ours else row
        models = "one model" if row.models == 1 else f"{row.models} models"
        yield HeadlineRow(
            name=f"recipe {row.recipe}, {models}{'' if theirs is None else f' against {theirs.side}'}",
            device=stamp.device,
            ours=ours.model_steps_per_second,
            theirs=None if theirs is None else theirs.model_steps_per_second,
            unit="model steps/s",
            ratio=None if theirs is None or theirs.ratio is None else 1 / theirs.ratio,
            floor_share=ours.floor_share,
            command=stamp.command,
            commit=stamp.commit,
            date=stamp.date,
        )
    for whole in found.whole:
        yield HeadlineRow(
            name=f"longreach run {whole.recipe}, {whole.steps} steps",
            device=stamp.device,
            ours=whole.end,
            theirs=None,
            unit="seconds",
            ratio=None,
            floor_share=None,
            command=stamp.command,
            commit=stamp.commit,
            date=stamp.date,
        )


def _memory(speed: HeadlineRow, ours: int, theirs: int | None) -> HeadlineRow:
    """Beside a row about speed: how much memory it took, and how many times as much theirs."""
    return replace(
        speed,
        name=f"{speed.name}, memory",
        ours=ours / 2**30,
        theirs=None if theirs is None else theirs / 2**30,
        unit="GiB",
        ratio=None if theirs is None else theirs / ours,
    )


def _row(
    name: str,
    ours: ComparisonRow | Figures,
    theirs: ComparisonRow | Figures | None,
    ratio: float | None,
    stamp: Stamp,
    unit: str = "tokens/s",
) -> HeadlineRow:
    def figure(row: ComparisonRow | Figures) -> float:
        return row.seconds if unit == "seconds" else row.tokens_per_second

    return HeadlineRow(
        name=name,
        device=stamp.device,
        ours=figure(ours),
        theirs=None if theirs is None else figure(theirs),
        unit=unit,
        ratio=ratio,
        floor_share=ours.floor_share,
        command=stamp.command,
        commit=stamp.commit,
        date=stamp.date,
    )


def update_headline(path: Path, rows: Iterable[HeadlineRow]) -> None:
    """Put rows in the place of those with the same name and device, or after all others."""
    known: list[dict[str, object]] = []
    if path.exists():
        known = read_json(path, lambda rows: [{"name": row["name"], "device": row["device"], **row} for row in rows])
    table = {(row["name"], row["device"]): row for row in known}
    table |= {(row.name, row.device): asdict(row) for row in rows}
    lines = ",\n".join(json.dumps(row) for row in table.values())
    write_atomically(path, f"[\n{lines}\n]\n".encode())
