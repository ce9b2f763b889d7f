"""Pictures of the theory: how errors grow, how far certificates reach, what is covered, what coupling changes."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure

from longreach.seeding import stream
from longreach.theory.bounds import local_bound
from longreach.theory.certificate import pair_bound, pair_certificate
from longreach.theory.coupling import blocks
from longreach.theory.coverage import counts_of
from longreach.theory.errors import err_mc
from longreach.theory.instances import last_digits, margin_head, parity_task
from longreach.theory.laws import ListedPositions, Positions, Support, TypeLaw
from longreach.theory.pairs import pair_types
from longreach.theory.reproduce import Row
from longreach.theory.types import GapTypes

Rows = dict[str, list[Row]]
"""The rows of each figure that was computed."""


def draw_all(rows: Rows, folder: Path) -> list[Path]:
    """Every picture that goes with a figure that was computed."""
    drawn = []
    for name, (goes_with, draw) in PICTURES.items():
        if goes_with not in rows:
            continue
        figure = Figure(figsize=(6.4, 4.0), layout="constrained")
        draw(figure, rows[goes_with])
        path = folder / f"{name}.png"
        figure.savefig(path, dpi=130)
        drawn.append(path)
    return drawn


def error_growth(figure: Figure, rows: list[Row]) -> None:
    """k = 2, w = 6: sampled errors, the certificate U and the line of theorem 1 from length 24 on."""
    panels = figure.subplots(1, 2, sharey=True)
    lengths = [24, 50, 100, 200, 400, 800, 1600, 3200, 6400]
    for panel, rho in zip(panels, (0.0, 0.02), strict=True):
        task, head = parity_task(2, 6, rho), margin_head(GapTypes(2, 6), 10.0)
        errors = [err_mc(head, task, length, 400) for length in lengths]
        first = errors[0].mean
        line = [local_bound(head, task, 24, length, first).value for length in lengths]
        panel.errorbar(lengths, [e.mean for e in errors], yerr=[2 * e.se for e in errors], fmt="o", label="error")
        panel.plot(lengths, [pair_bound(head, task, length) for length in lengths], label="certificate U")
        panel.plot(lengths, line, "--", label="theorem 1, from 24")
        panel.axhline(0.5, color="grey", linewidth=0.8, label="chance")
        panel.set(xscale="log", yscale="log", xlabel="length", title=f"margin 10, look-alikes {rho}")
    panels[0].set_ylabel("error")
    panels[0].legend(fontsize=8)


def horizons(figure: Figure, rows: list[Row]) -> None:
    """How fast U grows and the longest length certified at .05, w = 6, margin 12: k acts both ways."""
    slopes, lengths = figure.subplots(1, 2)
    ks = [1, 2, 3, 4, 5]
    for rho in (0.0, 0.001, 0.01, 0.03):
        found = [pair_certificate(margin_head(GapTypes(k, 6), 12.0), parity_task(k, 6, rho)) for k in ks]
        slopes.plot(ks, [certificate.slope for certificate in found], "o-", label=f"look-alikes {rho}")
        lengths.plot(ks, [max(certificate.horizon(0.05), 1) for certificate in found], "o-")
    slopes.set(yscale="log", xlabel="k", xticks=ks, title="slope of U, w = 6, margin 12")
    lengths.set(yscale="log", xlabel="k", xticks=ks, title="length certified at .05 (1: none)")
    slopes.legend(fontsize=8)


def masses(figure: Figure, rows: list[Row]) -> None:
    """k = 2, w = 6: the mass of the planted set stays, that of all others grows with the length."""
    panels = figure.subplots(1, 2, sharey=True)
    lengths = [24, 50, 100, 200, 400, 800, 1600, 3200]
    for panel, rho in zip(panels, (0.0, 0.02), strict=True):
        task = parity_task(2, 6, rho)
        for margin in (3.0, 6.0, 10.0):
            head, spurious = margin_head(GapTypes(2, 6), margin), []
            for length in lengths:
                tokens, _, _ = task.sample(length, stream(0, "theory masses", torch.arange(64)))
                spurious.append(float(head.mass(tokens).sum(1).mean()) - 1)  # the planted set weighs 1
            panel.plot(lengths, spurious, "o-", label=f"all others, margin {margin:g}")
        panel.axhline(1.0, color="black", label="planted")
        panel.set(xscale="log", yscale="log", xlabel="length", title=f"look-alikes {rho}")
    panels[0].set_ylabel("mass")
    panels[1].legend(fontsize=8, loc="lower right")


def coverage_map(figure: Figure, rows: list[Row]) -> None:
    """kappa of the pair types with each planted gap, from each training length to 128, with k = 2 and w = 8."""
    long, gaps, trained = 128, list(range(1, 9)), [16, 24, 32, 48, 64, 96]
    types = GapTypes(2, 8)

    def growing(length: int) -> Support:
        """Gaps up to a sixteenth of the length, all alike."""
        some = (torch.arange(1, 9) <= length // 16).double()
        return TypeLaw(types, some / some.sum()).support(length)

    laws: dict[str, Positions] = {
        "gaps to 8 at every length": TypeLaw.uniform(types),
        "gaps to length / 16": ListedPositions(growing),
    }
    panels = figure.subplots(1, 2, sharey=True)
    for panel, (name, q_pos) in zip(panels, laws.items(), strict=True):
        asked = pair_types(types, q_pos, long)
        table = torch.zeros(len(gaps), len(trained), dtype=torch.float64)
        for column, length in enumerate(trained):
            ratio = asked.count / counts_of(asked, pair_types(types, q_pos, length))
            table[:, column].scatter_reduce_(0, asked.planted, ratio, "amax")
        panel.set_facecolor("lightgrey")
        image = panel.imshow(table.log10().where(table.isfinite(), math.nan).tolist(), aspect="auto", vmin=0, vmax=1.3)
        for y, row in enumerate(table.tolist()):
            for x, value in enumerate(row):
                text = f"{value:.2g}" if math.isfinite(value) else "never"
                panel.text(x, y, text, ha="center", va="center", color="white" if value < 6 else "black", fontsize=7)
        panel.set_xticks(range(len(trained)), [str(length) for length in trained])
        panel.set_yticks(range(len(gaps)), [str(gap) for gap in gaps])
        panel.set(xlabel="training length", title=name)
    panels[0].set_ylabel("planted gap")
    figure.colorbar(image, ax=panels, label=f"log10 kappa to {long}")


def training_lengths(figure: Figure, rows: list[Row]) -> None:
    """kappa to 400 by training length."""
    panel = figure.subplots()
    own = [row for row in rows if row["figure"] == "kappa to 400" and row["ours"] != "uncovered"]
    for law in dict.fromkeys(row["law"] for row in own):
        line = [(row["length"], float(row["ours"])) for row in own if row["law"] == law]
        panel.plot(*zip(*line, strict=True), "o-", label=law)
    panel.set(xscale="log", yscale="log", xlabel="training length", ylabel="kappa", title="coverage of length 400")
    _ticks(panel, sorted({int(row["length"]) for row in own}))
    panel.legend(fontsize=8)


def spans(figure: Figure, rows: list[Row]) -> None:
    """The sum of two last digits: how far apart the digits are, in positions and in IDs of the aligned numbers."""
    panel = figure.subplots()
    lengths, task, rule = [12, 24, 50, 100, 200, 400], last_digits(), blocks(2)
    planted = [task.q_pos.support(length)[0] for length in lengths]
    raw = [int((sets[:, -1] - sets[:, 0]).max()) for sets in planted]
    coupled = [int(rule.at(length).id_span(sets).max()) for length, sets in zip(lengths, planted, strict=True)]
    panel.plot(lengths, raw, "o-", label="positions")
    panel.plot(lengths, coupled, "o-", label="IDs")
    panel.set(xlabel="length", ylabel="span", title="sum of two last digits")
    panel.legend(fontsize=8)


def digit_sums(figure: Figure, rows: list[Row]) -> None:
    """A head over IDs and one over raw distances."""
    panel = figure.subplots()
    for name in ("coupled", "raw"):
        own = [row for row in rows if row["head"] == name]
        panel.plot([row["length"] for row in own], [max(float(row["ours"]), 1e-5) for row in own], "o-", label=name)
    panel.axvspan(14, 24, color="grey", alpha=0.15, label="trained")
    panel.set(xscale="log", yscale="log", xlabel="length", ylabel="error", title="sum of two last digits")
    _ticks(panel, sorted({int(row["length"]) for row in rows}))
    panel.legend(fontsize=8)


def wrong_rollouts(figure: Figure, rows: list[Row]) -> None:
    """Rollouts with predicted IDs, and theorem 3."""
    panel = figure.subplots()
    steps = [row["steps"] for row in rows]
    panel.plot(steps, [float(row["ours"]) for row in rows], "o-", label="wrong rollouts")
    panel.plot(steps, [float(row["bound"]) for row in rows], "--", label="theorem 3")
    panel.set(xscale="log", yscale="log", xlabel="steps", ylabel="share wrong", title="a tape, IDs predicted")
    _ticks(panel, [int(step) for step in steps])
    panel.legend(fontsize=8)


def _ticks(panel: Any, values: list[int]) -> None:
    """These and no others: on a short log scale matplotlib's own run into each other."""
    panel.set_xticks(values, [str(value) for value in values])
    panel.set_xticks([], minor=True)


PICTURES: dict[str, tuple[str, Callable[[Figure, list[Row]], Any]]] = {
    "error_growth": ("bounds", error_growth),
    "horizons": ("margins", horizons),
    "masses": ("dilution", masses),
    "coverage": ("plan", coverage_map),
    "training_lengths": ("plan", training_lengths),
    "spans": ("plan", spans),
    "digit_sum": ("digit_sum", digit_sums),
    "rollouts": ("rollouts", wrong_rollouts),
}
"""Each picture: the figure that it goes with, and how it is drawn."""
