"""The page of `longreach reach`: curves, retrieval by depth and all figures, in one file that needs nothing else."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import matplotlib
from markupsafe import Markup
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from longreach.evaluation import RISE, By
from longreach.extension.result import ReachResult, pooled, verdict
from longreach.extension.retrieval import RETRIEVED, VALUES, RetrievalScore
from longreach.reports.axes import legend_below, length_axis, limit_lengths, make_panels, name_axes
from longreach.reports.page import asset, template
from longreach.reports.style import as_svg, paper_style, styles
from longreach.reports.text import LossCurves, draw_losses
from longreach.system.files import write_atomically
from longreach.system.labels import label, visible

PAGE = "reach.html"
_NO_NEEDLE = "no needle"
_TRAINED: dict[str, Any] = {"color": "#555555", "lw": 0.8, "ls": (0, (1, 2))}
"""Look of the line at the trained length."""


def write_page(result: ReachResult, path: Path) -> Path:
    """Write the page into an .html file and return its path."""
    write_atomically(path, render_reach(result).encode())
    return path


def render_reach(result: ReachResult) -> str:
    """Return the page as HTML."""
    named = len(result.measured) > 1
    lines = [f"{name}: {verdict(one)}" if named else verdict(one) for name, one in result.measured.items()]
    drawn = {
        "Loss": (
            losses_figure(result),
            f"The same tokens at every context. Bands: 95% over {result.texts.unit}. The loss holds up to the longest"
            f" context before it is more than {RISE} nats above the least at shorter contexts.",
        ),
        "Gain of the last doubling": (
            gains_figure(result),
            "Loss at half of the context minus loss at the context, on the same tokens: above 0, the model uses the"
            f" tokens that were added. Bars: 95% over {result.texts.unit}.",
        ),
        "Retrieval": (
            retrieval_figure(result),
            f"Right answers out of {len(VALUES)} values, at all depths together, with Wilson's interval (95%). Level"
            f" lines: guessing, and {RETRIEVED:.0%}, from which a context counts as retrieved.",
        ),
    }
    page: str = template("reach.html.j2").render(
        title=visible(f"How far does it hold? {result.model.name}"),
        css=asset("explorer.css"),
        verdicts=[visible(line) for line in lines],
        left_out=[visible(line) for line in result.left_out],
        sections=[
            {"title": title, "svg": Markup(as_svg(figure)), "caption": caption}
            for title, (figure, caption) in drawn.items()
            if figure is not None
        ],
        grids=_grids(result),
        tables=[
            {"title": f"All figures: {visible(name)}" if named else "All figures", **table(result, name)}
            for name in result.measured
        ],
        facts={name: visible(str(value)) for name, value in _facts(result).items()},
    )
    return page


@paper_style()
def losses_figure(result: ReachResult) -> Figure:
    """Draw loss by context and by position; a line for each measurement."""
    panels: dict[By, list[LossCurves]] = {
        by: [
            LossCurves(name, [[loss for loss in one.losses if loss.by == by]], _trained(result))
            for name, one in result.measured.items()
        ]
        for by in get_args(By)
    }
    return draw_losses(panels, styles(list(result.measured)), "")


@paper_style()
def gains_figure(result: ReachResult) -> Figure | None:
    """Draw the gain of the last doubling by context; None if no half of a context was measured."""
    lines: Lines = {
        name: [(gain.context, gain.nats, gain.low, gain.high) for gain in one.gains]
        for name, one in result.measured.items()
    }
    return _draw(result, {"": lines}, "gain (nats per token)", {0.0: "-"}) if any(lines.values()) else None


@paper_style()
def retrieval_figure(result: ReachResult) -> Figure | None:
    """Draw right answers by context; None if nothing was asked.

    A panel has all numbers of needles, or with several measurements one number and a line for each of them.
    """
    shares = {
        (name, _needles(number)): [
            (score.context, score.right / score.questions, *score.interval()) for score in pooled(one.retrieval, number)
        ]
        for name, one in result.measured.items()
        for number in sorted({score.needles for score in one.retrieval})
    }
    panels: dict[str, Lines] = {}
    for (name, needles), points in shares.items():
        panel, line = (needles, name) if len(result.measured) > 1 else ("", needles)
        panels.setdefault(panel, {})[line] = points
    if not panels:
        return None
    figure = _draw(result, panels, "right answers", {1 / len(VALUES): ":", RETRIEVED: "--"})
    for axis in figure.axes:
        axis.set_ylim(-0.03, 1.03)
    return figure


Point = tuple[int, float, float | None, float | None]
"""Context, figure, and the ends of its interval."""
Lines = dict[str, Sequence[Point]]


def _draw(result: ReachResult, panels: Mapping[str, Lines], title: str, marks: Mapping[float, str]) -> Figure:
    """Draw a panel for each group of lines; `marks` are horizontal lines with their dashes."""
    contexts, trained = list(result.settings.contexts), _trained(result)
    look = styles(list(next(iter(panels.values()))))
    figure, axes = make_panels(len(panels), "page", ratio=0.3 if len(panels) == 1 else 0.72)
    for axis, (panel, lines) in zip(axes, panels.items(), strict=True):
        for name, points in lines.items():
            color = look[name]["color"]
            axis.plot(*zip(*((x, y) for x, y, _, _ in points), strict=True), lw=1.5, ms=3, mew=0, **look[name])
            for x, _, low, high in points:
                if low is not None and high is not None:
                    axis.plot([x, x], [low, high], color=color, lw=0.9, alpha=0.6)
        for height, dashes in marks.items():
            axis.axhline(height, color="#555555", lw=0.8, ls=dashes)
        if trained is not None:
            axis.axvline(trained, **_TRAINED)
        limit_lengths(axis, contexts, None)
        length_axis(axis, contexts)
        axis.set_title(panel)
    name_axes(axes, "tokens of context", title)
    handles = [Line2D([], [], lw=1.5, ms=3, label=label(name), **look[name]) for name in look]
    if trained is not None:
        handles.append(Line2D([], [], label="trained length", **_TRAINED))
    legend_below(figure, handles)
    return figure


def _trained(result: ReachResult) -> int | None:
    """Return the trained length if it lies among the contexts."""
    trained, contexts = result.model.trained_to, list(result.settings.contexts)
    return trained if trained is not None and contexts[0] <= trained <= contexts[-1] else None


def _needles(number: int) -> str:
    return _NO_NEEDLE if number == 0 else "1 needle" if number == 1 else f"{number} needles"


def _grids(result: ReachResult) -> list[dict[str, Any]]:
    """Return a table of right answers by depth and context for each measurement and number of needles."""
    grids = []
    for name, one in result.measured.items():
        for number in sorted({score.needles for score in one.retrieval if score.needles}):
            cells = {(score.depth, score.context): score for score in one.retrieval if score.needles == number}
            contexts = sorted({context for _, context in cells})
            rows = [
                {"depth": f"{depth:g}", "cells": [_cell(cells.get((depth, context))) for context in contexts]}
                for depth in result.settings.depths
            ]
            suffix = f" ({visible(name)})" if len(result.measured) > 1 else ""
            grids.append(
                {
                    "title": f"Retrieval by depth, {_needles(number)}{suffix}",
                    "caption": "Right answers by tokens of context and share of the text in front of the needle.",
                    "contexts": contexts,
                    "rows": rows,
                }
            )
    return grids


def _cell(score: RetrievalScore | None) -> dict[str, str] | None:
    if score is None:
        return None
    share = score.right / score.questions
    low, high = score.interval()
    return {
        "text": f"{score.right}/{score.questions}",
        "colour": to_hex(matplotlib.colormaps["Blues"](0.6 * share)),
        "interval": f"{share:.2f} ({low:.2f} to {high:.2f})",
    }


def table(result: ReachResult, name: str) -> dict[str, Any]:
    """Return names of columns and a row of text for each context of a measurement."""
    one = result.measured[name]
    losses = {loss.size: loss for loss in one.losses if loss.by == "context"}
    gains = {gain.context: gain for gain in one.gains}
    numbers = sorted({score.needles for score in one.retrieval})
    shares = {number: {score.context: score for score in pooled(one.retrieval, number)} for number in numbers}
    rows = []
    for context, loss in losses.items():
        gain = gains.get(context)
        cells = [str(context), _interval(loss.nats, loss.low, loss.high, 3)]
        cells.append("" if gain is None else _interval(gain.nats, gain.low, gain.high, 3))
        for number in numbers:
            score = shares[number].get(context)
            cells.append("" if score is None else _interval(score.right / score.questions, *score.interval(), 2))
        rows.append(cells)
    return {"columns": ["context", "loss", "gain of doubling", *map(_needles, numbers)], "rows": rows}


def _interval(value: float, low: float | None, high: float | None, digits: int) -> str:
    middle = f"{value:.{digits}f}"
    return middle if low is None or high is None else f"{middle} ({low:.{digits}f} to {high:.{digits}f})"


def _facts(result: ReachResult) -> dict[str, object]:
    model, texts, settings = result.model, result.texts, result.settings
    few = result.probe
    facts: dict[str, object] = {
        "model": f"{model.name}, {model.type}, {model.parameters:,} parameters",
        "trained length": model.trained_to or "unknown",
        "fingerprint of the model": model.fingerprint,
        "texts": ", ".join(texts.sources),
        texts.unit: f"{texts.units}, {texts.tokens:,} tokens",
        "fingerprint of the texts": texts.fingerprint,
        "tokens predicted from each context": settings.samples,
        "questions at each depth": settings.questions if settings.retrieval else "none",
        "seed": settings.seed,
        "versions": ", ".join(f"{name} {value}" for name, value in result.versions.items()),
        "device": model.device,
        "seconds": f"{result.seconds:.0f}",
    }
    if few is not None:
        median = "more than any tried" if few["k_sufficient"] is None else f"{few['k_sufficient']:g}"
        facts["tokens that suffice for a prediction"] = f"median {median}, in {few['passages']} passages"
    return facts
