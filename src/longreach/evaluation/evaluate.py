"""Scores by length, and by any field of the task."""

import itertools
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

import torch
from jaxtyping import Int
from torch import Tensor

from longreach.config import LARGEST_ID, Bounds, Seed, Settings, build_part, merge, strings_in, to_plain
from longreach.config.registry import name_of
from longreach.config.spans import Lengths
from longreach.decoding import Writing, write_answers
from longreach.errors import BadInput
from longreach.evaluation.controls import Control, spoil
from longreach.evaluation.exact_match import NEAR_TIE, Judge, Judged, plain_judge, run_free
from longreach.evaluation.scores import Score
from longreach.execution import ExecutionConfig
from longreach.model import RESERVED, Model
from longreach.positions.encodings import EncodingConfig
from longreach.positions.ids import IdPolicy
from longreach.seeding import Draws, derived_seed, stream
from longreach.system.imports import NotTrusted
from longreach.tasks import Sample, Task

_COLUMNS = ("seed", "length", "metric", "hits", "samples", "rate", "low", "high")
"""Columns of scores, which no axis may have as its name."""


@dataclass(frozen=True, kw_only=True)
class EvalConfig(Settings):
    """What a trained model is asked."""

    lengths: Lengths = Lengths((10, 20, 40, 80, 160))
    """Test lengths: 20:500:20 (both ends included), 10,20,40, or a list."""
    axes: dict[str, list[Any]] = field(default_factory=dict)
    """Task fields to vary and their values, such as k: [4, 8]."""
    samples: int = 1024
    """Samples in a cell, scored in one pass each."""
    free_samples: int = 256
    """How many of them are also generated token by token; 0 turns it off."""
    relabel_ids: bool = False
    """Relabel IDs as in training, instead of using them plain (one-pass scores only)."""
    prompt_ids_only: bool = False
    """Let predicted IDs be only those that the prompt has."""
    control: Control = "none"
    """Spoil the prompt's IDs: shuffled among its tokens, or each token with the ID of the one before it."""
    shift: Annotated[int, Bounds(-LARGEST_ID, LARGEST_ID)] = 0
    """A number added to all IDs, the reserved one included."""
    encoding: EncodingConfig | None = None
    """Another encoding for the trained weights, such as self_extend or scaled_rope for a model trained with rope."""
    select: Literal["last", "best_in_distribution"] = "last"
    """Which checkpoint is tested.  Nothing is ever chosen on lengths beyond training."""
    seed: Seed = 0
    """Seed of the test samples."""
    questions: Literal["fresh", "shared"] = "fresh"
    """Test samples that differ from one training seed to another, or the same ones for all.  Variants that were trained
    with one seed always get the same samples.  Of text, all models are tested on the same documents."""

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise ValueError(f"evaluate.samples must be at least 1, got {self.samples}")
        if not 0 <= self.free_samples <= self.samples:
            raise ValueError(f"evaluate.free_samples={self.free_samples} must be in 0..samples={self.samples}")
        for name, values in self.axes.items():
            if not values:
                raise ValueError(f"evaluate.axes.{name} has no values")
            if name in _COLUMNS:
                raise ValueError(f"evaluate.axes.{name}: tables of scores have a column {name} of their own")
            again = [value for value, times in Counter(map(str, values)).items() if times > 1]
            if again:
                raise ValueError(f"evaluate.axes.{name} has the value {again[0]} twice")
        if self.relabel_ids and self.free_samples:
            raise ValueError("evaluate.relabel_ids scores one pass only: set free_samples to 0")
        if self.prompt_ids_only and not self.free_samples:
            raise ValueError("evaluate.prompt_ids_only concerns generation: set free_samples")
        if self.relabel_ids and (self.control != "none" or self.shift):
            raise ValueError("evaluate.relabel_ids goes with neither control nor shift")

    def of_run(self, seed: int) -> "EvalConfig":
        """Return the test of a model that was trained with this seed: one whose samples depend on `seed` alone."""
        if self.questions == "shared":
            return self
        return replace(self, seed=derived_seed(seed, f"questions/{self.seed}"), questions="shared")

    def test_ids(self) -> str:
        """Say how these settings change the IDs of a test."""
        marks = [
            "relabelled" if self.relabel_ids else "",
            self.control if self.control != "none" else "",
            f"shifted by {self.shift}" if self.shift else "",
            "predicted ones from the prompt only" if self.prompt_ids_only else "",
            f"encoded by {_describe(self.encoding)}" if self.encoding is not None else "",
        ]
        return ", ".join(mark for mark in marks if mark) or "plain"


