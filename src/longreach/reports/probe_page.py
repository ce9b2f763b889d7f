"""The page on which a reader points at a token and sees what its prediction rests on.  One file that needs nothing
else."""

import math
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from jinja2 import Environment
from markupsafe import Markup
from matplotlib.figure import Figure

from longreach.probe.result import Probed
from longreach.probe.summary import group_probes
from longreach.reports.figures import as_svg

_STRONGEST = 40
"""Weights that the page holds for each target: the whole table of a long text would be too large."""


def render_probe_page(probes: Sequence[Probed], figures: Mapping[str, Figure], title: str) -> str:
    """`figures` stand below the texts, under their names."""
    # autoescape, and `tojson` for what the script reads: texts hold whatever people have written
    template = Environment(autoescape=True).from_string(
        files("longreach.reports").joinpath("probe_page.html.j2").read_text()
    )
    named = [(probe, name) for name, members in group_probes(probes).items() for probe in members]
    return template.render(
        title=title,
        strongest=_STRONGEST,
        texts=[page_data(probe, name) for probe, name in named],
        figures={name: Markup(as_svg(figure)) for name, figure in figures.items()},
    )


def page_data(probe: Probed, group: str) -> dict[str, Any]:
    """What the page's script reads of one text: plain lists, figures cut to what is shown."""
    facts = {
        "loss": probe.loss,
        "entropy": probe.entropy,
        "faithfulness": probe.faithfulness,
        "k_weights": probe.k_weights,
        "k_sufficient": probe.k_sufficient,
        "k_participation": probe.k_participation,
        "span": probe.span,
    }
    order = probe.clear_weights.abs().argsort(dim=1, descending=True, stable=True)[:, :_STRONGEST]
    strongest = probe.clear_weights.gather(1, order)
    return {
        "title": probe.title if group == "all" else f"{probe.title} ({group})",
        "model": probe.model,
        "method": probe.settings.method,
        "tau": probe.settings.tau,
        "eps": probe.settings.eps,
        "largest": max(probe.sizes, default=0),
        "pieces": list(probe.pieces),
        "targets": probe.targets.tolist(),
        "facts": {name: [_short(value) for value in values.tolist()] for name, values in facts.items()},
        "sources": [
            [[place, _short(weight)] for place, weight in zip(places, weights, strict=True) if weight]
            for places, weights in zip(order.tolist(), strongest.tolist(), strict=True)
        ],
    }


def _short(value: int | float) -> float | None:
    """Four digits; None for what is not a number, which JSON cannot hold."""
    return float(f"{value:.4g}") if math.isfinite(value) else None
