"""`inspect`: look inside one generation of a trained model."""

from dataclasses import dataclass
from pathlib import Path

import torch

from longreach.errors import BadInput, argument
from longreach.evaluation.inside import Detail, Inside
from longreach.evaluation.look_inside import Truth, detail, look_inside
from longreach.runs import RunConfig
from longreach.seeding import Draws, stream
from longreach.tasks import Sample
from longreach.training import legal_lengths
from longreach.verbs.prompt import check_sample, expect_generation, typed_prompt
from longreach.verbs.trained import TrainedRun, load_trained


@dataclass(frozen=True)
class Inspection:
    """One generation, step by step."""

    inside: Inside
    """Tokens, IDs, steps and attention weights."""
    detail: Detail | None
    """More of the step that was named; None if none was."""


def inspect(
    run: TrainedRun,
    *,
    length: int | None = None,
    seed: int | None = None,
    prompt: str | None = None,
    step: int | None = None,
    out: str | Path | None = None,
    device: str = "auto",
    trust: bool = False,
) -> Inspection:
    """Generate one answer and return tokens, IDs and attention of every step.

    Args:
        run: A run folder, or the pair that `load_model` returns.
        length: Length of the sample; by default the longest of training.
        seed: Another seed draws another sample.
        prompt: A prompt to answer instead of a sample.
        step: Return details of this step, counted from 0.
        out: Draw the attention of all heads into this .png file.
        device: `auto`, `cpu` or `cuda`.
        trust: Let the run folder name classes of the working folder.

    Raises:
        BadInput: Arguments that exclude each other, or do not fit the model.
    """
    _check(length, seed, prompt, None if out is None else Path(out))
    config, model, device, _ = load_trained(run, device, trust)
    task, policy = config.task, config.ids
    draws = stream(seed or 0, "inspect", torch.arange(1))
    if prompt is None:
        sample = _draw_sample(config, length, draws)
        truth = Truth.of_sample(task, policy, sample, draws)
    else:
        sample = typed_prompt(config, model, prompt)
        truth = Truth.of_prompt(task, policy, sample, draws)
    on_device = sample.map(lambda tensor: tensor.to(device))
    smaller = f"use a smaller {argument('length')} or a shorter {argument('prompt')}"
    expect_generation(config, model, on_device, smaller)
    inside = look_inside(model, task, policy, on_device, truth, Draws(draws.key.to(device)))
    more = None if step is None else detail(inside, task, step)
    if out is not None:
        from longreach.evaluation.attention_figure import draw  # matplotlib takes a while to load

        draw(inside).savefig(out, dpi=150)
    return Inspection(inside, more)


def _check(length: int | None, seed: int | None, prompt: str | None, out: Path | None) -> None:
    for name, value in (("length", length), ("seed", seed)):
        if prompt is not None and value is not None:
            use = "is for a sample" if name == "length" else "draws a sample"
            raise BadInput(f"{argument(name)} {use} and {argument('prompt')} is one already: give one of them")
    if out is not None and out.suffix != ".png":
        raise BadInput(f"{argument('out')} must end in .png, got {out}")
    if out is not None and not out.parent.is_dir():
        raise BadInput(f"there is no folder {out.parent} for {argument('out')}")


def _draw_sample(config: RunConfig, length: int | None, draws: Draws) -> Sample:
    length = legal_lengths(config.task, config.train.lengths)[-1] if length is None else length
    config.task.check_length(length)
    check_sample(config.task, length)
    return config.task.sample(torch.tensor([length]), draws, length)
