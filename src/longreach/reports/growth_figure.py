"""The picture that goes with a comparison of measured and predicted errors."""

import matplotlib
from matplotlib.figure import Figure

from longreach.reports.axes import length_axis
from longreach.reports.growth import BACKGROUNDS, GrowthComparison
from longreach.reports.style import shades


def growth_figure(comparisons: list[GrowthComparison]) -> Figure:
    """A panel for each attention and rate of look-alikes, a colour for each k: dots with intervals were measured, bands
    are predicted."""
    attentions = [name for name in BACKGROUNDS if any(c.attention == name for c in comparisons)]
    rates = sorted({comparison.rho for comparison in comparisons})
    figure = Figure(figsize=(3.4 * len(attentions) + 0.8, 2.9 * len(rates) + 0.4), layout="constrained")
    axes = figure.subplots(len(rates), len(attentions), sharex=True, sharey=True, squeeze=False)
    ks = sorted({comparison.k for comparison in comparisons})
    colours = {int(k): style["color"] for k, style in shades([str(k) for k in ks]).items()}
    for row, rho in zip(axes, rates, strict=True):
        for axis, attention in zip(row, attentions, strict=True):
            for comparison in comparisons:
                if (comparison.rho, comparison.attention) == (rho, attention):
                    _draw(axis, comparison, colours[comparison.k])
            axis.set(ylim=(-0.03, 1.03), title=f"{attention}, look-alikes {rho:.3g}")
            axis.grid(alpha=0.25)
    lengths = sorted({length for comparison in comparisons for length in comparison.measured})
    length_axis(axes[0, 0], lengths, "log")
    for axis in axes[-1]:
        axis.set_xlabel("length")
    for axis in axes[:, 0]:
        axis.set_ylabel("wrong answers")
    lines = {k: axes[0, 0].plot([], [], "o-", ms=3, color=colour)[0] for k, colour in colours.items()}
    figure.legend(lines.values(), [f"k = {k}" for k in lines], frameon=False, loc="outside right center")
    return figure


def _draw(axis: "matplotlib.axes.Axes", comparison: GrowthComparison, colour: str) -> None:
    lengths = list(comparison.measured)
    measured, predicted = comparison.measured.values(), comparison.predicted.values()
    wrong = [m.wrong for m in measured]
    bars = [[max(0.0, m.wrong - m.low) for m in measured], [max(0.0, m.high - m.wrong) for m in measured]]
    axis.errorbar(lengths, wrong, yerr=bars, fmt="o-", ms=3, lw=1, color=colour)
    low, high = [p.low for p in predicted], [p.high for p in predicted]
    axis.fill_between(lengths, low, high, color=colour, alpha=0.12, lw=0)
    for edge in (low, high):
        axis.plot(lengths, edge, ":", lw=0.9, color=colour)
