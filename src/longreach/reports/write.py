"""Write a report: figure, page and all scores in one table."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from longreach.evaluation import to_csv
from longreach.reports.curves import Group, drawn, headline_groups
from longreach.reports.figures import errors_figure, length_figure, save_png
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


def write_report(results: Sequence[Result], folder: Path) -> Report:
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
        save_png(length_figure(headline_groups(few) if note else groups, heading), report.png)
    if losses is not None:
        save_png(losses, folder / "losses.png")
        write_atomically(folder / "losses.csv", losses_to_csv(results).encode())
    errors = errors_figure(few)
    if errors is not None:
        save_png(errors, folder / "errors.png")
    write_atomically(report.html, render_page(results, groups, title).encode())
    scores = [score for result in results for score in result.scores]
    labels = [{"variant": result.variant} for result in results for _ in result.scores]
    write_atomically(report.csv, to_csv(scores, labels).encode())
    return report
