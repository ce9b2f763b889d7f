"""Figures of probes: how k is distributed, what it goes with, how few tokens are enough, which ones they are."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from longreach.probe.kinds import KINDS
from longreach.probe.result import Probed
from longreach.probe.summary import QUANTITIES, Row, group_probes
from longreach.report.figures import Style, styles

QUANTITY_NAMES = {
    "k_weights": "k: tokens with a weight beyond tau",
    "k_sufficient": "k: tokens that are enough",
    "k_participation": "k: participation ratio",
    "span": "span: distance to the farthest",
}
_LABELLED = 64
"""Tokens whose words fit along a heat map."""


def survival_figure(rows: Sequence[Row]) -> Figure:
    """The share of predictions that need more than k tokens, for each definition of k; bands: 95% over documents."""
    figure, axes = _panels(QUANTITIES)
    for quantity, axis in axes.items():
        _curves(axis, _only(rows, quantity, "at_most"), _groups(rows), lambda share: 1 - share)
        axis.set(xlabel="tokens" if quantity != "span" else "distance in tokens", ylim=(-0.02, 1.02))
        axis.set_xscale("symlog", linthresh=1, base=2)
        axis.xaxis.set_major_formatter(matplotlib.ticker.FormatStrFormatter("%d"))
    axes[QUANTITIES[0]].set_ylabel("share of predictions with more")
    return _named(figure, axes)


def kinds_figure(rows: Sequence[Row]) -> Figure:
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
            bars = [
                [found.value - (found.value if found.low is None else found.low) for found in shown.values()],
                [_finite(found.high, found.value) - found.value for found in shown.values()],
            ]
            axis.errorbar(middle, places, xerr=bars, fmt=style["marker"], ms=4, lw=1.2, color=style["color"], label=group)
        axis.set_yticks(range(len(kinds)), kinds)
        axis.set(ylim=(len(kinds) - 0.5, -0.5), xlabel="median")
        axis.set_xlim(left=min(0, axis.get_xlim()[0]))
    return _named(figure, axes)


def goes_with_figure(rows: Sequence[Row]) -> Figure:
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
            axis.set_xticks(range(len(labels)), labels, rotation=40, ha="right", fontsize=8)
            axis.grid(alpha=0.25)
        line[0].set_ylabel(QUANTITY_NAMES[quantity].replace(": ", ":\n"))
    for axis, name in zip(grid[-1], facts.values(), strict=True):
        axis.set_xlabel(name)
    return _named(figure, {name: axis for name, axis in zip(QUANTITIES, grid[:, 0], strict=True)})


def sufficiency_figure(rows: Sequence[Row]) -> Figure:
    """How much is lost when only the k most influential tokens are kept; bands: 95% over documents."""
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axis = figure.subplots()
    shown = [row for row in _only(rows, "excess_loss", "kept") if row.statistic == "mean"]
    _curves(axis, shown, _groups(rows))
    axis.axhline(0, color="#555555", lw=0.8)
    axis.set(xlabel="tokens kept, besides those always seen", ylabel="loss above that in full context (nats, mean)")
    axis.set_xscale("symlog", linthresh=1, base=2)
    axis.xaxis.set_major_formatter(matplotlib.ticker.FormatStrFormatter("%d"))
    return _named(figure, {"": axis})


def faithfulness_figure(probes: Sequence[Probed], rows: Sequence[Row]) -> Figure:
    """How well weights foretell fresh masks: against the number of masks where that was varied, else by target."""
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axis = figure.subplots()
    groups = group_probes(probes)
    numbers = {name: members[0].settings.masks for name, members in groups.items()}
    if len(set(numbers.values())) > 1:
        found = {row.group: row.estimate for row in _only(rows, "faithfulness", "all") if row.statistic == "median"}
        series: dict[str, list[tuple[float, Any]]] = {}
        for name in sorted(found, key=numbers.__getitem__):
            rest = ", ".join(part for part in name.split(", ") if not part.startswith("masks "))
            series.setdefault(rest or "all", []).append((numbers[name], found[name]))
        for name, style in styles(list(series)).items():
            _line(axis, series[name], name, style)
        axis.set(xlabel="masks", ylabel="faithfulness (LDS, median over targets)")
        axis.set_xscale("log", base=2)
        axis.xaxis.set_major_formatter(matplotlib.ticker.FormatStrFormatter("%d"))
    else:
        for name, style in styles(list(groups)).items():
            values = np.sort(np.concatenate([probe.faithfulness.numpy() for probe in groups[name]]))
            values = values[~np.isnan(values)]
            shares = np.arange(1, len(values) + 1) / max(1, len(values))
            axis.step(values, 1 - shares, where="post", label=name, lw=1.8, **style | {"marker": None})
        axis.set(xlabel="faithfulness (LDS)", ylabel="share of predictions with more", ylim=(-0.02, 1.02))
    return _named(figure, {"": axis})


def weights_figure(probe: Probed, first: int = 0) -> Figure:
    """A heat map: a row for each target of a passage that begins with token `first`, a column for each token in it."""
    last = min(len(probe.tokens), first + _LABELLED)
    chosen = (probe.targets >= first) & (probe.targets < last)
    targets, weights = probe.targets[chosen].tolist(), probe.weights[chosen][:, first:last].float().numpy()
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
    """Blanks that can be seen, and no dollar that matplotlib would take for mathematics."""
    shown = piece.replace("\n", "↵").replace("\t", "⇥").replace("$", r"\$")
    return shown.replace(" ", "·") if not shown.strip() else shown.strip()


def _panels(quantities: Sequence[str], height: float = 2.9) -> tuple[Figure, dict[str, Any]]:
    figure = Figure(figsize=(13, height + 0.4), layout="constrained")
    axes = dict(zip(quantities, figure.subplots(1, len(quantities), sharey=True), strict=True))
    for quantity, axis in axes.items():
        axis.set_title(QUANTITY_NAMES[quantity], fontsize=9)
        axis.grid(alpha=0.25)
    return figure, axes


def _groups(rows: Sequence[Row]) -> dict[str, Style]:
    return styles(list(dict.fromkeys(row.group for row in rows)))


def _only(rows: Sequence[Row], quantity: str, by: str) -> list[Row]:
    return [row for row in rows if row.quantity == quantity and row.by == by]


def _curves(
    axis: Any, rows: Sequence[Row], groups: dict[str, Style], change: Callable[[float], float] = lambda value: value
) -> None:
    for group, style in groups.items():
        _line(axis, [(float(row.bin), row.estimate) for row in rows if row.group == group], group, style, change)


def _line(
    axis: Any,
    points: Sequence[tuple[float, Any]],
    name: str,
    style: Style,
    change: Callable[[float], float] = lambda value: value,
) -> None:
    """A curve through estimates, with a band where they have intervals."""
    axis.plot([x for x, _ in points], [change(e.value) for _, e in points], lw=1.8, ms=3, label=name, **style)
    bands = [(x, change(e.low), change(_finite(e.high, e.value))) for x, e in points if e.low is not None]
    if bands:
        places, low, high = zip(*bands, strict=True)
        axis.fill_between(places, low, high, color=style["color"], alpha=0.15, lw=0)


def _finite(high: float | None, value: float) -> float:
    """An interval without an upper end is drawn up to the figure itself."""
    return value if high is None or not math.isfinite(high) else high


def _lower_end(label: str) -> float:
    return float(label.split("..")[0])


def _named(figure: Figure, axes: dict[str, Any]) -> Figure:
    """The groups' names below the picture, where there are several groups."""
    handles, names = next(iter(axes.values())).get_legend_handles_labels()
    if len(names) > 1:
        figure.set_figheight(figure.get_figheight() + 0.3 * math.ceil(len(names) / 3))
        figure.legend(handles, names, frameon=False, fontsize=8, loc="outside lower center", ncols=3)
    return figure
