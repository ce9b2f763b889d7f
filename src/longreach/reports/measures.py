"""Why a model fails with length: attention on the true dependencies and margins, as rows, tables and a figure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from rich.table import Table

from longreach.evaluation import MEASURES, Measure
from longreach.reports.axes import Size, legend_below, length_axis, limit_lengths, make_panels, set_titles, wrap
from longreach.reports.load import ModelMeasures, Result, variant_order
from longreach.reports.style import TRAINED, Style, paper_style, shades, styles
from longreach.reports.tables import Column, TableRow, length_table
from longreach.system.labels import label

TITLES = {
    "mass": "attention on the true dependencies",
    "margin": "margin of the true ID (nats)",
    "token_margin": "margin of the true token (nats)",
}
_FEW = 3
"""Variants up to which the heads that were not chosen are drawn too."""
_LEVEL_MARKERS = ("o", "s", "^", "D")
_EVEN: Style = {"color": "#555555", "lw": 1, "ls": ":"}
_THIN = {
    (True, False): "thin: seeds, other heads",
    (False, True): "thin: seeds, lowest 1% of steps",
    (True, True): "thin: seeds, other heads, lowest 1% of steps",
}
"""Legends of thin lines, by the panels that exist: (attention, margins)."""


@dataclass(frozen=True)
class MeasuredRun:
    """The measures of one run, and what its curves are called."""

    variant: str
    seed: int
    trained_to: int | None
    """Longest training length, if it is known."""
    measured: ModelMeasures

    def entries(self, measure: str, keep: Callable[[Measure], bool]) -> list[Measure]:
        """Return some entries of a measure, by rising length."""
        found = [entry for entry in self.measured.entries if entry.measure == measure and keep(entry)]
        return sorted(found, key=lambda entry: entry.length)


def measured_runs(results: Sequence[Result]) -> list[MeasuredRun]:
    """Return the measures of all results that have some."""
    return [
        MeasuredRun(result.variant, result.seed, result.trained_to, result.measured)
        for result in results
        if result.measured is not None
    ]


def measures_data(results: Sequence[Result]) -> list[dict[str, Any]]:
    """Return a plain row for each measure of the runs' own test IDs.

    `low` and `high` are the 95% interval of the mean over samples, None for one sample.  `best` marks the heads that
    were chosen at the longest training length.  Values that do not apply are None.
    """
    return [_row(run, entry) for run in measured_runs(results) for entry in run.measured.entries]


def _row(run: MeasuredRun, entry: Measure) -> dict[str, Any]:
    low, high = entry.interval() or (None, None)
    return {
        "variant": run.variant,
        "seed": run.seed,
        "measure": entry.measure,
        "name": measure_name(entry),
        "length": entry.length,
        "setting": entry.setting,
        "overrides": dict(entry.overrides),
        "mean": entry.mean,
        "low": low,
        "high": high,
        "samples": entry.samples,
        "steps": entry.steps,
        "lowest": entry.lowest,
        "best": entry.measure == "mass" and run.measured.is_best(entry),
        "layer": entry.layer,
        "head": entry.head,
        "dependency": entry.dependency,
        "level": entry.level,
        "even": entry.even,
        "low_quantile": entry.low_quantile,
        "not_ahead": None if entry.not_ahead is None else entry.not_ahead / entry.steps,
        "trained": run.trained_to is not None and entry.length <= run.trained_to,
    }


def measure_name(entry: Measure) -> str:
    """Return the head or the level that an entry is about, counted from 0 as `inspect` does."""
    if entry.measure != "mass":
        return entry.level or "token"
    head = f"layer {entry.layer} head {entry.head}"
    return head if entry.dependency is None else f"{head}, dependency {entry.dependency}"


@dataclass(frozen=True)
class _Line:
    """One row of a table or curve of a figure: the values of each seed by length."""

    variant: str
    setting: str
    name: str
    seeds: list[dict[int, float]]

    def middle(self) -> dict[int, float]:
        """Return the median over seeds at each length."""
        lengths = sorted({length for seed in self.seeds for length in seed})
        return {n: median(seed[n] for seed in self.seeds if n in seed) for n in lengths}


def _lines(
    runs: Sequence[MeasuredRun],
    measure: str,
    value: Callable[[Measure], float],
    name: Callable[[Measure], str],
    keep: Callable[[MeasuredRun, Measure], bool] = lambda run, entry: True,
) -> list[_Line]:
    """Group entries by variant, setting and name."""
    found: dict[tuple[str, str, str], dict[int, dict[int, float]]] = {}
    for number, run in enumerate(runs):
        for entry in run.entries(measure, lambda entry, run=run: keep(run, entry)):  # type: ignore[misc]
            seeds = found.setdefault((run.variant, entry.setting, name(entry)), {})
            seeds.setdefault(number, {})[entry.length] = value(entry)
    return [_Line(*key, list(seeds.values())) for key, seeds in found.items()]


def _best(run: MeasuredRun, entry: Measure) -> bool:
    return run.measured.is_best(entry)


def _table_lines(runs: Sequence[MeasuredRun], measure: str) -> list[_Line]:
    if measure == "mass":
        best = _lines(runs, measure, lambda entry: entry.mean, lambda entry: "best head", _is_best_of_all)
        return [*best, *_lines(runs, measure, _even, lambda entry: "even attention", _is_best_of_all)]
    means = _lines(runs, measure, lambda entry: entry.mean, measure_name)
    return [*means, *_lines(runs, measure, _not_ahead, lambda entry: f"{measure_name(entry)}: not ahead")]


def _even(entry: Measure) -> float:
    return entry.even or 0.0


def _not_ahead(entry: Measure) -> float:
    return (entry.not_ahead or 0) / entry.steps


def _is_best_of_all(run: MeasuredRun, entry: Measure) -> bool:
    return entry.dependency is None and run.measured.is_best(entry)


def measure_tables(runs: Sequence[MeasuredRun], width: int = 80) -> list[Table]:
    """Return a table of each measure by length: medians over seeds, as many lengths as fit into the width."""
    found = []
    for measure in MEASURES:
        lines = _table_lines(runs, measure)
        if lines:
            lines.sort(key=lambda line: [run.variant for run in runs].index(line.variant))
            found.append(_table(lines, TITLES[measure], runs, width))
    return found


def _table(lines: list[_Line], title: str, runs: Sequence[MeasuredRun], width: int) -> Table:
    several = len({(run.variant, run.seed) for run in runs}) > len({run.variant for run in runs})
    trained = {run.variant: run.trained_to for run in runs}
    front = [Column("variant", [line.variant for line in lines], folds=True)]
    if any(line.setting for line in lines):
        front.append(Column("setting", [line.setting for line in lines], folds=True))
    front.append(Column("of", [line.name for line in lines], folds=True))
    rows = [
        TableRow({length: f"{value:.3g}" for length, value in line.middle().items()}, trained[line.variant])
        for line in lines
    ]
    return length_table(title, "median over seeds" if several else "", front, rows, [], width)


@paper_style()
def measures_figure(results: Sequence[Result], title: str = "", size: Size = "page") -> Figure | None:
    """Draw each measure that exists against length, one panel each; None if nothing was measured.

    Attention: the head that was chosen at the longest training length is thick, and of few variants the other heads are
    thin; dotted is even attention.  Margins: the mean is thick, and 1% of the steps lie at or below the thin line.
    """
    runs = measured_runs(results)
    panels = [measure for measure in MEASURES if any(run.entries(measure, _any) for run in runs)]
    if not panels:
        return None
    figure, axes = make_panels(len(panels), size, narrowest=3.0, share_y=False)
    style = styles(variant_order(results))
    looks: dict[str, Style] = {}
    for axis, measure in zip(axes, panels, strict=True):
        looks |= (_draw_mass if measure == "mass" else _draw_margin)(axis, runs, measure, style)
        _frame(axis, runs, measure)
    if title:
        figure.suptitle(wrap(title, 100), fontsize=9)
    handles: list[Any] = [Line2D([], [], lw=1.4, ms=3.5, label=label(name), **look) for name, look in looks.items()]
    if "mass" in panels:
        handles.append(Line2D([], [], label="even attention", **_EVEN))
    handles.append(Line2D([], [], color="#555555", lw=0.6, label=_THIN[panels[0] == "mass", panels[-1] != "mass"]))
    if any(run.trained_to for run in runs):
        handles.append(Patch(color=TRAINED, label="training lengths"))
    legend_below(figure, handles)
    return figure


def _any(entry: Measure) -> bool:
    return True


def _draw_mass(axis: Any, runs: Sequence[MeasuredRun], measure: str, style: dict[str, Style]) -> dict[str, Style]:
    """Draw attention on what is needed; return the look of every thick curve."""
    if len({run.variant for run in runs}) <= _FEW:
        first = list({run.variant: run for run in reversed(runs)}.values())
        others = _lines(
            first, measure, lambda e: e.mean, measure_name, lambda run, e: e.dependency is None and not _best(run, e)
        )
        for line in others:
            _draw_thin(axis, line.middle(), style[line.variant])
    best = _lines(runs, measure, lambda e: e.mean, lambda e: "best head", _is_best_of_all)
    looks = _settings_apart(best, style)
    for line in best:
        _draw(axis, line, looks[_curve_name(line)])
    for points in {
        tuple(line.middle().items()) for line in _lines(runs, measure, _even, measure_name, _is_best_of_all)
    }:
        axis.plot(*zip(*points, strict=True), **_EVEN)
    axis.set_ylim(-0.03, 1.05)
    return looks


def _draw_margin(axis: Any, runs: Sequence[MeasuredRun], measure: str, style: dict[str, Style]) -> dict[str, Style]:
    """Draw margins and the margin of the lowest steps; return the look of every thick curve and of every level."""
    means = _lines(runs, measure, lambda e: e.mean, measure_name)
    levels = list(dict.fromkeys(line.name for line in means))
    lowest = _lines(runs, measure, lambda e: e.low_quantile or 0.0, measure_name)
    looks = _settings_apart(means, style)
    markers = {level: _LEVEL_MARKERS[number % len(_LEVEL_MARKERS)] for number, level in enumerate(levels)}
    for line, low in zip(means, lowest, strict=True):
        look = looks[_curve_name(line)]
        if len(levels) > 1:  # markers tell levels apart; colours and kinds of lines tell variants apart
            look = look | {"marker": markers[line.name]}
        _draw(axis, line, look)
        _draw_thin(axis, low.middle(), look)
    axis.axhline(0, color="#555555", lw=1)
    of_levels: Style = {"color": "#555555", "linestyle": ""}
    return looks | ({level: of_levels | {"marker": markers[level]} for level in levels} if len(levels) > 1 else {})


def _settings_apart(lines: Sequence[_Line], style: dict[str, Style]) -> dict[str, Style]:
    """Return the style of each curve: that of its variant; of one variant, settings run from dark to bright."""
    settings = shades(list(dict.fromkeys(line.setting for line in lines)))
    if len(settings) == 1:
        return {_curve_name(line): style[line.variant] for line in lines}
    if len({line.variant for line in lines}) == 1:
        return {_curve_name(line): settings[line.setting] for line in lines}
    return {_curve_name(line): style[line.variant] | {"marker": settings[line.setting]["marker"]} for line in lines}


def _curve_name(line: _Line) -> str:
    return f"{line.variant}, {line.setting}" if line.setting else line.variant


def _draw(axis: Any, line: _Line, look: Style) -> None:
    """Draw the median over seeds, and every seed as a thin line if there are several."""
    middle = line.middle()
    axis.plot(list(middle), list(middle.values()), lw=1.5, ms=3.2, markeredgewidth=0, **look)
    for seed in line.seeds if len(line.seeds) > 1 else ():
        _draw_thin(axis, seed, look)


def _draw_thin(axis: Any, points: dict[int, float], look: Style) -> None:
    axis.plot(list(points), list(points.values()), lw=0.6, alpha=0.5, color=look["color"], ls=look["linestyle"])


def _frame(axis: Any, runs: Sequence[MeasuredRun], measure: str) -> None:
    """Set the scale and the labels, and shade the training lengths."""
    shown = [run for run in runs if run.entries(measure, _any)]
    lengths = sorted({entry.length for run in shown for entry in run.entries(measure, _any)})
    longest = max((run.trained_to or 0 for run in shown), default=0)
    limit_lengths(axis, [*lengths, *([min(longest, lengths[-1])] if longest else [])], None)
    length_axis(axis, lengths)
    left = axis.get_xlim()[0]
    if longest > left:
        axis.axvspan(left, longest, color=TRAINED, lw=0, zorder=0)
    set_titles([axis], [TITLES[measure]])
    axis.set_xlabel("length")
