"""A heat map: the median score over seeds, by two fields."""

import math
from collections.abc import Sequence
from statistics import median
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from longreach.errors import BadInput
from longreach.evaluation import Score
from longreach.reports.axes import QUARTERS, Size, make_panels, name_axes, set_titles, short_number, wrap
from longreach.reports.curves import Group
from longreach.reports.fields import Fields, named, select
from longreach.reports.figures import metric_name
from longreach.reports.load import Result
from longreach.reports.style import paper_style

_LEGIBLE = 15
"""Points that a rate needs in its cell."""

Place = tuple[str, str]
"""Values of x and y."""


@paper_style()
def heatmap_figure(
    results: Sequence[Result],
    metric: str | None = None,
    *,
    x: str = "length",
    y: str = "variant",
    panels: str | None = None,
    size: Size = "page",
) -> Figure:
    """Draw the median over seeds by the fields `x` and `y`; a third field that differs makes panels."""
    fields = Fields(results)
    for name in (x, y, panels):
        if name is not None:
            fields.check(name)
    if len({x, y, panels}) < 3:
        raise BadInput(
            f"a heat map needs different fields, got x={x}, y={y}" + (f", panels={panels}" * (panels is not None))
        )
    groups = select(results, metric)
    scores = [(one, score) for one in groups for curve in one.curves for score in curve.scores]
    panels = panels or _third(fields, scores, x, y)
    cells: dict[str, dict[Place, list[float]]] = {}
    for (panel, *place), found in _by_place(fields, scores, [panels, x, y]).items():
        _refuse_mixed(fields, found, [panels, x, y])
        cells.setdefault(panel, {})[place[0], place[1]] = [score.rate for _, score in found]
    columns = fields.order(x, [place[0] for panel in cells.values() for place in panel])
    rows = fields.order(y, [place[1] for panel in cells.values() for place in panel])
    trained = {one.trained_to for one in groups}
    boundary = trained.pop() if len(trained) == 1 and x == "length" else None
    names = fields.order(panels, list(cells)) if panels else [""]
    figure, axes = make_panels(len(names), size, narrowest=2.6 if len(columns) < 12 else 3.2)
    mesh: Any = None
    wrapped = [wrap(_number(row), 22 if size == "column" else 34) for row in rows]
    lines = max(text.count("\n") + 1 for text in wrapped)
    grid = axes[0].get_subplotspec().get_gridspec()
    letters = _letters_below(figure.get_figwidth(), grid.ncols, wrapped)
    below = x if boundary is None else "length (dashed: longest in training)"
    room = 0.65 + 0.12 * wrap(below, letters).count("\n")
    figure.set_figheight(grid.nrows * (room + len(rows) * (0.07 + 0.12 * lines)))
    for axis, name in zip(axes, names, strict=True):
        middle = {place: median(rates) for place, rates in cells[name].items()}
        mesh = _draw(axis, middle, columns, rows, boundary)
        axis.set_yticks(range(len(rows)), wrapped)
    if panels:
        set_titles(axes, [named(panels, name) for name in names], letters)
    name_axes(axes, below, "" if y == "variant" else y, letters)
    bar = figure.colorbar(mesh, ax=axes, fraction=0.05, aspect=18, pad=0.02)
    bar.outline.set_linewidth(0.6)
    bar.ax.tick_params(labelsize=7, width=0.6, length=2.5)
    height = 0.8 * (figure.get_figheight() - 0.6)
    bar.set_ticks(QUARTERS if height > 1 else (0, 0.5, 1))
    bar.formatter = FuncFormatter(lambda rate, _: f"{rate:g}")
    bar.set_label(wrap(metric_name(groups[0].metric), max(14, int(15 * height))))
    _finish(figure, axes, columns, rows)
    return figure


def _letters_below(width: float, columns: int, rows: Sequence[str]) -> int:
    """Return how many letters fit under a panel, beside the names of rows and the bar of colours."""
    names = max(len(line) for row in rows for line in row.split("\n"))
    return max(12, int(14 * (width - 0.7 - names / 17) / columns))


