"""The table that a report on probes ends with."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from longreach.probe.summary import SummaryRow

_LINES = {
    ("k_weights", "all", "median"): "k, weights beyond tau",
    ("k_sufficient", "all", "median"): "k, enough",
    ("k_participation", "all", "median"): "k, participation ratio",
    ("k_sufficient", "8", "share"): "share for which 8 are enough",
    ("span", "all", "median"): "span",
    ("faithfulness", "all", "median"): "faithfulness (LDS)",
}


def probe_table(rows: Sequence[SummaryRow]) -> Table:
    """Medians over predictions and the share that needs few, for each group of texts."""
    table = Table(title="What predictions depend on: medians", title_justify="left", box=None)
    table.add_column("probed with", overflow="fold")
    table.add_column("what")
    for column in ("value", "95% over texts", "texts", "predictions"):
        table.add_column(column, justify="right", no_wrap=True)
    group = None
    for row in rows:
        name = _LINES.get((row.quantity, row.bin, row.statistic))
        if name is None:
            continue
        found, shown = row.estimate, "" if row.group == group else row.group
        group = row.group
        interval = "-" if found.low is None or found.high is None else f"{_number(found.low)}..{_number(found.high)}"
        table.add_row(Text(shown), name, _number(found.value), interval, str(found.documents), str(found.targets))
    return table


def _number(value: float) -> str:
    """`more` than any that was tried."""
    return "more" if value == float("inf") else f"{value:.3g}"