def _describe(encoding: EncodingConfig) -> str:
    """Its name and what differs from its defaults."""
    plain, default = to_plain(encoding), to_plain(type(encoding)())
    changed = [f"{name} {value}" for name, value in plain.items() if name != "name" and value != default.get(name)]
    return " ".join([name_of(type(encoding)), *changed])


@dataclass(frozen=True)
class Cell:
    """One length under one setting of the task."""

    task: Task
    length: int
    overrides: dict[str, str]

    def samples(self, config: EvalConfig) -> int:
        """Return the number of its samples: the configured one, or the number of rows if there are fewer."""
        rows = self.task.num_rows(self.length)
        return config.samples if rows is None else min(rows, config.samples)


def resolve_axes(task: Task, config: EvalConfig) -> None:
    """Import the classes that the axes name, under the caller's rules of where from; `cells` finds other mistakes."""
    if not any("." in value for value in strings_in(config.axes)):
        return
    for values in itertools.product(*config.axes.values()):
        try:
            build_part(Task, merge(to_plain(task), dict(zip(config.axes, values, strict=True))), "task")
        except NotTrusted:
            raise
        except BadInput:
            continue


def cells(task: Task, config: EvalConfig) -> tuple[list[Cell], list[str]]:
    """All cells, and a line for each that cannot exist (more marks than pairs, say)."""
    found, impossible = [], []
    for values in itertools.product(*config.axes.values()):
        overrides = dict(zip(config.axes, values, strict=True))
        varied = build_part(Task, merge(to_plain(task), overrides), "task") if overrides else task
        if varied.vocabulary != task.vocabulary:
            raise BadInput(f"{overrides} changes the vocabulary: the model was not trained on it")
        for length in config.lengths:
            try:
                varied.check_length(length)
            except BadInput as error:
                impossible.append(str(error))
            else:
                found.append(Cell(varied, length, {name: str(value) for name, value in overrides.items()}))
    if impossible and not config.axes:
        raise BadInput(impossible[0])
    if not found:
        raise BadInput(f"no cell can be tested: {impossible[0]}")
    return found, impossible


def check_cells(tested: list[Cell], model: Model, policy: IdPolicy) -> None:
    """Raise BadInput if a cell needs other IDs than the policy gives or the model reads."""
    for cell in tested:
        policy.check_test(cell.task, cell.task.max_tokens(cell.length))
        levels = len(policy.level_sizes(cell.task))
        if levels != model.levels:
            setting = ", ".join(f"{name}={value}" for name, value in cell.overrides.items()) or cell.task.name
            raise BadInput(
                f"{setting} gives each token {levels} position IDs, and the model was made for {model.levels}"
            )


def evaluate(
    model: Model,
    task: Task,
    policy: IdPolicy,
    config: EvalConfig,
    seed: int,
    device: str,
    progress: Callable[[int, str], None] = lambda done, note: None,
    batch_tokens: int = ExecutionConfig.batch_tokens,
    new_judge: Callable[[Model, int], Judge] = plain_judge,
    write: Callable[[Writing], None] = write_answers,
) -> list[Score]:
    """Test one model on all cells.  `seed` is the model's and goes into the scores.

    A forward pass has at most `batch_tokens` tokens, or one sample.  `new_judge` gets the model and the number of
    batches of a cell; `write` runs the loop over generated tokens.  An engine has faster ones of both.
    """
    if config.encoding is not None:
        plain = replace(config, encoding=None)
        with model.exchange_encoding(config.encoding):
            return evaluate(model, task, policy, plain, seed, device, progress, batch_tokens, new_judge, write)
    config = config.of_run(seed)
    model.eval()
    model.check_shift(config.shift)
    policy = spoil(policy, config.control)
    scores = []
    done = 0
    tested = cells(task, config)[0]
    check_cells(tested, model, policy)
    for cell in tested:
        counts: Counter[str] = Counter()
        batches = batches_of(cell, config, batch_tokens)
        judge = new_judge(model, len(batches))
        for start, size in batches:
            sample, ids, draws = draw_samples(policy, cell, config, start, size, device)
            counts += _count(judge(sample, ids, RESERVED + config.shift), model.position_head is not None)
            free = min(size, config.free_samples - start)
            if free > 0 and policy.serves_generation(cell.task):
                some, its_draws = sample.rows(0, free), draws.rows(0, free)
                counts += _count_free(model, policy, cell.task, some, config, its_draws, write)
            done += size
            progress(done, f"length {cell.length}")
        totals = {"samples": cell.samples(config), **{name: counts[name] for name in _TOTALS}}
        for metric, over in _METRICS.items():
            total = totals[over]
            # what no model does at all is left out: errors by their place, and by ID where none is predicted
            rare = metric.startswith("first_error") or (metric == "error_id_first" and not counts["with_ids"])
            if total and not (rare and not counts[metric]):
                scores.append(Score(seed, cell.length, metric, counts[metric], total, cell.overrides))
    return scores


