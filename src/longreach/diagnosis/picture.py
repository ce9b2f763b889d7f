"""The picture of a diagnosis: what stays uncovered by length, and what a model is forecast to do."""

from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import ScalarFormatter

from longreach.diagnosis.findings import Diagnosis
from longreach.system.labels import label


def draw(found: Diagnosis, path: Path) -> None:
    forecast = len(found.forecast) > 1
    figure = Figure(figsize=(12 if forecast else 8, 4.2), layout="constrained")
    axes = figure.subplots(1, 2 if forecast else 1, squeeze=False)[0]
    for shares, names in _curves(found).items():
        axes[0].plot(sorted(found.schemes[0].by_length), shares, marker="o", label=label("\n".join(names)))
    axes[0].set(xlabel="length", ylabel="samples with an uncovered need", ylim=(-0.04, 1.04))
    axes[0].set_title(label(f"{found.source}: trained up to {found.short_to}"))
    axes[0].legend(fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5))
    if forecast:
        lengths = sorted(found.forecast)
        exact = [found.forecast[length].exact for length in lengths]
        axes[1].plot(lengths, [estimate.value for estimate in exact], marker="o")
        axes[1].fill_between(lengths, [e.low for e in exact], [e.high for e in exact], alpha=0.25)
        axes[1].set(xlabel="length", ylabel="exact match, forecast", ylim=(-0.04, 1.04))
        axes[1].set_title("if errors go on growing as they do")
    for axis in axes:
        axis.set_xscale("log", base=2)
        axis.xaxis.set_major_formatter(ScalarFormatter())
        axis.grid(alpha=0.3)
    figure.savefig(path, dpi=130)


def _curves(found: Diagnosis) -> dict[tuple[float, ...], list[str]]:
    """Schemes by what they leave uncovered at each length: many leave the same."""
    curves: dict[tuple[float, ...], list[str]] = {}
    for report in found.schemes:
        shares = tuple(round(report.by_length[length].uncovered.value, 2) for length in sorted(report.by_length))
        curves.setdefault(shares, []).append(report.scheme)
    return curves