Scores = Sequence[tuple[Group, Score]]


def _by_place(
    fields: Fields, scores: Scores, names: Sequence[str | None]
) -> dict[tuple[str, ...], list[tuple[Group, Score]]]:
    found: dict[tuple[str, ...], list[tuple[Group, Score]]] = {}
    for one, score in scores:
        place = tuple(fields.value(one, score, name) if name else "" for name in names)
        found.setdefault(place, []).append((one, score))
    return found


def _differing(fields: Fields, scores: Scores, names: Sequence[str | None]) -> list[str]:
    """Return the fields besides `names` that differ among scores of one cell."""
    others = [name for name in ("variant", "length", *fields.of_task) if name not in names]
    return [name for name in others if len({fields.value(one, score, name) for one, score in scores}) > 1]


def _third(fields: Fields, scores: Scores, x: str, y: str) -> str | None:
    """Return the field that makes panels because scores of one cell differ in it."""
    cells = _by_place(fields, scores, [x, y]).values()
    return next((name for cell in cells for name in _differing(fields, cell, [x, y])), None)


def _refuse_mixed(fields: Fields, scores: Scores, names: Sequence[str | None]) -> None:
    """Raise BadInput for a median over different questions, which would answer none."""
    differing = _differing(fields, scores, names)
    if differing:
        raise BadInput(f"scores that differ in {' and '.join(differing)} meet in one cell: lay x, y or panels over it")


def _draw(axis: Any, cells: dict[Place, float], columns: list[str], rows: list[str], boundary: int | None) -> Any:
    values = [[cells.get((column, row), math.nan) for column in columns] for row in rows]
    edges = [number - 0.5 for number in range(len(columns) + 1)], [number - 0.5 for number in range(len(rows) + 1)]
    mesh = axis.pcolormesh(*edges, values, cmap="viridis", vmin=0, vmax=1, edgecolors="white", linewidth=0.6)
    axis.grid(visible=False)
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    axis.set(xlim=(edges[0][0], edges[0][-1]), ylim=(edges[1][-1], edges[1][0]))
    if boundary is not None and int(columns[0]) <= boundary < int(columns[-1]):
        place = sum(int(column) <= boundary for column in columns) - 0.5
        axis.axvline(place, color="#D55E00", lw=1.2, ls=(0, (3, 1.5)))
    return mesh


def _finish(figure: Figure, axes: Sequence[Any], columns: list[str], rows: list[str]) -> None:
    """Label columns so that nothing overprints, and write rates into cells that are wide enough."""
    names = [_number(column) for column in columns]
    axes[0].set_xticks(range(len(names)), names)
    figure.draw_without_rendering()
    for axis in axes:
        width = 72 * axis.get_position().width * figure.get_figwidth() / len(names)
        turned = max(len(name) for name in names) * 4.6 > width
        step = math.ceil(8.5 / width) if turned else 1
        axis.set_xticks(range(0, len(names), step), names[::step], rotation=90 if turned else 0)
        if width < _LEGIBLE:
            continue
        values = axis.collections[0].get_array().filled(math.nan)
        for row in range(len(rows)):
            for column in range(len(columns)):
                rate = float(values.reshape(len(rows), len(columns))[row, column])
                if math.isfinite(rate):
                    bright = "black" if rate > 0.55 else "white"
                    axis.text(column, row, _rate(rate), ha="center", va="center", fontsize=6, color=bright)


def _rate(rate: float) -> str:
    """Return two digits; only 0 and 1 themselves are written as such."""
    if rate in (0, 1):
        return f"{rate:.0f}"
    return {"0.00": "<.01", "1.00": ">.99"}.get(text := f"{rate:.2f}", text[1:])


def _number(text: str) -> str:
    return short_number(int(text)) if text.isdigit() else text
