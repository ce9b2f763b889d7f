"""Figures of probes: how k is distributed, what it goes with, how few tokens are enough, which ones they are."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from longreach.probe.bootstrap import BootstrapEstimate
from longreach.probe.kinds import KINDS
from longreach.probe.result import Probed
from longreach.probe.summary import QUANTITIES, SummaryRow, group_probes
from longreach.reports.axes import length_axis, thin_ticks
from longreach.reports.style import Style, styles
from longreach.system.labels import label

QUANTITY_NAMES = {
    "k_weights": "k: tokens with a weight beyond tau",
    "k_sufficient": "k: tokens that are enough",
    "k_participation": "k: participation ratio",
    "span": "span: distance to the farthest",
}
Point = tuple[int, BootstrapEstimate]
"""Where it is drawn, and what."""

_LABELLED = 64
"""Tokens whose words fit along a heat map."""


def survival_figure(rows: Sequence[SummaryRow]) -> Figure:
    """The share of predictions that need more than k tokens, for each definition of k; bands: 95% over documents."""
    figure, axes = _panels(QUANTITIES)
    for quantity, axis in axes.items():
        shown = _only(rows, quantity, "at_most")
        for group, style in _groups(rows).items():
            points = [(int(row.bin), row.estimate) for row in shown if row.group == group]
            _steps(axis, points, group, style)
        more = [int(row.bin) for row in shown if row.estimate.value < 1]
        _doublings(axis, min(2 * max(more, default=0), max(int(row.bin) for row in shown)))
        axis.set(xlabel="tokens" if quantity != "span" else "distance in tokens", ylim=(-0.02, 1.02))
    axes[QUANTITIES[0]].set_ylabel("share of predictions with more")
    return _named(figure, axes[QUANTITIES[0]])


def kinds_figure(rows: Sequence[SummaryRow]) -> Figure:
    """The median k and span of the targets of each kind of token."""
    kinds = [kind for kind in KINDS if any(row.by == "kind" and row.bin == kind for row in rows)]
    groups = _groups(rows)
    figure, axes = _panels(QUANTITIES, height=0.9 + len(kinds) * (0.25 + 0.13 * len(groups)))
    for quantity, axis in axes.items():
        for number, (group, style) in enumerate(groups.items()):
            shown = {row.bin: row.estimate for row in _only(rows, quantity, "kind") if row.group == group}
            shown = {kind: found for kind, found in shown.items() if math.isfinite(found.value)}
            places = [kinds.index(kind) + (number - (len(groups) - 1) / 2) * 0.7 / len(groups) for kind in shown]
            middle = [found.value for found in shown.values()]
            bars = [[e.value - _low(e) for e in shown.values()], [_high(e) - e.value for e in shown.values()]]
            look = {"fmt": style["marker"], "color": style["color"], "ms": 4, "lw": 1.2}
            axis.errorbar(middle, places, xerr=bars, label=label(group), **look)
        axis.set_yticks(range(len(kinds)), kinds)
        axis.set(ylim=(len(kinds) - 0.5, -0.5), xlabel="median")
        axis.set_xlim(0, 1.06 * max(1.0, axis.get_xlim()[1]))
    return _named(figure, axes[QUANTITIES[0]])


def goes_with_figure(rows: Sequence[SummaryRow]) -> Figure:
    """The median of each k by the target's position, loss and entropy."""
    facts = {"position": "position in the text", "loss": "loss (nats)", "entropy": "entropy (nats)"}
    figure = Figure(figsize=(11, 8.4), layout="constrained")
    grid = figure.subplots(len(QUANTITIES), len(facts), sharey="row", sharex="col", squeeze=False)
    for line, quantity in zip(grid, QUANTITIES, strict=True):
        for axis, by in zip(line, facts, strict=True):
            shown = _only(rows, quantity, by)
            labels = sorted({row.bin for row in rows if row.by == by}, key=_lower_end)
            for group, style in _groups(rows).items():
                points = [(labels.index(row.bin), row.estimate) for row in shown if row.group == group]
                _line(axis, [(x, e) for x, e in points if math.isfinite(e.value)], group, style)
            axis.set_xticks(range(len(labels)), labels, rotation=40, ha="right", rotation_mode="anchor", fontsize=8)
            axis.grid(alpha=0.25)
        line[0].set_ylabel(quantity.replace("_", ", "))
    for axis, name in zip(grid[-1], facts.values(), strict=True):
        axis.set_xlabel(name)
    return _named(figure, grid[0, 0])


def sufficiency_figure(rows: Sequence[SummaryRow]) -> Figure:
    """How much is lost when only the k most influential tokens are kept; bands: 95% over documents."""
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axis = figure.subplots()
    shown = [row for row in _only(rows, "excess_loss", "kept") if row.statistic == "mean"]
    for group, style in _groups(rows).items():
        _line(axis, [(int(row.bin), row.estimate) for row in shown if row.group == group], group, style)
    axis.grid(alpha=0.25)
    axis.axhline(0, color="#555555", lw=0.8)
    axis.set(xlabel="tokens kept, besides those always seen", ylabel="loss above that in full context (nats, mean)")
    _doublings(axis, max((int(row.bin) for row in shown), default=0))
    return _named(figure, axis)


