"""What a calibration found, as a picture: how well each method finds the needed tokens, against what it computes."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from longreach.probe.calibrate import Calibration
from longreach.system.labels import label


def draw_calibration(rows: Sequence[Calibration], title: str) -> Figure:
    """What it measured, side by side; a curve for the numbers of masks, a mark for other methods."""
    figure = Figure(figsize=(12, 3.2), layout="constrained")
    figure.suptitle(label(title))
    masks = [row for row in rows if row.method == "masks"]
    for axes, quantity in zip(
        figure.subplots(1, 4, sharex=True), ("precision", "recall", "ranked", "faithfulness"), strict=True
    ):
        axes.plot([row.tokens for row in masks], [getattr(row, quantity) for row in masks], "o-", label="masks")
        for row in rows:
            if row.method != "masks":
                axes.plot(row.tokens, getattr(row, quantity), "s", label=row.method.replace("_", " "))
        axes.set(xscale="log", xlabel="tokens computed per sample", ylabel=quantity, ylim=(-0.3, 1.05))
        axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    return figure


def draw_calibrations(found: Mapping[str, Sequence[Calibration]], title: str) -> Figure:
    """Several tasks side by side: a colour for each, a curve for the numbers of masks, squares for leave-one-out."""
    figure = Figure(figsize=(12, 3.4), layout="constrained")
    figure.suptitle(label(title))
    names = {"precision": "precision", "recall": "recall", "k_error_weights": "error of k by weights"}
    for axes, (quantity, name) in zip(figure.subplots(1, len(names), sharex=True), names.items(), strict=True):
        for number, (task, rows) in enumerate(found.items()):
            for method, style, curve in (("masks", "o-", task), ("leave_one_out", "s", f"{task}, leave one out")):
                told = [row for row in rows if row.method == method]
                x, y = [row.tokens for row in told], [getattr(row, quantity) for row in told]
                axes.plot(x, y, style, color=f"C{number}", label=label(curve))
        axes.set_xscale("log", base=2)
        axes.set(xlabel="tokens computed per sample", ylabel=name)
        axes.set_ylim(0, None if quantity == "k_error_weights" else 1.05)
        axes.grid(alpha=0.3)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside right center", fontsize="small")
    return figure
