"""The picture of a diagnosis: what stays uncovered by length, and what a model is forecast to do."""

from pathlib import Path

from matplotlib.figure import Figure

from longreach.diagnose.diagnosis import Diagnosis

_MOST = 8  # curves that can be told apart


def draw(found: Diagnosis, path: Path) -> None:
    forecast = bool(found.forecast)
    figure = Figure(figsize=(11 if forecast else 6.5, 4.2), layout="constrained")
    axes = figure.subplots(1, 2 if forecast else 1, squeeze=False)[0]
    for number, report in enumerate(found.schemes[:_MOST]):
        lengths = sorted(report.by_length)
        shares = [report.by_length[length].uncovered.value for length in lengths]
        # curves lie on each other at 0 and 1: markers of falling size keep them apart
        axes[0].plot(lengths, shares, marker="o", markersize=3 + 1.5 * (_MOST - number), label=report.scheme)
    axes[0].set(xlabel="length", ylabel="samples with an uncovered need", ylim=(-0.04, 1.04))
    axes[0].set_title(f"{found.source}: trained up to {found.short_to}")
    axes[0].legend(fontsize=8)
    if forecast:
        lengths = sorted(found.forecast)
        exact = [found.forecast[length].exact for length in lengths]
        axes[1].plot(lengths, [estimate.value for estimate in exact], marker="o")
        axes[1].fill_between(lengths, [e.low for e in exact], [e.high for e in exact], alpha=0.25)
        axes[1].set(xlabel="length", ylabel="exact match, forecast", ylim=(-0.04, 1.04))
        axes[1].set_title("if errors go on growing as they do")
    for axis in axes:
        axis.set_xscale("log")
        axis.grid(alpha=0.3)
    figure.savefig(path, dpi=130)
