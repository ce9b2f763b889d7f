"""Draws coupled_ids.png: the aligned IDs of one variable assignment, what each step reads and where it points."""

from pathlib import Path

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from longreach.config.spans import Span
from longreach.seeding import stream
from longreach.tasks.variable_assignment import VariableAssignment

COLOURS = ["#DDDDDD", "#E69F00", "#56B4E9", "#009E73"]  # reserved, then statements; Okabe and Ito
READS, POINTS = "#000000", "#D55E00"
SEED = 2876  # as in `longreach show ... --seed 2876`


def arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], rad: float, colour: str, dash: str) -> None:
    style = f"arc3,rad={rad}"
    axes.add_patch(
        FancyArrowPatch(
            start, end, connectionstyle=style, arrowstyle="-|>", mutation_scale=13, color=colour, lw=1.6, ls=dash
        )
    )


def main() -> None:
    task = VariableAssignment(hops=Span(2, 2), num_names=8, echo=True, end="marked")
    sample = task.sample(torch.tensor([3]), stream(SEED, "show", torch.arange(1)), 3)
    prompt, size = int(sample.prompt_tokens[0]), int(sample.num_tokens[0])
    words = task.words(sample.tokens[0, :size].tolist())
    ids = task.coupling(sample, "aligned")[0, :, :size].T.tolist()
    x = [i + 0.22 * (min(i, 6) // 2) + 0.6 * (i >= prompt) for i in range(size)]  # gaps between statements

    figure = Figure(figsize=(11, 4.8), dpi=100)
    axes = figure.add_axes((0.005, 0.005, 0.99, 0.99))
    axes.set(xlim=(-3.15, x[-1] + 0.7), ylim=(-4.0, 3.3))
    axes.axis("off")
    for i, (word, (statement, token)) in enumerate(zip(words, ids, strict=True)):
        box = FancyBboxPatch((x[i] - 0.36, -0.36), 0.72, 0.72, boxstyle="round,pad=0.04", ec="#444444", lw=0.8)
        box.set_facecolor(COLOURS[statement])
        axes.add_patch(box)
        axes.text(x[i], -0.02, word, ha="center", va="center", fontsize=17, family="monospace", weight="bold")
        last = i == size - 1  # never read, so its IDs are never used
        for row, number in ((-0.78, statement), (-1.22, token)):
            colour = "#AAAAAA" if last or number == 0 else "#000000"
            axes.text(x[i], row, str(number), ha="center", va="center", fontsize=13, color=colour)
    for row, name in ((-0.78, "statement"), (-1.22, "token in statement")):
        axes.text(-0.6, row, name, ha="right", va="center", fontsize=11)
    for first, end, name in ((0, prompt, "prompt"), (prompt, size, "answer, written by the model")):
        axes.plot([x[first] - 0.4, x[end - 1] + 0.4], [-3.55, -3.55], color="#888888", lw=1)
        axes.text((x[first] + x[end - 1]) / 2, -3.78, name, ha="center", va="center", fontsize=11, color="#444444")

    for i in range(prompt - 1, size - 1):
        # the step that starts from token i writes token i + 1, which it reads where the IDs are the same
        (read,) = (j for j in range(prompt - 1) if ids[j] == ids[i] and words[j] == words[i + 1])
        arrow(axes, (x[i], 0.44), (x[read], 0.44), 0.3 + 0.5 / (i - read), READS, "-")
        if i >= prompt:  # the token got its ID by pointing at the left side of the statement that defines it
            (left,) = (j for j in range(prompt) if ids[j][0] == ids[i][0] and words[j] == words[i])
            arrow(axes, (x[i], -1.45), (x[left], -1.45), -0.3, POINTS, "--")

    handles = [
        Line2D([], [], color=READS, lw=1.6, label="attention: a step reads the token with the IDs it starts from"),
        Line2D([], [], color=POINTS, lw=1.6, ls="--", label="pointer: where a written token gets its statement ID"),
    ]
    axes.legend(handles=handles, loc="upper left", frameon=False, fontsize=11, bbox_to_anchor=(0.0, 1.0))
    figure.savefig(Path(__file__).with_suffix(".png"))


if __name__ == "__main__":
    main()
