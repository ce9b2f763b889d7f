"""Loss by length of runs on text: a table and a figure."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, get_args

import torch
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from rich.table import Table

from longreach.evaluation import RISE, By, Loss, sizes_held
from longreach.reports.axes import Scale, Size, legend_below, length_axis, limit_lengths, make_panels, wrap
from longreach.reports.curves import headline_groups
from longreach.reports.load import Result, variant_order
from longreach.reports.style import Style, paper_style, styles
from longreach.reports.tables import Column, TableRow, length_table, reach_ratio, score_table
from longreach.system.labels import label


@dataclass(frozen=True)
class LossCurves:
    """The seeds of one variant: each a curve of losses."""

    variant: str
    curves: list[list[Loss]]
    trained_to: int | None

    def middle(self) -> dict[int, float]:
        """Median over seeds at each size."""
        return {size: median(loss.nats for loss in losses) for size, losses in self._by_size().items()}

    def worst(self) -> dict[int, float]:
        return {size: max(loss.nats for loss in losses) for size, losses in self._by_size().items()}

    def holds_to(self) -> list[int]:
        """Return for each seed the longest tested size up to which its loss holds."""
        return [_holds_to(curve) for curve in self.curves]

    def _by_size(self) -> dict[int, list[Loss]]:
        found: dict[int, list[Loss]] = {}
        for curve in self.curves:
            for loss in curve:
                found.setdefault(loss.size, []).append(loss)
        return dict(sorted(found.items()))


def _holds_to(curve: list[Loss]) -> int:
    held = int(sizes_held(torch.tensor([[loss.nats] for loss in curve], dtype=torch.double)))
    return curve[held - 1].size


def loss_curves(results: Sequence[Result], by: By) -> list[LossCurves]:
    """Of all results on text, by variant."""
    found: dict[str, LossCurves] = {}
    for result in results:
        curve = sorted((loss for loss in result.losses if loss.by == by), key=lambda loss: loss.size)
        if curve:
            found.setdefault(result.variant, LossCurves(result.variant, [], result.trained_to)).curves.append(curve)
    return list(found.values())


def tables(results: Sequence[Result], title: str, width: int = 80) -> list[Table]:
    """What a run ends with: how far it reaches, or on text its loss by context."""
    exact = [group for group in headline_groups(results) if group.metric != "next_token"]
    shown = [score_table(exact, title, width)] if exact else []
    losses = loss_curves(results, "context")
    return [*shown, loss_table(losses, title, width)] if losses else shown


def loss_table(curves: list[LossCurves], title: str, width: int = 80) -> Table:
    """Return a row per variant: loss by size of context, as many sizes as fit."""
    several = any(len(one.curves) > 1 for one in curves)
    caption = f"loss in nats per token by tokens of context{'; median over seeds (worst)' if several else ''}"
    front = [Column("variant", [one.variant for one in curves], folds=True)]
    rows = [TableRow(_cells(one), one.trained_to) for one in curves]
    holds = [reach_ratio(one.holds_to(), one.trained_to) for one in curves]
    caption += f".  holds to: no more than {RISE} above the least before"
    return length_table(title, caption, front, rows, [Column("holds to", holds, spare=True)], width)


def _cells(one: LossCurves) -> dict[int, str]:
    middle, worst = one.middle(), one.worst()
    return {n: f"{middle[n]:.3f}" + (f" ({worst[n]:.2f})" if len(one.curves) > 1 else "") for n in middle}


def losses_to_csv(results: Sequence[Result], labels: Sequence[Mapping[str, str]] | None = None) -> str:
    """One line for each point of each curve.  `labels`, one mapping for each result, are the columns in front."""
    marks = [{"variant": result.variant} for result in results] if labels is None else labels
    rows = [{**mark, **asdict(loss)} for mark, result in zip(marks, results, strict=True) for loss in result.losses]
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


@paper_style()
def losses_figure(
    results: Sequence[Result], title: str, size: Size = "page", scale: Scale | None = None
) -> Figure | None:
    """Draw loss against context and position; every seed a thin line, one seed with its interval over documents.

    Return None if no result has losses.
    """
    panels = {by: curves for by in get_args(By) if (curves := loss_curves(results, by))}
    return draw_losses(panels, styles(variant_order(results)), title, size, scale) if panels else None


def draw_losses(
    panels: Mapping[By, Sequence[LossCurves]],
    style: Mapping[str, Style],
    title: str,
    size: Size = "page",
    scale: Scale | None = None,
) -> Figure:
    """Draw a panel for each kind of curves, in the styles of their variants."""
    figure, axes = make_panels(len(panels), size, narrowest=2.1, share_y=False)
    names = {"context": ("by context", "tokens of context"), "position": ("by position", "position in the window")}
    for axis, (by, curves) in zip(axes, panels.items(), strict=True):
        for one in curves:
            _draw_losses(axis, one, style[one.variant])
        sizes = sorted({size for one in curves for size in one.middle()})
        limit_lengths(axis, sizes, scale)
        length_axis(axis, sizes, scale)
        trained = {one.trained_to for one in curves if one.trained_to is not None}
        for longest in trained:
            axis.axvline(longest, color="#555555", lw=0.8, ls=(0, (1, 2)))
        axis.set(title=names[by][0], xlabel=names[by][1], ylabel="loss (nats per token)")
    shown = dict.fromkeys(one.variant for curves in panels.values() for one in curves)
    handles = [Line2D([], [], lw=1.4, ms=3.5, label=label(name), **style[name]) for name in shown]
    if any(one.trained_to is not None for curves in panels.values() for one in curves):
        handles.append(Line2D([], [], color="#555555", lw=0.8, ls=(0, (1, 2)), label="longest in training"))
    if title:
        figure.suptitle(wrap(title, 100), fontsize=9)
    legend_below(figure, handles)
    return figure


def _draw_losses(axis: Any, one: LossCurves, style: Style) -> None:
    middle = one.middle()
    axis.plot(list(middle), list(middle.values()), lw=1.5, ms=3, markeredgewidth=0, **style)
    for curve in one.curves:
        sizes = [loss.size for loss in curve]
        if len(one.curves) > 1:
            axis.plot(sizes, [loss.nats for loss in curve], color=style["color"], lw=0.5, alpha=0.45)
        else:
            ends = [(loss.low, loss.high) for loss in curve]
            low, high = ([math.nan if end is None else end for end in side] for side in zip(*ends, strict=True))
            axis.fill_between(sizes, low, high, color=style["color"], alpha=0.13, lw=0)
