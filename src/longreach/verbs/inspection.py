"""`inspect`: look inside generations of a trained model."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from longreach.errors import BadInput, argument
from longreach.evaluation.inside import Detail, Inside
from longreach.evaluation.inside_data import page_data
from longreach.evaluation.look_inside import Truth, detail, look_inside
from longreach.model import Model
from longreach.runs import RunConfig
from longreach.seeding import Draws, stream
from longreach.system.files import write_atomically
from longreach.tasks import Sample
from longreach.training import legal_lengths
from longreach.verbs.prompt import check_sample, expect_generation, typed_prompt
from longreach.verbs.trained import Trained, TrainedRun, load_trained

SAMPLES = 6
"""Samples of a page, unless their number is given."""
MOST_SAMPLES = 100
MOST_WEIGHTS = 64_000_000
"""Attention weights of a page."""


@dataclass(frozen=True)
class Inspection:
    """Generations, step by step."""

    inside: Inside
    """Tokens, IDs, steps and attention weights of the first sample."""
    detail: Detail | None
    """More of the step of the first sample that was named; None if none was."""
    samples: list[Inside]
    """Every sample, the first one included."""


def inspect(
    run: TrainedRun,
    *,
    length: int | None = None,
    seed: int | None = None,
    samples: int | None = None,
    prompt: str | Sequence[str] | None = None,
    step: int | None = None,
    out: str | Path | None = None,
    device: str = "auto",
    trust: bool = False,
) -> Inspection:
    """Generate answers and return tokens, IDs and attention of every step.

    Args:
        run: A run folder, or the pair that `load_model` returns.
        length: Length of the samples; by default the longest of training.
        seed: Another seed draws other samples.
        samples: Samples of an .html page, 6 by default.
        prompt: A prompt to answer instead of a sample; several for an .html page.
        step: Return details of this step, counted from 0; an .html page opens at it.
        out: Write a page of the samples into this .html file, or draw the attention of all heads into this .png file.
        device: `auto`, `cpu` or `cuda`.
        trust: Let the run folder name classes of the working folder.

    Raises:
        BadInput: Arguments that exclude each other, or do not fit the model.
    """
    prompts = [prompt] if isinstance(prompt, str) else prompt
    path = None if out is None else Path(out)
    _check(length, seed, samples, prompts, path)
    trained = load_trained(run, device, trust)
    is_page = path is not None and path.suffix == ".html"
    found = _look(trained, length, seed or 0, samples or (SAMPLES if is_page else 1), prompts, is_page)
    more = None if step is None else detail(found[0], trained.config.task, step)
    if path is not None and is_page:
        write_atomically(path, _page(trained, found, seed or 0, prompts, step or 0).encode())
    elif path is not None:
        from longreach.evaluation.attention_figure import draw  # matplotlib takes a while to load
        from longreach.reports import save_png

        save_png(draw(found[0]), path)
    return Inspection(found[0], more, found)


def _check(
    length: int | None, seed: int | None, samples: int | None, prompts: Sequence[str] | None, out: Path | None
) -> None:
    uses = {"length": (length, "is for a sample"), "seed": (seed, "draws a sample"), "samples": (samples, "draws them")}
    for name, (value, use) in uses.items():
        if prompts is not None and value is not None:
            raise BadInput(f"{argument(name)} {use} and {argument('prompt')} is one already: give one of them")
    if out is not None and out.suffix not in (".png", ".html"):
        raise BadInput(f"{argument('out')} must end in .png or .html, got {out}")
    if out is not None and not out.parent.is_dir():
        raise BadInput(f"there is no folder {out.parent} for {argument('out')}")
    count = 1 if prompts is None else len(prompts)
    for name, number in (("samples", samples), ("prompt", count)):
        if number is not None and not 1 <= number <= MOST_SAMPLES:
            asked = f"{argument(name)} must be" if name == "samples" else f"the number of {argument(name)} must be"
            raise BadInput(f"{asked} 1..{MOST_SAMPLES}, got {number}")
    if (samples is not None or count > 1) and (out is None or out.suffix != ".html"):
        several = f"{argument('samples')} is" if samples is not None else f"more than one {argument('prompt')} is"
        raise BadInput(f"{several} for a page: give {argument('out')} a name that ends in .html")


def _look(
    trained: Trained, length: int | None, seed: int, count: int, prompts: Sequence[str] | None, is_page: bool
) -> list[Inside]:
    config, model, device, _ = trained
    count = count if prompts is None else len(prompts)
    asked = [
        _ask(config, model, length, None if prompts is None else prompts[n], _draws(seed, n)) for n in range(count)
    ]
    smaller = f"use a smaller {argument('length')} or a shorter {argument('prompt')}"
    if is_page:
        smaller = f"use fewer {argument('samples')}, a smaller {argument('length')} or a shorter {argument('prompt')}"
    longest = max((sample for sample, _ in asked), key=lambda sample: sample.tokens.shape[1])
    expect_generation(config, model, _on(device, longest), smaller, times=count)
    found: list[Inside] = []
    weights = 0
    for number, (sample, truth) in enumerate(asked):
        draws = Draws(_draws(seed, number).key.to(device))
        found.append(look_inside(model, config.task, config.ids, _on(device, sample), truth, draws))
        weights += found[-1].weights.numel()
        if is_page and weights > MOST_WEIGHTS:
            raise BadInput(
                f"{number + 1} of {count} answers have {weights:,} attention weights,"
                f" a page holds at most {MOST_WEIGHTS:,}: {smaller}"
            )
    return found


def _draws(seed: int, number: int) -> Draws:
    return stream(seed, "inspect", torch.tensor([number]))


def _on(device: str, sample: Sample) -> Sample:
    return sample.map(lambda tensor: tensor.to(device))


def _ask(config: RunConfig, model: Model, length: int | None, prompt: str | None, draws: Draws) -> tuple[Sample, Truth]:
    if prompt is None:
        sample = _draw_sample(config, length, draws)
        return sample, Truth.of_sample(config.task, config.ids, sample, draws)
    sample = typed_prompt(config, model, prompt)
    return sample, Truth.of_prompt(config.task, config.ids, sample, draws)


def _draw_sample(config: RunConfig, length: int | None, draws: Draws) -> Sample:
    length = legal_lengths(config.task, config.train.lengths)[-1] if length is None else length
    config.task.check_length(length)
    check_sample(config.task, length)
    return config.task.sample(torch.tensor([length]), draws, length)


def _page(trained: Trained, found: list[Inside], seed: int, prompts: Sequence[str] | None, step: int) -> str:
    from longreach.reports.inside_page import render_inside_page  # loads jinja2 and matplotlib

    config, folder = trained.config, trained.folder
    names = [f"sample {number} of seed {seed}" if prompts is None else "prompt" for number in range(len(found))]
    samples = [{"name": name} | page_data(inside, config.task) for name, inside in zip(names, found, strict=True)]
    lengths = config.train.lengths
    facts = {"task": config.task.name, "position IDs": config.ids.name, "trained on lengths": str(lengths)}
    return render_inside_page(config.task.name if folder is None else str(folder.path), facts, samples, step)
