"""`report`: tables, figures and a page from finished runs or probes."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from longreach.errors import BadInput
from longreach.runs import find_runs

if TYPE_CHECKING:
    from longreach.reports import ProbeReport, Report, Result


class Reported(NamedTuple):
    """A written report and its sources."""

    report: "Report | ProbeReport"
    results: "list[Result]"
    """Finished runs; empty for probes."""
    unfinished: list[str]
    """One line for each run that is not finished."""
    probes: list[Path]
    """Probes; empty for runs."""


def report(*paths: str | Path, out: str | Path | None = None) -> "Report | ProbeReport":
    """Write figures, a page and a table; return their paths.

    Args:
        paths: Folders of runs, or folders of probes.
        out: Folder of the report; by default `report` below the first path.

    Raises:
        BadInput: There is no finished run or probe, or there are both.
    """
    return write(paths, out).report


def write(paths: Sequence[str | Path], out: str | Path | None = None) -> Reported:
    """Write a report on runs or probes; see `report`."""
    from longreach.reports import find_probes, load_results, write_probe_report, write_report  # loads matplotlib

    if not paths:
        raise BadInput("a report needs at least one folder of runs or probes")
    folders = [Path(path) for path in paths]
    target = folders[0] / "report" if out is None else Path(out)
    probes = find_probes(folders)
    if probes:
        if any(run for path in folders for run in find_runs(path)):
            raise BadInput(f"{', '.join(map(str, folders))} hold both runs and probes: report on one kind at a time")
        return Reported(write_probe_report(probes, target), [], [], probes)
    results, unfinished = load_results(folders)
    return Reported(write_report(results, target, unfinished), results, unfinished, [])
