"""Write a report: figure, page and all scores in one table."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from longreach.evaluation import to_csv
from longreach.reports.curves import Group, drawn, has_exact_match, has_losses, headline_groups
from longreach.reports.errors_figure import errors_figure, has_errors
from longreach.reports.figures import reach_figure, save_figure
from longreach.reports.load import Result
from longreach.reports.page import render_page
from longreach.reports.text import losses_figure, losses_to_csv
from longreach.system.files import write_atomically


@dataclass(frozen=True)
class Report:
    """The files of a report."""

    title: str
    groups: list[Group] = field(repr=False)
    png: Path
    """The first figure: accuracy.png, or losses.png of losses alone."""
    html: Path
    csv: Path
    files: list[Path]
    """All files that were written."""


_OPTIONAL = ("accuracy.png", "losses.png", "losses.csv", "errors.png")
"""Files that only some reports have."""


def write_report(results: Sequence[Result], folder: Path, problems: Sequence[str] = ()) -> Report:
    """Write figures, page and table into a folder.  Files of a former report that this one lacks are removed."""
    title = " / ".join(dict.fromkeys(result.title for result in results))
    groups = headline_groups(results)
    folder.mkdir(parents=True, exist_ok=True)
    html, csv = folder / "report.html", folder / "scores.csv"
    is_report = html.exists()
    made = []
    if not all(group.metric == "next_token" for group in groups):
        few, note = drawn(results, has_exact_match)
        save_figure(reach_figure(few, title=_heading(title, note)), folder / "accuracy.png")
        made.append(folder / "accuracy.png")
    few, note = drawn(results, has_losses)
    losses = losses_figure(few, _heading(title, note))
    if losses is not None:
        save_figure(losses, folder / "losses.png")
        write_atomically(folder / "losses.csv", losses_to_csv(results).encode())
        made += [folder / "losses.png", folder / "losses.csv"]
    if not made:  # the table of a report on texts has no losses
        few, note = drawn(results, lambda result: bool(result.scores))
        save_figure(reach_figure(few, "next_token", title=_heading(title, note)), folder / "accuracy.png")
        made.append(folder / "accuracy.png")
    errors = errors_figure(drawn(results, has_errors)[0])
    if errors is not None:
        save_figure(errors, folder / "errors.png")
        made.append(folder / "errors.png")
    write_atomically(html, render_page(results, title, problems).encode())
    scores = [score for result in results for score in result.scores]
    labels = [_label(result) for result in results for _ in result.scores]
    write_atomically(csv, to_csv(scores, labels).encode())
    if is_report:
        for name in _OPTIONAL:
            if folder / name not in made:
                (folder / name).unlink(missing_ok=True)
    return Report(title, groups, made[0], html, csv, [*made, html, csv])


def _heading(title: str, note: str) -> str:
    return f"{title} ({note})" if note else title


def _label(result: Result) -> dict[str, str]:
    """Return the columns in front of a score; a file of scores keeps the training range by them."""
    shortest, longest = result.trained_lengths or ("", "")
    return {"variant": result.variant, "trained_from": str(shortest), "trained_to": str(longest)}
