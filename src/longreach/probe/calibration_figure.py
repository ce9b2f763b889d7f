"""What a calibration found, as a picture: how well each method finds the needed tokens, against what it computes."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from longreach.probe.calibrate import Calibration


def draw_calibration(rows: Sequence[Calibration], title: str) -> Figure:
    """What it measured, side by side; a curve for the numbers of masks, a mark for other methods."""
    figure = Figure(figsize=(12, 3.2), layout="constrained")
    figure.suptitle(title)
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
