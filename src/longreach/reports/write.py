"""Write a report: figure, page and all scores in one table."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from longreach.evaluation import to_csv
from longreach.reports.curves import Group, drawn, headline_groups
from longreach.reports.errors_figure import errors_figure
from longreach.reports.figures import reach_figure, save_figure
from longreach.reports.load import Result
from longreach.reports.page import render_page
from longreach.reports.text import losses_figure, losses_to_csv
from longreach.system.files import write_atomically


@dataclass(frozen=True)
class Report:
    title: str
    groups: list[Group]
    png: Path
    html: Path
    csv: Path


def write_report(results: Sequence[Result], folder: Path, problems: Sequence[str] = ()) -> Report:
    title = " / ".join(dict.fromkeys(result.title for result in results))
    groups = headline_groups(results)
    folder.mkdir(parents=True, exist_ok=True)
    few, note = drawn(results)
    heading = f"{title} ({note})" if note else title
    losses = losses_figure(few, heading)
    only_text = all(group.metric == "next_token" for group in groups)
    png = folder / ("losses.png" if only_text else "accuracy.png")
    report = Report(title, groups, png, folder / "report.html", folder / "scores.csv")
    if not only_text:
        save_figure(reach_figure(few, title=heading), report.png)
    if losses is not None:
        save_figure(losses, folder / "losses.png")
        write_atomically(folder / "losses.csv", losses_to_csv(results).encode())
    errors = errors_figure(few)
    if errors is not None:
        save_figure(errors, folder / "errors.png")
    write_atomically(report.html, render_page(results, title, problems).encode())
    scores = [score for result in results for score in result.scores]
    labels = [_label(result) for result in results for _ in result.scores]
    write_atomically(report.csv, to_csv(scores, labels).encode())
    return report


def _label(result: Result) -> dict[str, str]:
    """Return the columns in front of a score; a file of scores keeps the training range by them."""
    shortest, longest = result.trained_lengths or ("", "")
    return {"variant": result.variant, "trained_from": str(shortest), "trained_to": str(longest)}
