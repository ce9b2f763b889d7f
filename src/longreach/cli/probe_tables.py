"""What `longreach probe` prints."""

from collections.abc import Sequence
from dataclasses import asdict

from rich import box
from rich.table import Table
from rich.text import Text

from longreach.cli.columns import print_columns
from longreach.probe import Calibration, Probed
from longreach.probe.summary import FEW, overview
from longreach.system.labels import visible
from longreach.terminal.console import out, say

_NAMED = 8
"""Influential tokens that are named."""


def print_summary(found: Sequence[Probed]) -> None:
    told = overview(found)
    largest = found[0].settings.largest_k
    chance = " and 3 x noise" if found[0].noise is not None else ""
    lines = {
        "predictions": f"{told['predictions']} in {told['passages']} passage{'s' * (told['passages'] > 1)}",
        "loss in full context, mean": f"{told['loss']:.3f} nats",
        f"k by weights above {found[0].settings.tau:g} nats{chance}": f"{told['k_weights']:g}",
        f"k that suffices, within {found[0].settings.eps:g} nats": (
            f"above {largest}" if told["k_sufficient"] is None else f"{told['k_sufficient']:g}"
        ),
        "k by participation": f"{told['k_participation']:.1f}",
        f"predictions for which k <= {FEW} suffices": f"{told[f'k_sufficient_at_most_{FEW}']:.0%}",
        "span": f"{told['span']:g} tokens",
        "faithfulness (LDS), mean": "unknown" if told["faithfulness"] is None else f"{told['faithfulness']:.3f}",
        "cost": f"{told['tokens_computed']:,} tokens, {told['tokens_checking']:,} to check, {told['seconds']:.0f} s",
    }
    table = Table("", "median, where not said otherwise", box=box.SIMPLE, title=f"{told['model']}, {told['method']}")
    for name, value in lines.items():
        table.add_row(name, value)
    out.print(table)


def print_shown(probed: Probed, count: int) -> None:
    """The last targets with the tokens they depend on."""
    table = Table("target", "loss", "depends on (nats)", box=box.SIMPLE, title=Text(probed.title))
    for row in range(max(0, len(probed.targets) - count), len(probed.targets)):
        named = [
            f"{_legible(probed.pieces[place])}@{int(place)} {probed.weights[row, place]:+.2f}"
            for place in probed.influential[row][:_NAMED]
        ]
        target = int(probed.targets[row])
        cells = (f"{_legible(probed.pieces[target])}@{target}", f"{probed.loss[row]:.2f}", "  ".join(named))
        table.add_row(*(Text(cell) for cell in cells))
    if probed.noise is not None:
        table.caption = "weights beyond 3 times their noise, which is a threshold against chance and not an interval"
    out.print(table)


def print_calibration(rows: Sequence[Calibration], title: str) -> None:
    print(visible(title))
    columns = list(zip(*(asdict(row).values() for row in rows), strict=True))
    hidden = print_columns(dict(zip(asdict(rows[0]), columns, strict=True)))
    if hidden:
        say.print(f"no room for {', '.join(hidden)}: see --json", style="dim", markup=False)


def _legible(piece: str) -> str:
    return piece.replace("\n", "\\n")