def faithfulness_figure(probes: Sequence[Probed], rows: Sequence[SummaryRow]) -> Figure:
    """How well weights foretell fresh masks: against the number of masks where that was varied, else by target."""
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axis = figure.subplots()
    groups = group_probes(probes)
    numbers = {name: members[0].settings.masks for name, members in groups.items()}
    if len(set(numbers.values())) > 1:
        found = {row.group: row.estimate for row in _only(rows, "faithfulness", "all") if row.statistic == "median"}
        series: dict[str, list[Point]] = {}
        for name in sorted(found, key=numbers.__getitem__):
            rest = ", ".join(part for part in name.split(", ") if not part.startswith("masks "))
            series.setdefault(rest or "all", []).append((numbers[name], found[name]))
        for name, style in styles(list(series)).items():
            _line(axis, series[name], name, style)
        axis.set(xlabel="masks", ylabel="faithfulness (LDS, median over targets)")
        length_axis(axis, list(numbers.values()), "log")
    else:
        for name, style in styles(list(groups)).items():
            values = np.sort(np.concatenate([probe.faithfulness.numpy() for probe in groups[name]]))
            values = values[~np.isnan(values)]
            shares = np.arange(1, len(values) + 1) / max(1, len(values))
            axis.step(values, 1 - shares, where="post", label=label(name), lw=1.8, **style | {"marker": None})
        axis.set(xlabel="faithfulness (LDS)", ylabel="share of predictions with more", ylim=(-0.02, 1.02))
    axis.grid(alpha=0.25)
    return _named(figure, axis)


def weights_figure(probe: Probed, first: int = 0) -> Figure:
    """A heat map: a row for each target of a passage that begins with token `first`, a column for each token in it."""
    last = min(len(probe.tokens), first + _LABELLED)
    chosen = (probe.targets >= first) & (probe.targets < last)
    targets, weights = probe.targets[chosen].tolist(), probe.clear_weights[chosen][:, first:last].float().numpy()
    strongest = float(np.quantile(np.abs(weights[weights != 0]), 0.98)) if weights.any() else 1.0
    side = 1.8 + 0.14 * (last - first)
    figure = Figure(figsize=(side + 0.8, max(2.4, 1.8 + 0.14 * len(targets))), layout="constrained")
    axis = figure.subplots()
    drawn = axis.imshow(weights, cmap="RdBu", vmin=-strongest, vmax=strongest, aspect="auto", interpolation="none")
    names = [_visible(piece) for piece in probe.pieces[first:last]]
    axis.set_xticks(range(len(names)), names, rotation=90, fontsize=6)
    axis.set_yticks(range(len(targets)), [names[target - first] for target in targets], fontsize=6)
    axis.set(xlabel="token that is seen", ylabel="token that is predicted")
    figure.colorbar(drawn, ax=axis, label="nats it adds", shrink=0.7, extend="both")
    return figure


def _visible(piece: str) -> str:
    """Return a token with blanks that can be seen."""
    shown = label(piece.replace("\n", "↵").replace("\t", "⇥"))
    return shown.replace(" ", "·") if not shown.strip() else shown.strip()


def _panels(quantities: Sequence[str], height: float = 2.9) -> tuple[Figure, dict[str, Any]]:
    figure = Figure(figsize=(13, height + 0.4), layout="constrained")
    axes = dict(zip(quantities, figure.subplots(1, len(quantities), sharey=True), strict=True))
    for quantity, axis in axes.items():
        axis.set_title(QUANTITY_NAMES[quantity], fontsize=9)
        axis.grid(alpha=0.25)
    return figure, axes


def _groups(rows: Sequence[SummaryRow]) -> dict[str, Style]:
    return styles(list(dict.fromkeys(row.group for row in rows)))


def _only(rows: Sequence[SummaryRow], quantity: str, by: str) -> list[SummaryRow]:
    return [row for row in rows if row.quantity == quantity and row.by == by]


def _line(axis: Any, points: Sequence[Point], name: str, style: Style) -> None:
    """A curve through estimates, with a band where they have intervals."""
    axis.plot([x for x, _ in points], [e.value for _, e in points], lw=1.8, ms=3, label=label(name), **style)
    low, high = [_low(e) for _, e in points], [_high(e) for _, e in points]
    axis.fill_between([x for x, _ in points], low, high, color=style["color"], alpha=0.15, lw=0)


def _steps(axis: Any, points: Sequence[Point], name: str, style: Style) -> None:
    """What is left of a share that grows in steps."""
    places = [x for x, _ in points]
    axis.step(
        places, [1 - e.value for _, e in points], where="post", lw=1.8, label=label(name), **style | {"marker": None}
    )
    low, high = [1 - _high(e) for _, e in points], [1 - _low(e) for _, e in points]
    axis.fill_between(places, low, high, step="post", color=style["color"], alpha=0.15, lw=0)


def _doublings(axis: Any, most: int) -> None:
    """An axis from 0 over 1, 2, 4 and so on."""
    axis.set_xscale("symlog", linthresh=1, base=2)
    thin_ticks(axis, [0, *(2**power for power in range(max(1, most).bit_length()))])
    axis.set_xlim(-0.15, max(1, most) * 1.1)


def _low(estimate: BootstrapEstimate) -> float:
    return estimate.value if estimate.low is None else estimate.low


def _high(estimate: BootstrapEstimate) -> float:
    """An interval that has no upper end, for no tried k was enough, is drawn up to the figure itself."""
    return estimate.value if estimate.high is None or not math.isfinite(estimate.high) else estimate.high


def _lower_end(bin: str) -> float:
    return float(bin.split("..")[0])


def _named(figure: Figure, axis: Any) -> Figure:
    """The groups' names below the picture, where there are several groups."""
    handles, names = axis.get_legend_handles_labels()
    if len(names) > 1:
        figure.set_figheight(figure.get_figheight() + 0.3 * math.ceil(len(names) / 3))
        figure.legend(handles, names, frameon=False, fontsize=8, loc="outside lower center", ncols=3)
    return figure
