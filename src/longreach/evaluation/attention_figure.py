"""A picture of what the heads attend to in one generation."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from longreach.errors import BadInput
from longreach.evaluation.look_inside import Inside
from longreach.model import RESERVED
from longreach.system.labels import label

MOST_DRAWN = 64
"""Tokens that a picture can show and a person read."""
_MOST_PANELS = 16
_WIDEST = 24.0
"""Inches of a picture with several panels side by side."""


def draw(inside: Inside) -> Figure:
    """Attention of every step on every token read: a panel for each head or, where these are too many, one for each
    layer with the largest weight of its heads.  Tokens that share the ID of a step's own token are outlined."""
    layers, heads, steps, read = inside.weights.shape
    if read > MOST_DRAWN:
        raise BadInput(f"{read} tokens are too many for a picture: at most {MOST_DRAWN}")
    if layers * heads <= _MOST_PANELS:
        names = [f"head {layer}.{head}" for layer in range(layers) for head in range(heads)]
        panels, columns = inside.weights.flatten(0, 1), heads
    else:
        names = [f"layer {layer}: largest of {heads} heads" for layer in range(layers)]
        panels, columns = inside.weights.amax(1), layers
    width, height = 1.2 + 0.17 * read, 1.2 + 0.17 * steps
    columns = max(1, min(columns, int(_WIDEST / width)))
    rows = -(-len(panels) // columns)
    size = (columns * width, rows * height)
    figure = Figure(figsize=size, layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axis, panel, name in zip(axes, panels, names, strict=False):
        image = axis.imshow(panel.numpy(), cmap="Greys", vmin=0, vmax=1, aspect="auto")
        axis.set_title(name, fontsize=8)
        _label(axis, inside)
    for axis in axes[len(panels) :]:
        axis.set_axis_off()
    figure.suptitle("rows: the token a step starts from; columns: tokens read; their IDs in brackets", fontsize=8)
    figure.colorbar(image, ax=axes, label="attention", fraction=0.02)
    return figure


# Okabe and Ito's colours, which people with colour-blindness can tell apart
_COLOURS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#B07800", "#2E8FC4")


def _label(axis: Axes, inside: Inside) -> None:
    """Tokens with their IDs along the axes, each ID in its colour, and outlines around tokens that share one."""
    read = inside.ids.shape[1]
    texts = [
        f"{label(word)} ({'/'.join(map(str, ids))})"
        for word, ids in zip(inside.words, inside.ids.T.tolist(), strict=False)
    ]
    colours = ["#888888" if own == RESERVED else _COLOURS[own % len(_COLOURS)] for own in inside.ids[0].tolist()]
    places = [step.index for step in inside.steps]
    axis.set_xticks(range(read), texts, fontsize=6, rotation=90)
    axis.set_yticks(range(len(places)), [texts[place] for place in places], fontsize=6)
    for tick, colour in zip(axis.get_xticklabels(), colours, strict=True):
        tick.set_color(colour)
    for tick, place in zip(axis.get_yticklabels(), places, strict=True):
        tick.set_color(colours[place])
    for step in inside.steps:
        for place in step.shares_id_with:
            corner = (place - 0.5, step.number - 0.5)
            axis.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor=colours[place], linewidth=1.2))