def total_samples(task: Task, config: EvalConfig) -> int:
    return sum(cell.samples(config) for cell in cells(task, config)[0])


def fewer_samples(task: Task, config: EvalConfig) -> list[str]:
    """Return a line that names the lengths with fewer rows than samples were asked for, if there are any."""
    counts = {cell.length: cell.samples(config) for cell in cells(task, config)[0]}
    few = [f"{count} at length {length}" for length, count in counts.items() if count < config.samples]
    return [f"repeated rows: instead of {config.samples} samples there are {', '.join(few)}"] if few else []


TENTHS = 10
"""Parts of an answer, by which the place of the first error is told."""
_TOTALS = ("answer_tokens", "answer_ids", "with_ids", "generated")
_METRICS = {
    "token_em_tf": "samples",
    "token_id_em_tf": "with_ids",
    "token_em_free": "generated",
    "token_accuracy": "answer_tokens",
    "id_accuracy": "answer_ids",
    "near_tie": "samples",
    "error_token_first": "generated",
    "error_id_first": "generated",
    **{f"first_error_tenth_{tenth}": "generated" for tenth in range(TENTHS)},
}
"""Metrics and what they are counted over.  `tf`: the true prefix is given; `free`: the model is on its own."""


def batches_of(cell: Cell, config: EvalConfig, batch_tokens: int) -> list[tuple[int, int]]:
    """(first sample, number of samples): as few batches as the memory budget allows, all of one size but
    for the last."""
    most = max(1, batch_tokens // cell.task.max_tokens(cell.length))
    samples = cell.samples(config)
    size = math.ceil(samples / math.ceil(samples / most))
    return [(start, min(size, samples - start)) for start in range(0, samples, size)]


def draw_samples(
    policy: IdPolicy, cell: Cell, config: EvalConfig, start: int, size: int, device: str
) -> tuple[Sample, Int[Tensor, "b g t"], Draws]:
    """Draw samples of a cell with their IDs, and return the numbers that they were drawn from."""
    # the stream's name leaves out what does not change the samples: runs with other schemes get the same ones
    setting = ",".join(f"{name}={value}" for name, value in sorted(cell.overrides.items()))
    numbers = torch.arange(start, start + size, device=device)
    name = f"evaluate/{cell.task.name}/{setting}/{cell.length}"
    draws = stream(config.seed, name, numbers)
    task_draws = draws.child("task")
    if cell.task.num_rows(cell.length) is not None:  # consecutive keys: each row is used at most once
        first = stream(config.seed, name, torch.zeros_like(numbers[:1])).below("first row", 1 << 30, 1)[:, 0]
        task_draws = Draws(first + numbers)
    sample = cell.task.sample(torch.full_like(numbers, cell.length), task_draws, cell.length)
    if config.relabel_ids:
        policy.check(cell.task, sample)
        ids = policy.training_ids(cell.task, sample, draws.child("ids"))
    else:
        ids = policy.evaluation_ids(cell.task, sample, draws.child("ids"))
    return sample, ids + config.shift, draws


def _count(judged: Judged, predicts_ids: bool) -> "Counter[str]":
    """Count right answers, tokens and IDs of a batch."""
    counts = Counter(
        token_em_tf=int(judged.exact.sum()),
        token_accuracy=int(judged.right_tokens.sum()),
        answer_tokens=int(judged.answer_tokens.sum()),
        near_tie=int((judged.margin < NEAR_TIE).sum()),
    )
    if predicts_ids:
        counts += Counter(
            token_id_em_tf=int(judged.exact_with_ids.sum()),
            id_accuracy=int(judged.right_ids.sum()),
            answer_ids=int(judged.predicted_ids.sum()),
            with_ids=len(judged.exact),
        )
    return counts


def _count_free(
    model: Model,
    policy: IdPolicy,
    task: Task,
    sample: Sample,
    config: EvalConfig,
    draws: Draws,
    write: Callable[[Writing], None],
) -> "Counter[str]":
    """Count exact answers of the model's own, and where and how the others go wrong first."""
    free = run_free(model, task, policy, sample, config.prompt_ids_only, config.shift, draws, write)
    counts = Counter(token_em_free=int(free.exact.sum()), generated=len(sample.tokens))
    erred = free.first_error >= 0
    counts["error_token_first"] = int(free.token_first.sum())
    counts["error_id_first"] = int((erred & ~free.token_first).sum())
    size = (sample.num_tokens - sample.prompt_tokens).clamp(min=1)
    tenth = free.first_error * TENTHS // size
    for number in range(TENTHS):
        counts[f"first_error_tenth_{number}"] = int((erred & (tenth == number)).sum())
    return counts
