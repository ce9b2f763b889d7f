"""Estimates of the memory of a test or of training and of the time of a test, before they start."""

import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from longreach.attention import Attention
from longreach.config.spans import Lengths
from longreach.errors import BadInput
from longreach.evaluation.context import BLOCK, Predict, predicted_at_once
from longreach.evaluation.evaluate import Cell, EvalConfig, batches_of, cells, evaluate
from longreach.evaluation.scores import Score
from longreach.model import Model
from longreach.positions.encodings import Encoding
from longreach.positions.ids import IdPolicy
from longreach.seeding import stream
from longreach.tasks import Sample, Task

_STATES = 16
"""Numbers as wide as the model that a layer holds of a token at once; measured: 8 to 21."""
_BYTES = 4
_KEPT_STATES = 18
"""Numbers as wide as the model that a layer keeps of a token for the backward pass; measured: 17 to 27."""
_IDS = 200
"""Bytes of a token besides its states: its number, its IDs and its masks."""
_WRITTEN = 1 << 28
"""Scores that an attention writes out at once, at most."""
_COPIES_OF_SCORES = 12
"""Numbers held of each score that is written out; measured: 15 for entmax."""
_COPIES_OF_BIASES = 1
"""Numbers held of each score where a bias or a mask enters a fused kernel."""
_LOGITS = 3 * (1 << 27)
"""Numbers held of logits, at most."""

_MEASURED_TOKENS = 4096
_MEASURED_SECONDS = 0.3
"""A measurement at a greater length follows until one takes so long."""
_LONG_PIECE = 1.0
"""Seconds of a piece of work whose growth with the length is measured; shorter ones say little of it."""
_SLOWEST = {"cpu": 1e9, "cuda": 1e11}
"""Operations per second of the slowest device; less work than this allows in a minute is not measured."""
_SLOWEST_STEP = 0.005
"""Seconds of a step of generation."""
_WORTH_MEASURING = 60.0


