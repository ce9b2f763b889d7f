"""What `longreach probe` prints."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch
from rich import box
from rich.table import Table
from rich.text import Text
from torch import Tensor

from longreach.cli.columns import print_columns
from longreach.errors import BadInput
from longreach.probe import Calibration, Probed
from longreach.system.labels import visible
from longreach.terminal.console import out, say

_FEW = 8
"""The k whose share of predictions is told."""
_NAMED = 8
"""Influential tokens that are named."""


def summary(found: Sequence[Probed]) -> dict[str, Any]:
    """All passages together; a k that no tried one reached counts as endless."""
    if not found:
        raise BadInput("no passage could be probed")
    sufficient = _together(found, "k_sufficient")
    sufficient = torch.where(sufficient < 0, torch.inf, sufficient)
    faithful = _together(found, "faithfulness")
    return {
        "model": found[0].model,
        "method": found[0].settings.method,
        "passages": len(found),
        "predictions": len(sufficient),
        "loss": _together(found, "loss").mean().item(),
        "k_weights": _together(found, "k_weights").median().item(),
        "k_sufficient": _number(sufficient.median().item()),
        "k_participation": _together(found, "k_participation").median().item(),
        f"k_sufficient_at_most_{_FEW}": (sufficient <= _FEW).double().mean().item(),
        "span": _together(found, "span").median().item(),
        "faithfulness": None if faithful.isnan().all() else faithful.nanmean().item(),
        "tokens_computed": sum(probed.cost.tokens for probed in found),
        "tokens_checking": sum(probed.cost.checking_tokens for probed in found),
        "seconds": sum(probed.cost.seconds for probed in found),
    }


def print_summary(found: Sequence[Probed]) -> None:
    told = summary(found)
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
        f"predictions for which k <= {_FEW} suffices": f"{told[f'k_sufficient_at_most_{_FEW}']:.0%}",
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


def _together(found: Sequence[Probed], name: str) -> Tensor:
    return torch.cat([getattr(probed, name).double() for probed in found])


def _number(value: float) -> float | None:
    """JSON has no endless number."""
    return None if value == float("inf") else value


def _legible(piece: str) -> str:
    return piece.replace("\n", "\\n")
