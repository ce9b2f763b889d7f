"""Figures: accuracy against length, the training loss, and which IDs training showed."""

import io
import math
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from longreach.report.curves import Group, Result
from longreach.report.tables import METRIC_NAMES

# Okabe and Ito's colours, which people with colour-blindness can tell apart
_COLOURS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")


def length_figure(groups: list[Group], title: str) -> Figure:
    """Every seed a thin line, their median a thick one.  One curve per variant; where the task was varied,
    one panel per variant and one curve per setting."""
    varied = any(group.setting for group in groups)
    panels = list(dict.fromkeys(group.variant for group in groups)) if varied else [""]
    figure = Figure(figsize=(max(7.0, 4.6 * len(panels)), 4.4), layout="constrained")
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axis, panel in zip(axes, panels, strict=True):
        shown = [group for group in groups if panel in ("", group.variant)]
        for number, group in enumerate(shown):
            _draw(axis, group, group.setting if varied else group.variant, _COLOURS[number % len(_COLOURS)])
        longest = max(group.trained_to for group in shown)
        axis.axvspan(axis.get_xlim()[0], longest, color="#000000", alpha=0.06, lw=0)
        axis.text(longest, 1.045, "trained up to here ", ha="right", va="bottom", fontsize=8, color="#555555")
        lengths = sorted({length for group in shown for length in group.middle()})
        if lengths[-1] > 4 * lengths[0]:
            axis.set_xscale("log", base=2)
            axis.xaxis.set_major_formatter(matplotlib.ticker.FormatStrFormatter("%d"))
        axis.set(xlabel="length", ylim=(-0.03, 1.12), title=panel)
        axis.set_yticks([0, 0.25, 0.5, 0.75, 1])
        axis.grid(alpha=0.25)
        axis.legend(frameon=False, loc="best")
    axes[0].set_ylabel(METRIC_NAMES[groups[0].metric])
    figure.suptitle(title, fontsize=11)
    return figure


def loss_figure(results: list[Result]) -> Figure:
    """Training loss by step, one line per run."""
    figure = Figure(figsize=(7, 3), layout="constrained")
    axis = figure.subplots()
    variants = list(dict.fromkeys(result.variant for result in results))
    for result in results:
        lines = [line for line in result.folder.metrics() if "loss" in line]
        number = variants.index(result.variant)
        label = result.variant if result is next(r for r in results if r.variant == result.variant) else None
        loss = [max(line["loss"], 1e-8) for line in lines]
        axis.plot([line["step"] for line in lines], loss, color=_COLOURS[number % len(_COLOURS)], lw=1, label=label)
    axis.set(xlabel="step", ylabel="training loss", yscale="log")
    axis.grid(alpha=0.25)
    axis.legend(frameon=False)
    return figure


def coverage_figure(results: list[Result]) -> Figure:
    """How often training showed each part of its ID range, per variant; flat is good, zero is untrained."""
    first = {result.variant: result for result in reversed(results)}
    shown = [first[variant] for variant in dict.fromkeys(result.variant for result in results)]
    columns = min(3, len(shown))
    rows = math.ceil(len(shown) / columns)
    figure = Figure(figsize=(3.4 * columns, 2.2 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).flat
    for number, (axis, result) in enumerate(zip(axes, shown, strict=False)):
        counts = result.card.id_coverage
        share = [count / max(1, sum(counts)) for count in counts]
        axis.bar(range(len(counts)), share, width=1.0, color=_COLOURS[number % len(_COLOURS)])
        axis.set_title(f"{result.variant}: IDs {result.card.trained_ids}", fontsize=8)
        axis.set_xticks([])
        axis.tick_params(labelsize=7)
    for axis in list(axes):
        axis.set_axis_off()
    return figure


def save_png(figure: Figure, path: Path) -> None:
    figure.savefig(path, dpi=150)


def as_svg(figure: Figure) -> str:
    """The drawing alone, without XML's preamble, to stand in a page."""
    out = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "longreach"}):
        figure.savefig(out, format="svg", metadata={"Date": None})
    text = out.getvalue()
    return text[text.index("<svg") :]


def _draw(axis: "matplotlib.axes.Axes", group: Group, label: str, colour: str) -> None:
    middle = group.middle()
    axis.plot(list(middle), list(middle.values()), color=colour, lw=2.2, marker="o", ms=4, label=label)
    if len(group.curves) == 1:
        bounds = [score.interval() for score in group.curves[0].scores]
        axis.fill_between(
            list(middle), [low for low, _ in bounds], [high for _, high in bounds], color=colour, alpha=0.15, lw=0
        )
    else:
        for curve in group.curves:
            axis.plot(list(curve.rates), list(curve.rates.values()), color=colour, lw=0.7, alpha=0.5)
