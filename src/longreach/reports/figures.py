"""Figures: accuracy against length, the training loss, and which IDs training showed."""

import io
import math
import textwrap
from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from longreach.evaluation import TENTHS
from longreach.reports.curves import Group
from longreach.reports.curves import group as group_by_metric
from longreach.reports.load import Result, RunResult
from longreach.reports.tables import METRIC_NAMES
from longreach.system.labels import label

# Okabe and Ito's colours, which people with colour-blindness can tell apart
_COLOURS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
_DASHES = ("-", "--", ":", "-.")
_MARKERS = ("o", "s", "^", "D")
_FEW = 6
"""Curves whose names fit into the picture; those of more stand beside it."""

Style = dict[str, Any]


def styles(names: Sequence[str]) -> dict[str, Style]:
    """A colour and a kind of line for each name.  `pose-softmax` has the colour of `pose`, and dashes."""
    plain = {name: name.split(" (")[0] for name in names}
    families: dict[str, list[str]] = {}
    for name in names:
        parents = [other for other in plain.values() if plain[name].startswith(f"{other}-")]
        families.setdefault(min(parents, key=len, default=plain[name]), []).append(name)
    found = {}
    for number, members in enumerate(families.values()):
        for member, name in enumerate(sorted(members, key=len)):  # the family's own name comes first
            # when the colours are used up, other dashes; when those are, other markers
            turn = member + 2 * (number // len(_COLOURS))
            dashes, marker = _DASHES[turn % len(_DASHES)], _MARKERS[member // 2 % len(_MARKERS)]
            found[name] = {"color": _COLOURS[number % len(_COLOURS)], "linestyle": dashes, "marker": marker}
    return {name: found[name] for name in names}


def length_figure(groups: list[Group], title: str) -> Figure:
    """Every seed a thin line, their median a thick one.  One curve per variant; where the task was varied,
    one panel per variant and one curve per setting."""
    varied = any(group.setting for group in groups)
    panels = list(dict.fromkeys(group.variant for group in groups)) if varied else [""]
    figure = Figure(figsize=(max(7.0, 4.6 * len(panels)), 4.4), layout="constrained")
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    name_of = attrgetter("setting" if varied else "variant")
    style = styles(list(dict.fromkeys(map(name_of, groups))))
    for axis, panel in zip(axes, panels, strict=True):
        shown = [group for group in groups if panel in ("", group.variant)]
        for group in shown:
            _draw(axis, group, name_of(group), style[name_of(group)])
        trained = [group.trained_to for group in shown if group.trained_to is not None]
        if trained:
            axis.axvspan(axis.get_xlim()[0], max(trained), color="#000000", alpha=0.06, lw=0)
            axis.text(max(trained), 1.045, "trained up to here ", ha="right", va="bottom", fontsize=8, color="#555555")
        lengths = sorted({length for group in shown for length in group.middle()})
        if lengths[-1] > 4 * lengths[0]:
            axis.set_xscale("log", base=2)
            axis.xaxis.set_major_formatter(matplotlib.ticker.FormatStrFormatter("%d"))
        axis.set(xlabel="length", ylim=(-0.03, 1.12), title=label(panel))
        axis.set_yticks([0, 0.25, 0.5, 0.75, 1])
        axis.grid(alpha=0.25)
        if len(style) <= _FEW:
            axis.legend(frameon=False, loc="best")
    if len(style) > _FEW:
        figure.set_figwidth(figure.get_figwidth() + 2)
        lines = {line.get_label(): line for axis in axes for line in axis.get_legend_handles_labels()[0]}
        figure.legend(handles=list(lines.values()), frameon=False, loc="outside right center", handlelength=3)
    axes[0].set_ylabel(METRIC_NAMES[groups[0].metric])
    figure.suptitle(label("\n".join(textwrap.wrap(title, int(10 * figure.get_figwidth())))), fontsize=11)
    return figure


def errors_figure(results: Sequence[Result]) -> Figure | None:
    """ID accuracy by length, where answers first go wrong, and whether by a token or by an ID; None without errors."""
    variants = list(dict.fromkeys(result.variant for result in results))
    counts = {name: _error_counts([r for r in results if r.variant == name]) for name in variants}
    id_curves = [group for group in group_by_metric(results, "id_accuracy") if not group.setting]
    if not any(sum(by_kind.values()) for by_kind, _ in counts.values()) and not id_curves:
        return None
    figure = Figure(figsize=(11, 3.4), layout="constrained")
    accuracy, place, kind = figure.subplots(1, 3)
    style = styles(variants)
    for group in id_curves:
        _draw(accuracy, group, group.variant, style[group.variant])
    accuracy.set(title="IDs right, given the true prefix", xlabel="length", xscale="log", ylim=(-0.03, 1.05))
    if id_curves:
        accuracy.legend(frameon=False, fontsize=7)
    for name, (_, by_place) in counts.items():
        total = sum(by_place)
        if total:
            share = [count / total for count in by_place]
            middle = [(tenth + 0.5) / TENTHS for tenth in range(TENTHS)]
            place.plot(middle, share, ms=3, lw=1.2, label=label(name), **style[name])
    place.set(title="place of the first error", xlabel="share of the answer written", ylabel="share of wrong answers")
    shown = [name for name in variants if sum(counts[name][0].values())]
    token = [counts[name][0]["error_token_first"] / sum(counts[name][0].values()) for name in shown]
    names = [label(name) for name in shown]
    kind.barh(names, token, color="#999999", label="token first")
    kind.barh(names, [1 - share for share in token], left=token, color="#0072B2", label="ID first")
    kind.set(title="what went wrong first", xlim=(0, 1))
    kind.tick_params(axis="y", labelsize=7)
    kind.invert_yaxis()
    if shown:
        kind.legend(frameon=False, fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.08), ncols=2)
        if len(shown) <= _FEW:
            place.legend(frameon=False, fontsize=7)
        else:  # below all, where there is room
            figure.set_figheight(figure.get_figheight() + 0.6)
            figure.legend(
                *place.get_legend_handles_labels(), frameon=False, fontsize=7, loc="outside lower center", ncols=7
            )
    return figure


def _error_counts(results: Sequence[Result]) -> tuple[dict[str, int], list[int]]:
    """Errors by kind, and by tenth of the answer, at all lengths beyond training."""
    kinds, places = {"error_token_first": 0, "error_id_first": 0}, [0] * TENTHS
    for result in results:
        for score in result.scores:
            if result.trained_to is not None and score.length <= result.trained_to:
                continue
            if score.metric in kinds:
                kinds[score.metric] += score.hits
            elif score.metric.startswith("first_error_tenth_"):
                places[int(score.metric.rsplit("_", 1)[1])] += score.hits
    return kinds, places


def loss_figure(results: Sequence[RunResult]) -> Figure:
    """Training loss by step, one line per run."""
    figure = Figure(figsize=(7, 3), layout="constrained")
    axis = figure.subplots()
    style = styles(list(dict.fromkeys(result.variant for result in results)))
    for result in results:
        lines = [line for line in result.folder.metrics() if "loss" in line]
        name = label(result.variant) if result is next(r for r in results if r.variant == result.variant) else None
        loss = [max(line["loss"], 1e-8) for line in lines]
        axis.plot([line["step"] for line in lines], loss, lw=1, label=name, **style[result.variant] | {"marker": None})
    axis.set(xlabel="step", ylabel="training loss", yscale="log")
    axis.grid(alpha=0.25)
    if len(style) <= _FEW:
        axis.legend(frameon=False)
    else:
        figure.set_figwidth(9)
        figure.legend(frameon=False, fontsize=7, loc="outside right center", handlelength=3)
    return figure


def coverage_figure(results: Sequence[RunResult]) -> Figure:
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
        axis.set_title(label(f"{result.variant}: IDs {result.card.trained_ids}"), fontsize=8)
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


def _draw(axis: "matplotlib.axes.Axes", group: Group, name: str, style: Style) -> None:
    middle, colour = group.middle(), style["color"]
    axis.plot(list(middle), list(middle.values()), lw=2.2, ms=4, label=label(name), **style)
    if len(group.curves) == 1:
        bounds = [score.interval() for score in group.curves[0].scores]
        axis.fill_between(
            list(middle), [low for low, _ in bounds], [high for _, high in bounds], color=colour, alpha=0.15, lw=0
        )
    else:
        for curve in group.curves:
            axis.plot(list(curve.rates), list(curve.rates.values()), color=colour, lw=0.7, alpha=0.5)
