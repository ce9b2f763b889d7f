"""Sparsity and reach in one picture, from what `longreach text sparsity` saved."""

from typing import Any

from matplotlib.figure import Figure

from longreach.reports.axes import length_axis, thin_ticks
from longreach.reports.style import styles
from longreach.system.labels import label

_NAMES = {"k_sufficient": "tokens enough", "k_weights": "weights beyond tau", "k_participation": "participation"}
_BELOW: dict[str, Any] = {
    "frameon": False,
    "fontsize": 7,
    "loc": "upper center",
    "bbox_to_anchor": (0.5, -0.16),
    "ncols": 3,
}
"""A legend that covers no curve."""


def sparsity_figure(summary: dict[str, Any]) -> Figure:
    """Left, how loss changes with context for predictions of different k; in the middle, what keeping k tokens costs;
    right, whether k still matters when other causes are held equal.  Bands and bars: 95% over documents."""
    figure = Figure(figsize=(13, 4.6), layout="constrained")
    by_k, few, slope = figure.subplots(1, 3)
    changes = summary["changes"]["k_sufficient"]
    bins = list(dict.fromkeys(row["k"] for row in changes))
    for name, style in styles(bins).items():
        rows = [row for row in changes if row["k"] == name]
        contexts = [row["context"] for row in rows]
        by_k.plot(contexts, [row["nats"] for row in rows], lw=1.8, ms=3, label=f"{name} ({rows[0]['tokens']})", **style)
        ends = [row["low"] for row in rows], [row["high"] for row in rows]
        by_k.fill_between(contexts, *ends, color=style["color"], alpha=0.12, lw=0)
    by_k.axvline(summary["within"], color="#555555", lw=1, ls=":")
    by_k.axhline(0, color="#555555", lw=0.8)
    length_axis(by_k, [row["context"] for row in changes], "log")
    by_k.set(xlabel="tokens of context", ylabel=f"loss beyond that at {summary['within']} (nats)", title="by k")
    by_k.legend(**_BELOW, title="tokens enough (predictions)", title_fontsize=8)
    sizes = [row["k"] for row in summary["sufficiency"]]
    few.plot(sizes, [row["nats"] for row in summary["sufficiency"]], "o-", color="#0072B2", ms=3)
    ends = [row["low"] for row in summary["sufficiency"]], [row["high"] for row in summary["sufficiency"]]
    few.fill_between(sizes, *ends, color="#0072B2", alpha=0.15, lw=0)
    few.set_xscale("symlog", base=2, linthresh=1)
    thin_ticks(few, sizes)
    few.axhline(0, color="#555555", lw=0.8)
    few.set(xlabel="tokens kept", ylabel="loss beyond that of the full context (nats)", title="keeping the k best")
    for number, (definition, style) in enumerate(styles(list(_NAMES)).items()):
        for controlled in (False, True):
            rows = [
                row for row in summary["slopes"] if (row["definition"], row["controlled"]) == (definition, controlled)
            ]
            shift = 1 + 0.06 * (2 * number + controlled - 2.5)
            bars = [[row["nats"] - row["low"] for row in rows], [row["high"] - row["nats"] for row in rows]]
            slope.errorbar(
                [shift * row["context"] for row in rows],
                [row["nats"] for row in rows],
                yerr=bars,
                fmt=style["marker"],
                color=style["color"],
                mfc=style["color"] if controlled else "white",
                ms=4,
                lw=1,
                label=f"{_NAMES[definition]}{', controlled' if controlled else ''}",
            )
    slope.axvline(summary["within"], color="#555555", lw=1, ls=":")
    slope.axhline(0, color="#555555", lw=0.8)
    length_axis(slope, [row["context"] for row in summary["slopes"]], "log")
    slope.set(xlabel="tokens of context", ylabel="nats for each doubling of 1 + k", title="does k explain it?")
    slope.legend(**_BELOW)
    figure.suptitle(label(summary["model"]), fontsize=11)
    return figure
