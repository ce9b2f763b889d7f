"""`predict`: let a trained model answer a prompt."""

from dataclasses import dataclass

import torch

from longreach.config import build
from longreach.decoding import SamplingConfig, answers, generate
from longreach.engine.plan import choose
from longreach.errors import BadInput, argument
from longreach.seeding import stream
from longreach.tasks import Sample, Task
from longreach.verbs.prompt import expect_generation, typed_prompt
from longreach.verbs.trained import TrainedRun, load_trained


@dataclass(frozen=True)
class Answer:
    """A model's answer to a prompt.  `str(answer)` is its text."""

    prompt: str
    answer: str
    stopped: bool
    """False if the answer was cut off after the most tokens."""
    expected: str | None
    """The true answer; None where the prompt does not decide it."""
    right: bool | None
    """None where the true answer is not known."""

    def __str__(self) -> str:
        return self.answer


def predict(
    run: TrainedRun,
    prompt: str,
    *,
    max_tokens: int | None = None,
    temperature: float = 0.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int | None = None,
    prompt_ids_only: bool = False,
    device: str = "auto",
    trust: bool = False,
) -> Answer:
    """Return the answer of a trained model to a prompt.

    Args:
        run: A run folder, or the pair that `load_model` returns.
        prompt: Tokens as `show` prints them.
        max_tokens: The most tokens to generate; by default twice the prompt and 16.
        temperature: Draw tokens at this temperature; 0 takes the likeliest token.
        top_k: Draw among this many likeliest tokens; 0 draws among all.
        top_p: Draw among the likeliest tokens of this probability.
        seed: Seed of the draws.
        prompt_ids_only: Restrict predicted IDs to those of the prompt.
        device: `auto`, `cpu` or `cuda`.
        trust: Let the run folder name classes of the working folder.

    Raises:
        BadInput: The prompt or an argument does not fit the model.
    """
    config, model, device, _ = load_trained(run, device, trust)
    task = config.task
    sample = typed_prompt(config, model, prompt, max_tokens)
    tokens = sample.tokens[0, : int(sample.prompt_tokens[0])].tolist()
    if seed is not None and not temperature and not config.ids.draws_test_ids:
        raise BadInput(f"{argument('seed')} needs {argument('temperature')}: without it nothing is drawn")
    sampling = build(SamplingConfig, {"temperature": temperature, "top_k": top_k, "top_p": top_p}, "predict")
    there = sample.map(lambda tensor: tensor.to(device))
    smaller = f"use a smaller {argument('max_tokens')} or a shorter {argument('prompt')}"
    expect_generation(config, model, there, smaller)
    generated = generate(
        model,
        task,
        config.ids,
        there,
        sampling=sampling,
        draws=stream(seed or 0, "predict", torch.arange(1, device=device)),
        prompt_ids_only=prompt_ids_only,
        write=choose(model, config.execution, device).write,
    )
    answer, expected = answers(generated, task, sample)[0], _expected(task, sample)
    return Answer(
        prompt=task.spell(tokens),
        answer=task.spell(answer),
        stopped=bool(generated.stopped[0]),
        expected=None if expected is None else task.spell(expected),
        right=None if expected is None else answer == expected,
    )


def _expected(task: Task, sample: Sample) -> list[int] | None:
    """Return the true answer, or None where the prompt does not decide it."""
    try:
        return task.solve(sample, 0)
    except BadInput:
        return None
