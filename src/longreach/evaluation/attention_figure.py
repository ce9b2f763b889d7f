"""A picture of what the heads attend to in one generation."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from longreach.errors import BadInput
from longreach.evaluation.inside import Inside
from longreach.model import RESERVED
from longreach.system.labels import label

MOST_DRAWN = 64
"""Tokens that a picture can show and a person read."""
_MOST_PANELS = 16
_WIDEST = 24.0
"""Inches of a picture with several panels side by side."""


def draw(inside: Inside) -> Figure:
    """Attention of every step on every token read: a panel for each head or, where these are too many, one for each
    layer with the largest weight of its heads.

    Tokens that share the ID of a step's own token at a level that grows are outlined, with thick lines if they share
    the IDs of every level.  If several levels grow, each has a colour of its own.
    """
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
    title = "rows: the token a step starts from; columns: tokens read; their IDs in brackets"
    growing = _growing(inside)
    figure.suptitle(title, fontsize=8)
    if len(growing) > 1:
        lines = [Line2D([], [], color=colour, label=f"same {name}") for name, colour in growing.items()]
        figure.legend(handles=lines, loc="outside lower left", ncols=len(lines), fontsize=8, frameon=False)
    figure.colorbar(image, ax=axes, label="attention", fraction=0.02)
    return figure


# Okabe and Ito's colours, which people with colour-blindness can tell apart
_COLOURS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#B07800", "#2E8FC4")


def _growing(inside: Inside) -> dict[str, str]:
    """Return the names of the levels that grow, each with a colour."""
    names = [level.name for level in inside.levels if level.grows]
    return {name: _COLOURS[number % len(_COLOURS)] for number, name in enumerate(names)}


def _label(axis: Axes, inside: Inside) -> None:
    """Label the axes with tokens and IDs, and outline the tokens that share an ID.

    A single level that grows has a colour for each of its IDs; several levels have a colour each.
    """
    read, growing = inside.ids.shape[1], _growing(inside)
    texts = [
        f"{label(word)} ({'/'.join(map(str, ids))})"
        for word, ids in zip(inside.words, inside.ids.T.tolist(), strict=False)
    ]
    colours = [_token_colour(ids, len(growing) > 1) for ids in inside.ids.T.tolist()]
    places = [step.index for step in inside.steps]
    axis.set_xticks(range(read), texts, fontsize=6, rotation=90)
    axis.set_yticks(range(len(places)), [texts[place] for place in places], fontsize=6)
    for tick, colour in zip(axis.get_xticklabels(), colours, strict=True):
        tick.set_color(colour)
    for tick, place in zip(axis.get_yticklabels(), places, strict=True):
        tick.set_color(colours[place])
    for step in inside.steps:
        outlined = [level for level in step.levels if level.level in growing]
        for order, level in enumerate(outlined):
            for place in level.matches:
                colour = growing[level.level] if len(growing) > 1 else colours[place]
                thick = len(step.levels) > 1 and place in step.shares_id_with
                inset = 0.3 * order / len(outlined)  # outlines of several levels lie inside each other
                corner, size = (place - 0.5 + inset, step.number - 0.5 + inset), 1 - 2 * inset
                width = 2.0 if thick else 1.0
                axis.add_patch(Rectangle(corner, size, size, fill=False, edgecolor=colour, linewidth=width))


def _token_colour(ids: list[int], several: bool) -> str:
    if all(one == RESERVED for one in ids):
        return "#888888"
    return "#222222" if several else _COLOURS[ids[0] % len(_COLOURS)]
