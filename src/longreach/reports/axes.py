"""Parts of figures: panels, axes of lengths whose ticks never overprint, legends that cover no curve."""

import math
import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, Locator, NullLocator

from longreach.errors import BadInput, argument
from longreach.reports.style import WIDTHS
from longreach.system.labels import label

Size = Literal["column", "page"]
Scale = Literal["log", "linear"]

_TICK = 7.0
"""Font size of tick labels, in points."""
_LINE = 0.14
"""Inches of a line of a title."""


def choose(name: str, value: str, known: Sequence[str]) -> None:
    """Raise BadInput if an argument has a value that is not known."""
    if value not in known:
        raise BadInput(f"unknown {argument(name, value)}: choose {_either(known)}")


def _either(names: Sequence[str]) -> str:
    return " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))


QUARTERS = (0, 0.25, 0.5, 0.75, 1)


class LengthLocator(Locator):
    """Ticks at tested lengths: the first, the last, and others as far as their labels fit."""

    def __init__(self, lengths: Iterable[int]) -> None:
        self.lengths = sorted(set(lengths))

    def __call__(self) -> list[int]:
        axis: Any = self.axis
        shown = self.tick_values(*sorted(axis.get_view_interval()))
        points = 72 / axis.axes.figure.dpi
        size = axis.get_major_ticks(1)[0].label1.get_fontsize()
        places = axis.axes.transData.transform([(length, 0) for length in shown])[:, 0] * points if shown else []
        # half of its label and of a gap stand on each side of a tick
        room = [(_text_width(short_number(length), size) + 0.6 * size) / 2 for length in shown]
        kept: list[int] = []
        for i, place in enumerate(places):
            after_kept = not kept or place - room[i] >= places[kept[-1]] + room[kept[-1]]
            before_last = i in (0, len(shown) - 1) or place + room[i] <= places[-1] - room[-1]
            if after_kept and before_last:
                kept.append(i)
        return [shown[i] for i in kept]

    def tick_values(self, vmin: float, vmax: float) -> list[int]:
        return [length for length in self.lengths if vmin <= length <= vmax]


def short_number(number: int | float) -> str:
    """Return 4000 as it is, and 1000000 as 1,000,000."""
    text = f"{number:.12g}"
    return f"{int(number):,}" if abs(number) >= 10_000 and float(number).is_integer() else text


def _text_width(text: str, size: float) -> float:
    """Return the width of a number in points: digits of DejaVu Sans are 0.636 em wide."""
    return sum(0.32 if mark in ",." else 0.64 for mark in text) * size


def length_axis(axis: Any, lengths: Iterable[int], scale: Scale | None = None) -> None:
    """Give an axis ticks at tested lengths; by default it is logarithmic if they differ by more than 4 times."""
    tested = sorted(set(lengths))
    if is_log(tested, scale):
        axis.set_xscale("log")
    thin_ticks(axis, tested)


def thin_ticks(axis: Any, places: Iterable[int]) -> None:
    """Put ticks at those places whose labels fit, whatever the scale of the axis."""
    axis.xaxis.set_major_locator(LengthLocator(places))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(FuncFormatter(lambda number, _: short_number(number)))


def is_log(lengths: Sequence[int], scale: Scale | None) -> bool:
    return lengths[-1] > 4 * lengths[0] if scale is None else scale == "log"


def limit_lengths(axis: Any, lengths: Sequence[int], scale: Scale | None) -> None:
    """Let an axis end a little beyond the lengths."""
    low, high = min(lengths), max(lengths)
    if is_log([low, high], scale):
        margin = max(1.08, (high / low) ** 0.03)
        axis.set_xlim(low / margin, high * margin)
    else:
        pad = 0.03 * (high - low) or 1
        axis.set_xlim(low - pad, high + pad)


def panel_grid(count: int, size: Size, narrowest: float = 1.6) -> tuple[int, int]:
    """Return rows and columns for so many panels that are at least so many inches wide."""
    most = max(1, int(WIDTHS[size] / narrowest))
    rows = math.ceil(count / most)
    return rows, math.ceil(count / rows)


