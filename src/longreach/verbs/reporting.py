"""`report`: tables, figures and a page from finished runs, files of scores, probes or measured reach."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from longreach.errors import BadInput, argument
from longreach.extension import ReachResult
from longreach.extension.result import FILE as REACH_FILE
from longreach.runs import find_runs

if TYPE_CHECKING:
    from longreach.reports import FigureConfig, ProbeReport, Report, Result

FORMS = (".html", ".pdf", ".svg", ".png")
"""Files of one page or one figure."""


class Reported(NamedTuple):
    """A written report and its sources."""

    report: "Report | ProbeReport | Path"
    """A path is the one file that was asked for, or the page of a measured reach."""
    results: "list[Result]"
    """Results of runs and files; empty for probes."""
    problems: list[str]
    """One line for each run or curve that is left out."""
    probes: list[Path]
    """Probes; empty for runs."""


def report(
    *paths: str | Path,
    out: str | Path | None = None,
    figure: str | None = None,
    size: str | None = None,
    metric: str | None = None,
    panels: str | None = None,
    x: str | None = None,
    y: str | None = None,
    scale: str | None = None,
) -> "Report | ProbeReport | Path":
    """Write figures, a page and a table and return their paths; or write one file and return its path.

    Args:
        paths: Folders of runs, files of scores (.csv, .json), folders of probes, or a folder that `reach` wrote.
        out: A folder, or a file: .html is the page, .pdf, .svg and .png are one figure.  By default the folder
            `report` below the first path; for a file `NAME.csv` the folder `NAME-report` in the working folder.
        figure: Kind of the figure: reach (default), heatmap, errors, mass, training, coverage or losses.
        size: Width of the figure: column (3.25 inches) or page (6.75 inches, the default).
        metric: Metric of reach and heatmap; by default that of the report.
        panels: Field with a panel for each value, in reach and heatmap: variant, a setting of the task or of the runs.
        x: Field along the heat map; by default length.
        y: Field down the heat map; by default variant.
        scale: Axis of lengths: log or linear; by default log if they differ by more than 4 times.

    Raises:
        BadInput: There is no finished run, file of scores or probe, or there are runs and probes, or the figure has no
            data or does not use a setting.
    """
    from longreach.reports import FigureConfig

    config = FigureConfig(figure=figure, size=size, metric=metric, panels=panels, x=x, y=y, scale=scale)
    return write(paths, out, config).report


def write(paths: Sequence[str | Path], out: str | Path | None = None, config: "FigureConfig | None" = None) -> Reported:
    """Write a report on runs, files or probes; see `report`."""
    from longreach.reports import (  # loads matplotlib
        FigureConfig,
        find_probes,
        load_results,
        write_probe_report,
        write_report,
    )

    if not paths:
        raise BadInput("a report needs at least one folder of runs or probes, or a file of scores")
    config = config or FigureConfig()
    places = [Path(path) for path in paths]
    target = _default_folder(places[0]) if out is None else Path(out)
    is_file = _is_file(target)
    if config.given() and not (is_file and target.suffix.lower() != ".html"):
        raise BadInput(
            f"{argument(config.given()[0])} concerns one figure: name a .pdf, .svg or .png in {argument('out')}"
        )
    measured = [
        record for path in places for record in ([path] if path.name == REACH_FILE else sorted(path.rglob(REACH_FILE)))
    ]
    if measured:
        return Reported(_write_reach(places, measured, out), [], [], [])
    probes = find_probes(places)
    if probes:
        if any(run for path in places for run in find_runs(path)):
            raise BadInput(f"{', '.join(map(str, places))} hold both runs and probes: report on one kind at a time")
        if is_file:
            raise BadInput(f"{target}: a report on probes is a folder with all figures")
        return Reported(write_probe_report(probes, target), [], [], probes)
    results, problems = load_results(places)
    if is_file:
        problems += _write_file(results, target, problems, config)
        return Reported(target, results, problems, [])
    return Reported(write_report(results, target, problems), results, problems, [])


def _write_reach(places: Sequence[Path], measured: Sequence[Path], out: str | Path | None) -> Path:
    """Draw the page of a measured reach again, by default beside its figures; return its path."""
    from longreach.extension.page import PAGE, write_page

    if len(measured) > 1 or any(run for path in places for run in find_runs(path)):
        raise BadInput(f"{', '.join(map(str, places))} hold more than one {REACH_FILE}, or runs too: name one folder")
    target = measured[0].parent if out is None else Path(out)
    if _is_file(target) and target.suffix.lower() != ".html":
        raise BadInput(f"{target}: a report on {REACH_FILE} is a page: name a folder or an .html file")
    page = target if _is_file(target) else target / PAGE
    page.parent.mkdir(parents=True, exist_ok=True)
    return write_page(ReachResult.load(measured[0]), page)


def _default_folder(path: Path) -> Path:
    """Return a folder beside no data that is kept: a report on a file goes into the working folder."""
    return Path(f"{path.stem}-report") if path.is_file() else path / "report"


def _is_file(out: Path) -> bool:
    """Return whether a path names a file to write; raise BadInput if it can be neither file nor folder."""
    if out.is_dir():
        return False
    if not out.suffix:
        if out.exists():
            raise BadInput(f"{out} is a file: a report needs a folder, or a name that ends in {', '.join(FORMS)}")
        return False
    if out.suffix.lower() not in FORMS:
        raise BadInput(f"{out}: a report is a folder or a file that ends in {', '.join(FORMS)}")
    if not out.resolve().parent.is_dir():
        raise BadInput(f"{out}: there is no folder {out.parent}")
    return True


def _write_file(results: "Sequence[Result]", path: Path, problems: Sequence[str], config: "FigureConfig") -> list[str]:
    """Write the page or a figure; return lines on what the figure leaves out."""
    from longreach.reports import render_page, write_figure
    from longreach.system.files import write_atomically

    if path.suffix.lower() != ".html":
        return write_figure(results, config, path)
    title = " / ".join(dict.fromkeys(result.title for result in results))
    write_atomically(path, render_page(results, title, problems).encode())
    return []