@dataclass(frozen=True)
class PassCost:
    """Memory and arithmetic of one pass through a model."""

    linear: float
    """Operations per token."""
    quadratic: float
    """Operations per pair of tokens of a row."""
    width: int
    depth: int
    heads: int
    copies_of_scores: int
    """Numbers that are held of each score of a head; 0 where no scores are written out."""
    cached: int
    """Bytes of a token in the cache of generation."""
    vocabulary: int

    @staticmethod
    def of(model: Model) -> "PassCost":
        """Return the cost of a model, which may lie on the meta device."""
        config: Any = model.config
        attentions = [module for module in model.modules() if isinstance(module, Attention)]
        copies = 0
        if not all(attention.fused for attention in attentions):
            copies = _COPIES_OF_SCORES
        elif any(attention.hides for attention in attentions) or _has_bias(model):
            copies = _COPIES_OF_BIASES
        layers = sum(weight.numel() for name, weight in model.named_parameters() if not name.startswith("embed."))
        return PassCost(
            linear=2.0 * layers * getattr(config, "loops", 1),
            quadratic=2.0 * config.width * config.depth if attentions else 0.0,
            width=config.width,
            depth=config.depth,
            heads=getattr(config, "heads", 1),
            copies_of_scores=copies,
            cached=2 * _BYTES * config.width * config.depth,
            vocabulary=len(model.embed.weight),
        )

    def operations(self, tokens: int) -> float:
        """Return the operations of a row."""
        return self.linear * tokens + self.quadratic * tokens**2

    def memory(self, rows: int, tokens: int, answers: int) -> int:
        """Return the bytes that a batch takes at most without gradients, if `answers` tokens of each row are
        predicted."""
        scores = min(rows * self.heads * tokens**2, _WRITTEN) * self.copies_of_scores
        logits = min(3 * rows * answers * self.vocabulary, _LOGITS)
        states = rows * tokens * self.width * _STATES
        return _BYTES * (states + scores + logits) + rows * tokens * _IDS

    def training_memory(
        self,
        rows: int,
        tokens: int,
        answers: int,
        *,
        parts: int = 1,
        recompute: bool = False,
        half: bool = False,
        biases_by_kernel: bool = False,
    ) -> int:
        """Return the bytes that a batch takes in training, computed in `parts`; weights are not among them.

        With `recompute` only the inputs of layers are kept.  `half` says that layers compute in 16 bits, and
        `biases_by_kernel` that no scores are written out to add biases to them.
        """
        drawn = rows * tokens * _IDS
        copies = self.copies_of_scores
        if biases_by_kernel and copies == _COPIES_OF_BIASES:
            copies = 0
        rows, layers = -(-rows // parts), 1 if recompute else self.depth
        scores = rows * self.heads * tokens**2
        scores = (scores * layers if scores <= _WRITTEN else _WRITTEN) * copies
        logits = min(3 * rows * answers * self.vocabulary, _LOGITS)
        state = rows * tokens * self.width * (_BYTES // 2 if half else _BYTES)
        inputs = rows * tokens * self.width * self.depth * _BYTES if recompute else 0
        return drawn + state * _KEPT_STATES * layers + inputs + _BYTES * (scores + logits)


def _has_bias(model: Model) -> bool:
    encoding = getattr(model, "encoding", None)
    return isinstance(encoding, Encoding) and encoding.biases_scores


@dataclass(frozen=True)
class Work:
    """Parts of some work, in order, each with its units and an estimate of its seconds."""

    units: tuple[int, ...]
    seconds: tuple[float, ...]

    @property
    def total(self) -> float:
        return sum(self.seconds)

    def left(self, done: int, elapsed: float) -> float:
        """Return the seconds left after `done` units that took `elapsed` seconds.

        The estimate is corrected by the time that was taken as soon as that says something.
        """
        passed, before = 0.0, 0
        for end, units, seconds in zip(itertools.accumulate(self.units), self.units, self.seconds, strict=True):
            passed += seconds * min(1.0, max(0, done - before) / max(1, units))
            before = end
        measured = elapsed > 2.0 and passed > 0.02 * self.total
        return max(0.0, self.total - passed) * (elapsed / passed if measured else 1.0)


def memory_of_test(model: Model, task: Task, config: EvalConfig, batch_tokens: int) -> tuple[int, int]:
    """Return the bytes that a test takes at most, and the length at which it does."""
    cost = PassCost.of(model)
    if task.open_ended:
        return memory_of_text(cost, config, batch_tokens)
    found = []
    for cell in cells(task, config)[0]:
        tokens, rows = cell.task.max_tokens(cell.length), batches_of(cell, config, batch_tokens)[0][1]
        free = min(rows, config.free_samples)
        needed = cost.memory(rows, tokens, cell.task.max_answer(cell.length)) + free * tokens * cost.cached
        found.append((needed, cell.length))
    return max(found)


def memory_of_text(cost: PassCost, config: EvalConfig, batch_tokens: int) -> tuple[int, int]:
    """Return the bytes that a test on text takes at most, and the context at which it does."""
    return max((cost.memory(*_window_batch(context, config, batch_tokens)), context) for context in config.lengths)


def _window_batch(context: int, config: EvalConfig, batch_tokens: int) -> tuple[int, int, int]:
    """Return rows, tokens and predicted tokens of a batch of text."""
    last = predicted_at_once(context)
    tokens = context + last
    rows = min(max(1, batch_tokens // tokens), max(1, config.samples // last))
    return rows, tokens, last


def estimate_test(
    model: Model,
    task: Task,
    policy: IdPolicy,
    config: EvalConfig,
    device: str,
    batch_tokens: int,
    predict: Predict | None = None,
    test_cells: Callable[..., list[Score]] = evaluate,
) -> Work | None:
    """Estimate the time of a test from short pieces of the same work; None if it is short in any case.

    On text, `predict` is the function that is tested; otherwise `test_cells` is.
    """
    if task.open_ended:
        return None if predict is None else estimate_text(PassCost.of(model), predict, config, device)
    cost, every = PassCost.of(model), cells(task, config)[0]
    free = config.free_samples if policy.serves_generation(task) else 0
    passes = [cell.samples(config) * cost.operations(cell.task.max_tokens(cell.length)) for cell in every]
    steps = [
        _generation_batches(cell, config, free, batch_tokens) * cell.task.max_answer(cell.length) for cell in every
    ]
    written = [free * cell.task.max_answer(cell.length) * _step_operations(cost, cell) for cell in every]
    fewest = (sum(passes) + sum(written)) / _SLOWEST[torch.device(device).type] + sum(steps) * _SLOWEST_STEP
    if fewest < _WORTH_MEASURING:
        return None
    largest = every[max(range(len(every)), key=passes.__getitem__)]

    def test(length: int, samples: int, generated: int) -> float:
        plain = replace(
            config,
            lengths=Lengths((length,)),
            axes={},
            samples=samples,
            free_samples=generated,
            prompt_ids_only=config.prompt_ids_only and generated > 0,
        )
        return _timed(lambda: test_cells(model, largest.task, policy, plain, 0, device), device)

    lengths = list(_shorter(largest.task, largest.length))

    def test_some(length: int) -> tuple[float, float]:
        tokens = largest.task.max_tokens(length)
        rows = max(1, min(config.samples, _MEASURED_TOKENS // tokens))
        return test(length, rows, 0), rows * cost.operations(tokens)

    per_operation = _seconds_per_operation(test_some, lengths)
    per_step = test(lengths[0], 1, 1) / largest.task.max_answer(lengths[0]) if free else 0.0
    seconds_of = [
        (one + more) * per_operation + number * per_step
        for one, more, number in zip(passes, written, steps, strict=True)
    ]
    return Work(tuple(cell.samples(config) for cell in every), tuple(seconds_of))


def estimate_measures(
    model: Model, task: Task, config: EvalConfig, device: str, measure: Callable[[Cell, int], object]
) -> Work | None:
    """Estimate the time of measuring all cells from short pieces of the same work; None if it is short in any case.

    `measure` measures some samples of a cell.
    """
    cost, every = PassCost.of(model), cells(task, config)[0]
    passes = [cell.samples(config) * cost.operations(cell.task.max_tokens(cell.length)) for cell in every]
    if sum(passes) / _SLOWEST[torch.device(device).type] < _WORTH_MEASURING:
        return None
    largest = every[max(range(len(every)), key=passes.__getitem__)]

    def measure_some(length: int) -> tuple[float, float]:
        tokens = largest.task.max_tokens(length)
        rows = max(1, min(config.samples, _MEASURED_TOKENS // tokens))
        some = replace(largest, length=length)
        return _timed(lambda: measure(some, rows), device), rows * cost.operations(tokens)

    per_operation = _seconds_per_operation(measure_some, list(_shorter(largest.task, largest.length)))
    return Work(tuple(cell.samples(config) for cell in every), tuple(one * per_operation for one in passes))


def _generation_batches(cell: Cell, config: EvalConfig, free: int, batch_tokens: int) -> int:
    return sum(start < free for start, _ in batches_of(cell, config, batch_tokens))


def _step_operations(cost: PassCost, cell: Cell) -> float:
    """Return the operations of one token that is generated."""
    return cost.linear + 2 * cost.quadratic * cell.task.max_tokens(cell.length)


def _shorter(task: Task, longest: int) -> Iterator[int]:
    """Yield lengths of the task, each about twice the one before, up to the longest."""
    wanted = 8
    while wanted < longest:
        for length in range(wanted, min(2 * wanted, wanted + 64, longest)):
            try:
                task.check_length(length)
            except BadInput:
                continue
            yield length
            break
        wanted *= 2
    yield longest


def seconds_at_length(task: Task, length: int, work: Callable[[int], object]) -> float:
    """Estimate the seconds of some work on the CPU from the same work at shorter lengths; 0 if it is short.

    The time is taken to go on growing as it does over the last three doublings of the length, at least in proportion.
    """
    measured: list[tuple[int, float]] = []
    for shorter in itertools.takewhile(lambda one: one < length, _shorter(task, length)):
        seconds = _timed(partial(work, shorter), "cpu")
        measured.append((shorter, seconds))
        if seconds > _LONG_PIECE:
            first, fewer = measured[-4:][0]
            growth = math.log(seconds / max(fewer, 1e-9)) / math.log(shorter / first) if shorter > first else 1.0
            return float(seconds * (length / shorter) ** max(1.0, growth))
    return 0.0


def estimate_text(cost: PassCost, predict: Predict, config: EvalConfig, device: str) -> Work | None:
    """Estimate the time of a test on text; the losses by position belong to the longest context."""
    contexts = sorted(config.lengths)
    sizes = [(context + predicted_at_once(context), predicted_at_once(context)) for context in contexts]
    operations = [config.samples / last * cost.operations(tokens) for tokens, last in sizes]
    operations[-1] += config.samples / BLOCK * cost.operations(contexts[-1])
    units = (config.samples,) * len(contexts)
    return estimate_windows(cost, predict, units, operations, sizes[-1][0], device)


def estimate_windows(
    cost: PassCost, predict: Predict, units: tuple[int, ...], operations: Sequence[float], longest: int, device: str
) -> Work | None:
    """Estimate the time of passes over windows of at most `longest` tokens; None if it is short in any case.

    The work has parts with these units and operations.
    """
    if sum(operations) / _SLOWEST[torch.device(device).type] < _WORTH_MEASURING:
        return None

    def predict_some(tokens: int) -> tuple[float, float]:
        rows = max(1, _MEASURED_TOKENS // tokens)
        windows = torch.zeros(rows, tokens, dtype=torch.long, device=device)
        return _timed(lambda: predict(windows, 1), device), rows * cost.operations(tokens)

    per_operation = _seconds_per_operation(predict_some, _doubling(longest))
    return Work(units, tuple(one * per_operation for one in operations))


def memory_of_generation(model: Model, sample: Sample) -> int:
    """Return the bytes that generation takes for a batch of prompts."""
    cost, (rows, tokens) = PassCost.of(model), sample.tokens.shape
    return cost.memory(rows, tokens, 1) + rows * tokens * cost.cached


@torch.no_grad()
def seconds_of_generation(model: Model, task: Task, policy: IdPolicy, sample: Sample) -> float:
    """Estimate the time of generation if every answer takes all of its room; 0 if it is short in any case.

    The beginning of the prompt is read to measure the time of an operation, and one token to measure a step.
    """
    cost, device = PassCost.of(model), str(sample.tokens.device)
    prompt = int(sample.prompt_tokens.max())
    room = int((sample.num_tokens - sample.prompt_tokens).max())
    operations = cost.operations(prompt) + room * (cost.linear + 2 * cost.quadratic * sample.tokens.shape[1])
    if operations / _SLOWEST[torch.device(device).type] + room * _SLOWEST_STEP < _WORTH_MEASURING:
        return 0.0
    draws = stream(0, "estimate", torch.arange(len(sample.tokens), device=sample.tokens.device))
    ids = policy.evaluation_ids(task, sample.prompt_only(), draws)

    def read_some(tokens: int) -> tuple[float, float]:
        seconds = _timed(lambda: model(sample.tokens[:, :tokens], ids[:, :, :tokens]), device)
        return seconds, cost.operations(tokens)

    per_operation = _seconds_per_operation(read_some, _doubling(prompt))
    per_step = _timed(lambda: model(sample.tokens[:, :1], ids[:, :, :1]), device)
    return operations * per_operation + room * per_step


def _seconds_per_operation(measure: Callable[[int], tuple[float, float]], sizes: list[int]) -> float:
    """Return the seconds of an operation at the first size that takes long enough to be measured, or at the largest.

    `measure` returns the seconds of some work and its operations.
    """
    measure(sizes[0])  # the first call loads libraries
    per_operation = 0.0
    for tokens in sizes:
        seconds, operations = measure(tokens)
        per_operation = seconds / operations
        if seconds > _MEASURED_SECONDS:
            break
    return per_operation


def _doubling(largest: int) -> list[int]:
    return [*itertools.takewhile(lambda size: size < largest, (32 << power for power in range(64))), largest]


def _timed(work: Callable[[], object], device: str) -> float:
    """Return the seconds of some work.  On a GPU, long work is done twice: its first call may compile kernels."""
    gpu = torch.device(device).type == "cuda"

    def once() -> float:
        start = time.perf_counter()
        work()
        if gpu:
            torch.cuda.synchronize(device)
        return time.perf_counter() - start

    seconds = once()
    return once() if gpu and seconds > _MEASURED_SECONDS else seconds
