"""Pictures of the theory: how errors grow, how far certificates reach, what coupling changes."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from longreach.theory.bounds import local_bound
from longreach.theory.certificate import pair_bound, pair_certificate
from longreach.theory.coverage import coverage
from longreach.theory.errors import err_mc
from longreach.theory.instances import margin_head, parity_task
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
    """The longest length certified at .05, w = 6, margin 12: k acts both ways."""
    panel = figure.subplots()
    ks = [1, 2, 3, 4, 5]
    for rho in (0.0, 0.001, 0.01, 0.03):
        reached = [
            pair_certificate(margin_head(GapTypes(k, 6), 12.0), parity_task(k, 6, rho)).horizon(0.05) for k in ks
        ]
        panel.plot(ks, [max(length, 1) for length in reached], "o-", label=f"look-alikes {rho}")
    panel.set(yscale="log", xlabel="k", ylabel="certified length at .05", xticks=ks, title="w = 6, margin 12 (1: none)")
    panel.legend(fontsize=8)


def coverage_map(figure: Figure, rows: list[Row]) -> None:
    """kappa from each training length to 400, for each w, with k = 2."""
    widths, trained = [1, 2, 4, 6, 8, 10, 12], [16, 24, 32, 48, 64, 96, 128]
    table = []
    for w in widths:
        types, task = GapTypes(2, w), parity_task(2, w)
        table.append([coverage(task, types, length, 400).kappa if length > w else math.nan for length in trained])
    panel = figure.subplots()
    image = panel.imshow([[math.log10(value) for value in row] for row in table], aspect="auto", origin="lower")
    for y, row in enumerate(table):
        for x, value in enumerate(row):
            panel.text(x, y, f"{value:.3g}", ha="center", va="center", color="white", fontsize=8)
    panel.set_xticks(range(len(trained)), [str(length) for length in trained])
    panel.set_yticks(range(len(widths)), [str(w) for w in widths])
    panel.set(xlabel="training length", ylabel="w", title="kappa to length 400, k = 2 (white: not covered)")
    figure.colorbar(image, label="log10 kappa")


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
    "coverage": ("margins", coverage_map),
    "digit_sum": ("digit_sum", digit_sums),
    "rollouts": ("rollouts", wrong_rollouts),
}
"""Each picture: the figure that it goes with, and how it is drawn."""
