"""Rates of one metric as rows and columns."""

from collections.abc import Callable, Sequence
from statistics import mean, median
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from longreach.errors import BadInput

SUMMARIES: dict[str, Callable[[list[float]], float]] = {"median": median, "worst": min, "mean": mean}
"""What becomes of several runs in one place."""


def pivot(
    cells: pa.Table,
    rows: Sequence[str],
    column: str,
    metric: str,
    summary: str = "median",
    variants: Sequence[str] = (),
) -> pa.Table:
    """Return a row for each combination of the `rows` and a column for each value of `column`.

    `runs` counts how many runs a row comes from.  Rows of `variants` come first, in this order.
    """
    found = cells.filter(pc.equal(cells["metric"], metric))
    keys = zip(*(found[name].to_pylist() for name in rows), strict=True)
    places: dict[tuple[Any, ...], dict[Any, dict[str, float]]] = {}
    others = (found[name].to_pylist() for name in (column, "rate", "run"))
    for key, at, rate, run in zip(keys, *others, strict=True):
        place = places.setdefault(key, {}).setdefault(at, {})
        if run in place:  # a median over different questions would answer none
            raise BadInput(f"{run} has several rates in one place: {_differing(found, run, [*rows, column])}")
        place[run] = rate
    ranks = {name: place for place, name in enumerate(variants)}
    order = sorted(places, key=lambda key: [(ranks.get(value, len(ranks)), *_rank(value)) for value in key])
    table: dict[str, list[Any]] = {name: [key[i] for key in order] for i, name in enumerate(rows)}
    table["runs"] = [len(set().union(*places[key].values())) for key in order]
    for at in sorted({at for place in places.values() for at in place}, key=_rank):
        rates = [[*places[key].get(at, {}).values()] for key in order]
        table[str(at)] = [SUMMARIES[summary](several) if several else None for several in rates]
    return pa.table(table)


def _differing(cells: pa.Table, run: str, used: Sequence[str]) -> str:
    """What else differs among the cells of a run."""
    own = cells.filter(pc.equal(cells["run"], run))
    others = [name for name in own.column_names if name not in (*used, "hits", "samples", "rate")]
    names = [name for name in others if len(pc.unique(own[name])) > 1]
    return f"tell them apart by {', '.join(names)}, among the rows or in a condition"


def _rank(value: Any) -> tuple[int, Any]:
    """Numbers in their order, then text, then what is missing."""
    return (2, "") if value is None else (1, value) if isinstance(value, str) else (0, value)
