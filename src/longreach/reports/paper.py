"""One figure for a paper, as a file."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_args

from matplotlib.figure import Figure

from longreach.errors import BadInput, argument
from longreach.reports.axes import Scale, Size, choose
from longreach.reports.curves import drawn, has_exact_match, has_losses
from longreach.reports.errors_figure import errors_figure, has_errors
from longreach.reports.figures import coverage_figure, loss_figure, reach_figure, save_figure
from longreach.reports.heatmap_figure import heatmap_figure
from longreach.reports.load import Result, RunResult
from longreach.reports.measures import measures_figure
from longreach.reports.text import losses_figure

FIGURES = {
    "reach": ("size", "metric", "panels", "scale"),
    "heatmap": ("size", "metric", "panels", "x", "y"),
    "errors": ("size", "scale"),
    "mass": ("size",),
    "training": ("size",),
    "coverage": ("size",),
    "losses": ("size", "scale"),
}
"""Kinds of figures, and the settings that each uses."""


@dataclass(frozen=True, kw_only=True)
class FigureConfig:
    """Settings of a figure; None leaves the choice to the figure."""

    figure: str | None = None
    """A kind among FIGURES; by default `reach`, or `losses` for texts."""
    size: str | None = None
    metric: str | None = None
    panels: str | None = None
    x: str | None = None
    y: str | None = None
    scale: str | None = None

    def __post_init__(self) -> None:
        if self.figure is not None:
            choose("figure", self.figure, list(FIGURES))
        if self.size is not None:
            choose("size", self.size, get_args(Size))
        if self.scale is not None:
            choose("scale", self.scale, get_args(Scale))

    def given(self) -> list[str]:
        """Return the names of the settings that are not None."""
        return [field.name for field in fields(self) if getattr(self, field.name) is not None]


def draw_figure(results: Sequence[Result], config: FigureConfig) -> tuple[Figure, list[str]]:
    """Return a figure, and lines on what it leaves out."""
    kind = config.figure or ("reach" if any(result.scores for result in results) else "losses")
    unused = [name for name in config.given() if name not in ("figure", *FIGURES[kind])]
    if unused:
        raise BadInput(f"{argument('figure', kind)} does not use {', '.join(map(argument, unused))}")
    few, note = drawn(results, lambda result: _shows(kind, config.metric, result))
    notes = [f"the figure shows {note.split(';')[0]}"] if note else []
    settings = {name: getattr(config, name) for name in config.given() if name != "figure"}
    figure = _draw(kind, few, settings)
    if figure is None:
        raise BadInput(f"there is nothing to draw for {argument('figure', kind)}: {_LACKING[kind]}")
    return figure, notes


def _shows(kind: str, metric: str | None, result: Result) -> bool:
    """Return whether a kind of figure draws something of a result."""
    match kind:
        case "errors":
            return has_errors(result)
        case "mass":
            return result.measured is not None
        case "training":
            return isinstance(result, RunResult) and bool(result.training)
        case "coverage":
            return result.card is not None
        case "losses":
            return has_losses(result)
        case _:
            return has_exact_match(result) if metric is None else any(s.metric == metric for s in result.scores)


_LACKING = {
    "errors": "no answer of the model's own is wrong",
    "mass": "no result has measures of attention",
    "training": "only folders of runs have a training log",
    "coverage": "no result has an information card",
    "losses": "no result has losses of texts",
}


def _draw(kind: str, results: Sequence[Result], settings: dict[str, Any]) -> Figure | None:
    match kind:
        case "heatmap":
            return heatmap_figure(results, **settings)
        case "errors":
            return errors_figure(results, **settings)
        case "mass":
            return measures_figure(results, **settings)
        case "training":
            return loss_figure([result for result in results if isinstance(result, RunResult)], **settings)
        case "coverage":
            return coverage_figure(results, **settings)
        case "losses":
            return losses_figure(results, "", **settings)
        case _:
            return reach_figure(results, **settings)


def write_figure(results: Sequence[Result], config: FigureConfig, path: Path) -> list[str]:
    """Write a figure in the form that the name asks for; return lines on what it leaves out."""
    figure, notes = draw_figure(results, config)
    save_figure(figure, path)
    return notes
