"""The HTML page: one file that needs nothing else."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files

from jinja2 import Environment
from markupsafe import Markup

from longreach.evaluation import Score
from longreach.reports.curves import THRESHOLDS, Group, curves, drawn, headline_groups
from longreach.reports.figures import as_svg, coverage_figure, errors_figure, length_figure, loss_figure
from longreach.reports.load import Result, RunResult
from longreach.reports.tables import METRIC_NAMES, reach_text
from longreach.reports.text import losses_figure


@dataclass(frozen=True)
class _Cell:
    text: str
    tip: str
    trained: bool


@dataclass(frozen=True)
class _Row:
    variant: str
    setting: str
    metric: str
    seed: int
    cells: list[_Cell]


_METRICS = (
    "token_em_free",
    "token_em_tf",
    "token_id_em_tf",
    "next_token",
    "token_accuracy",
    "id_accuracy",
    "near_tie",
    "error_token_first",
    "error_id_first",
)


_ERRORS = {"token_accuracy": "step_error", "id_accuracy": "id_step_error"}
"""Shown as what is missing to 1: errors per step are small."""


def render_page(results: Sequence[Result], groups: list[Group], title: str) -> str:
    few, note = drawn(results)
    lengths = sorted({score.length for result in few for score in result.scores})
    first = {result.variant: result for result in reversed(few)}
    variants = list(dict.fromkeys(result.variant for result in few))
    only_text = all(group.metric == "next_token" for group in groups)
    # autoescape: names and settings come from files that anyone may have written
    template = Environment(autoescape=True).from_string(files("longreach.reports").joinpath("page.html.j2").read_text())
    return template.render(
        title=title,
        note=note,
        metric_name=METRIC_NAMES[groups[0].metric],
        several=any(len(group.curves) > 1 for group in groups),
        seeds=max(len(group.curves) for group in groups),
        groups=[group for group in groups if group.metric != "next_token"],
        losses_svg=Markup(as_svg(losses)) if (losses := losses_figure(few, "")) else None,
        thresholds=THRESHOLDS,
        reach_text=reach_text,
        lengths=lengths,
        rows=[row for result in few for row in _rows(result, lengths)],
        cards=[{"variant": name, "facts": _facts(first[name])} for name in variants],
        configs=[{"variant": name, "text": _settings(first[name])} for name in variants],
        runs=[{"path": run.folder.path.as_posix(), "info": run.info} for run in results if isinstance(run, RunResult)],
        length_svg=None if only_text else Markup(as_svg(length_figure(headline_groups(few) if note else groups, ""))),
        errors_svg=Markup(as_svg(errors)) if (errors := errors_figure(few)) else None,
        loss_svg=Markup(as_svg(loss_figure([run for run in few if isinstance(run, RunResult)]))),
        coverage_svg=Markup(as_svg(coverage_figure([run for run in few if isinstance(run, RunResult)]))),
    )


def _rows(result: Result, lengths: list[int]) -> list[_Row]:
    rows = []
    for metric in _METRICS:
        for curve in curves(result, metric):
            by_length = {score.length: score for score in curve.scores}
            shown = _ERRORS.get(metric, metric)
            cells = [_cell(by_length.get(length), metric, length <= (result.trained_to or 0)) for length in lengths]
            rows.append(_Row(curve.variant, curve.setting, shown, curve.seed, cells))
    return rows


def _cell(score: Score | None, metric: str, trained: bool) -> _Cell:
    if score is None:
        return _Cell("-", "", trained)
    if metric in _ERRORS:
        wrong = score.samples - score.hits
        return _Cell(f"{wrong / score.samples:.2g}", f"{wrong} of {score.samples} wrong", trained)
    low, high = score.interval()
    return _Cell(f"{score.rate:.3f}", f"{score.hits} of {score.samples}, 95% interval {low:.3f} to {high:.3f}", trained)


def _facts(result: Result) -> dict[str, object]:
    return {name: value for name, value in asdict(result.card).items() if name != "id_coverage"} if result.card else {}


def _settings(result: Result) -> str:
    return (result.folder.path / "config.yaml").read_text() if isinstance(result, RunResult) else ""