def make_panels(
    count: int, size: Size, *, narrowest: float = 1.6, ratio: float = 0.72, share_y: bool = True
) -> tuple[Figure, list[Any]]:
    """Return a figure and as many axes: no empty panel, no axis without labels at the bottom."""
    rows, columns = panel_grid(count, size, narrowest)
    width = WIDTHS[size]
    height = min(2.5, max(1.35, ratio * width / columns))
    figure = Figure(figsize=(width, rows * height), layout="constrained")
    axes: list[Any] = []
    for number in range(count):
        first = axes[0] if axes else None
        axis = figure.add_subplot(rows, columns, number + 1, sharey=first if share_y else None)
        axis.tick_params(labelsize=_TICK, width=0.6, length=2.5, pad=2)
        axis.grid(color="#DDDDDD", lw=0.5)
        if share_y and number % columns:
            axis.tick_params(labelleft=False)
        axes.append(axis)
    return figure, axes


def name_axes(axes: Sequence[Any], x: str, y: str, letters: int | None = None) -> None:
    """Name the x axis under the lowest panel of each column, and the y axis left of each row.

    Lines under a panel have so many `letters`; by default as many as fit under a column of panels.
    """
    columns = axes[0].get_subplotspec().get_gridspec().ncols
    for number, axis in enumerate(axes):
        if number + columns >= len(axes):
            axis.set_xlabel(wrap(x, letters or _letters(axis)))
        if number % columns == 0:
            axis.set_ylabel(wrap(y, max(14, int(15 * _height(axis)))))


def set_titles(axes: Sequence[Any], titles: Sequence[str], letters: int | None = None) -> None:
    """Write a title over each panel, on as many lines as it needs; the figure grows by those beyond the second."""
    wrapped = [wrap(title, letters or _letters(axis)) for axis, title in zip(axes, titles, strict=True)]
    for axis, title in zip(axes, wrapped, strict=True):
        axis.set_title(title)
    more = max(title.count("\n") - 1 for title in wrapped)
    if more > 0:
        figure = axes[0].figure
        rows = axes[0].get_subplotspec().get_gridspec().nrows
        figure.set_figheight(figure.get_figheight() + rows * more * _LINE)


def _letters(axis: Any) -> int:
    """Return how many letters fit over or under a panel."""
    grid = axis.get_subplotspec().get_gridspec()
    return int(14 * axis.figure.get_figwidth() / grid.ncols) - 3


def _height(axis: Any) -> float:
    """Return about how many inches a panel is high."""
    grid = axis.get_subplotspec().get_gridspec()
    return float(axis.figure.get_figheight() / grid.nrows - 0.3)


class _Wrapper(textwrap.TextWrapper):
    """Break lines at spaces; a longer word after a mark inside it, or anywhere."""

    def _split(self, text: str) -> list[str]:
        words = re.split(r"(\s+)", text)
        parts = [re.split(r"(?<=[-_/=,:])", word) if len(word) > self.width else [word] for word in words]
        return [part for of_word in parts for part in of_word if part]


def wrap(text: str, width: int) -> str:
    """Return a text of a file on lines of so many letters, as matplotlib draws it."""
    return label(_Wrapper(width).fill(text) if len(text) > width else text)


def legend_below(figure: Figure, handles: Sequence[Any], title: str | None = None) -> None:
    """Put a legend under all panels, in as many columns as fit; the figure grows by its height."""
    width = figure.get_figwidth()
    canvas: Any = figure.canvas
    if not hasattr(canvas, "get_renderer"):
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        canvas = FigureCanvasAgg(figure)
    names = [handle.get_label() for handle in handles]
    names = [_Wrapper(int(13 * width)).fill(name) for name in names]
    for columns in range(min(len(handles), 6), 0, -1):
        legend = figure.legend(
            handles,
            names,
            title=title,
            loc="outside lower center",
            ncols=columns,
            frameon=False,
            handlelength=2.4,
            columnspacing=1.4,
            labelspacing=0.35,
            borderpad=0.2,
        )
        box = legend.get_window_extent(canvas.get_renderer())
        if columns == 1 or box.width <= figure.dpi * (width - 0.1):
            break
        legend.remove()
    figure.set_figheight(figure.get_figheight() + box.height / figure.dpi)
