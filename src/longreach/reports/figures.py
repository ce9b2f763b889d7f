"""Figures: scores against length, how answers go wrong, the training loss, and which IDs training showed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from longreach.errors import BadInput
from longreach.reports.axes import (
    QUARTERS,
    Scale,
    Size,
    legend_below,
    length_axis,
    limit_lengths,
    make_panels,
    name_axes,
    set_titles,
    short_number,
    wrap,
)
from longreach.reports.curves import Group
from longreach.reports.fields import ONE_PASS, Fields, named, select
from longreach.reports.load import Result, RunResult, variant_order
from longreach.reports.style import TRAINED, Style, as_svg, paper_style, save_figure, save_png, shades, styles
from longreach.system.labels import label

__all__ = [
    "Style",
    "as_svg",
    "coverage_figure",
    "loss_figure",
    "metric_name",
    "reach_figure",
    "save_figure",
    "save_png",
    "shades",
    "styles",
]

_SHORT_NAMES = {
    "token_em_free": "exact match (free-running)",
    "token_id_em_tf": "exact match, tokens and IDs (one pass)",
    "token_em_tf": "exact match (one pass)",
    "next_token": "next token right",
    "token_accuracy": "answer tokens right (true prefix)",
    "id_accuracy": "predicted IDs right (true prefix)",
}


def metric_name(metric: str) -> str:
    """Return a name that fits along an axis."""
    return _SHORT_NAMES.get(metric, metric.replace("_", " "))


@dataclass(frozen=True)
class _Line:
    """The seeds of one variant and setting, and where they are drawn."""

    panel: str
    name: str
    group: Group
    style: Style


@paper_style()
def reach_figure(
    results: Sequence[Result],
    metric: str | None = None,
    *,
    panels: str | None = None,
    scale: Scale | None = None,
    size: Size = "page",
    title: str = "",
) -> Figure:
    """Draw scores against length: every seed a thin line, their median a thick one, one seed with Wilson's interval.

    Where the task was varied, there is a panel for each variant and a curve for each setting.
    """
    groups = select(results, metric)
    lines = _lines(results, groups, panels)
    shown = list(dict.fromkeys(line.panel for line in lines))
    figure, axes = make_panels(len(shown), size)
    lengths = sorted({length for line in lines for length in line.group.middle()})
    chances = False
    for axis, panel in zip(axes, shown, strict=True):
        inside = [line for line in lines if line.panel == panel]
        own = _results_of(results, inside)
        ranges = sorted({result.trained_lengths for result in own if result.trained_lengths is not None})
        # a curve that is drawn later leaves a seam of those under it
        for number, line in enumerate(inside):
            _draw(axis, line.group, line.style, 1 - number / len(inside))
        limit_lengths(axis, [*lengths, *(min(high, lengths[-1]) for _, high in ranges)], scale)
        length_axis(axis, lengths, scale)
        for low, high in ranges:
            axis.axvspan(max(low, axis.get_xlim()[0]), high, color=TRAINED, lw=0, zorder=0, alpha=1 / len(ranges))
        for chance in _chances(own, groups[0].metric):
            axis.axhline(chance, color="#555555", lw=0.8, ls=(0, (1, 2)))
            chances = True
    set_titles(axes, shown)
    axes[0].set(ylim=(-0.03, 1.04), yticks=QUARTERS, yticklabels=map("{:g}".format, QUARTERS))
    name_axes(axes, "length", metric_name(groups[0].metric))
    if title:
        figure.suptitle(wrap(title, 100), fontsize=9)
    looks = {line.name: line.style for line in lines}
    handles: list[Any] = [Line2D([], [], lw=1.4, ms=3.5, label=label(name), **look) for name, look in looks.items()]
    if any(result.trained_lengths for result in results):
        handles.append(Patch(color=TRAINED, label="training lengths"))
    if chances:
        handles.append(Line2D([], [], color="#555555", lw=0.8, ls=(0, (1, 2)), label="chance"))
    legend_below(figure, handles)
    return figure


def _lines(results: Sequence[Result], groups: Sequence[Group], field: str | None) -> list[_Line]:
    """Assign groups to panels; a curve is named by that in which the curves of its panel differ."""
    fields = Fields(results)
    if field == "length":
        raise BadInput("length is the axis of this figure: choose another field for its panels")
    if field is not None:
        fields.check(field)
    elif any(group.setting for group in groups):
        field = "variant"
    values = {id(one): fields.value(one, one.curves[0].scores[0], field) if field else "" for one in groups}
    names = {id(one): _curve_name(one, field) for one in groups}
    style = _styles(results, groups, names)
    if field == "variant":
        style |= shades(list(dict.fromkeys(names[id(one)] for one in groups if one.setting)))
    ordered = fields.order(field, list(values.values())) if field else [""]
    return [
        _Line(named(field, value) if field else "", names[id(one)], one, style[names[id(one)]])
        for value in ordered
        for one in groups
        if values[id(one)] == value
    ]


def _curve_name(one: Group, field: str | None) -> str:
    """Return the variant and the settings of the task, without that which names the panel."""
    overrides = one.curves[0].scores[0].overrides
    settings = ", ".join(f"{name}={value}" for name, value in overrides.items() if name != field)
    if field == "variant":
        return settings or one.variant
    return f"{one.variant}, {settings}" if settings else one.variant


def _styles(results: Sequence[Result], groups: Sequence[Group], names: dict[int, str]) -> dict[str, Style]:
    """Return the style of its variant for each curve; settings of one variant differ in their markers."""
    of_variant = styles(variant_order(results))
    found: dict[str, Style] = {}
    for one in groups:
        look = of_variant[one.variant.removesuffix(ONE_PASS)]
        own = list(dict.fromkeys(names[id(other)] for other in groups if other.variant == one.variant))
        markers = [other["marker"] for other in shades([str(number) for number in range(8)]).values()]
        turn = own.index(names[id(one)])
        marker = markers[(markers.index(look["marker"]) + turn) % len(markers)]
        found[names[id(one)]] = look | {"marker": marker}
    return found


def _results_of(results: Sequence[Result], lines: Sequence[_Line]) -> list[Result]:
    variants = {line.group.variant.removesuffix(ONE_PASS) for line in lines}
    return [result for result in results if result.variant in variants]


def _chances(results: Sequence[Result], metric: str) -> list[float]:
    """Return the rates of guessing that cards state, for exact matches."""
    if not metric.startswith("token_em"):
        return []
    return sorted({r.card.chance for r in results if r.card is not None and r.card.chance is not None})


def _draw(axis: Any, one: Group, style: Style, depth: float) -> None:
    """Draw the seeds of a curve and their median; the deepest of several curves, at 1, is the thickest."""
    middle = one.middle()
    thick = {"lw": 1.0 + 0.7 * depth, "ms": 2.6 + 1.2 * depth, "markeredgewidth": 0}
    axis.plot(list(middle), list(middle.values()), zorder=3, **thick, **style)
    if len(one.curves) == 1:
        scores = sorted(one.curves[0].scores, key=lambda score: score.length)
        low, high = zip(*(score.interval() for score in scores), strict=True)
        axis.fill_between(list(middle), low, high, color=style["color"], alpha=0.13, lw=0)
        return
    for curve in one.curves:
        rates = dict(sorted(curve.rates.items()))
        axis.plot(list(rates), list(rates.values()), color=style["color"], lw=0.5, alpha=0.45, zorder=2)


@paper_style()
def loss_figure(results: Sequence[RunResult], size: Size = "page") -> Figure | None:
    """Draw the training loss by step, a line for each run; None if no run has logged any."""
    style = styles(variant_order(results))
    curves = {}
    for number, result in enumerate(results):
        if result.training:
            curves[number] = ([step for step, _ in result.training], [max(loss, 1e-8) for _, loss in result.training])
    if not curves:
        return None
    figure, (axis,) = make_panels(1, size)
    shown: dict[str, Style] = {}
    for number, (steps, losses) in curves.items():
        look = style[results[number].variant]
        if len(steps) > 1:  # a single point has no line
            look = look | {"marker": ""}
        axis.plot(steps, losses, lw=0.8, ms=3.5, alpha=0.9, **look)
        shown.setdefault(results[number].variant, look)
    axis.set(xlabel="step", ylabel="training loss", yscale="log")
    axis.yaxis.set_minor_locator(matplotlib.ticker.NullLocator())
    axis.xaxis.set_major_locator(matplotlib.ticker.MaxNLocator(5 if size == "column" else 8, steps=[1, 2, 5, 10]))
    axis.xaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda step, _: short_number(step)))
    legend_below(figure, [Line2D([], [], lw=1.4, ms=3.5, label=label(name), **look) for name, look in shown.items()])
    return figure


@paper_style()
def coverage_figure(results: Sequence[Result], size: Size = "page") -> Figure | None:
    """Draw how often training showed each part of its ID range, per variant; None if no result has a card."""
    cards = {result.variant: result.card for result in reversed(results) if result.card is not None}
    names = [name for name in variant_order(results) if name in cards]
    if not names:
        return None
    style = styles(variant_order(results))
    figure, axes = make_panels(len(names), size, ratio=0.6, share_y=False)
    for axis, name in zip(axes, names, strict=True):
        card = cards[name]
        counts, total = card.id_coverage, max(1, sum(card.id_coverage))
        edges = [number / len(counts) for number in range(len(counts))]
        axis.bar(edges, [count / total for count in counts], 1 / len(counts), align="edge", color=style[name]["color"])
        axis.set(xlim=(0, 1), xticks=[0, 0.5, 1], xticklabels=["0", "0.5", "1"])
        axis.yaxis.set_major_locator(matplotlib.ticker.MaxNLocator(3))
        axis.set_ylim(0, max(axis.get_ylim()[1], 1e-3))
    set_titles(axes, [f"{name}: IDs {cards[name].trained_ids}" for name in names])
    name_axes(axes, "place in the range of IDs", "share in training")
    return figure
