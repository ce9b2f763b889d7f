"""Checks of a run before it starts."""

from collections.abc import Callable
from dataclasses import replace

import torch
from jaxtyping import Int
from torch import Tensor

from longreach.engine.plan import choose
from longreach.engine.stacking import check_stackable
from longreach.errors import BadInput
from longreach.evaluation import cells, check_cells, check_text_test
from longreach.evaluation.context import choose_targets, predicted_at_once
from longreach.model import Model
from longreach.objectives import resolve_objectives
from longreach.positions.ids import Sequential
from longreach.runs.memory import check_weights
from longreach.runs.parts import new_model, training_data
from longreach.runs.recipe import RunConfig
from longreach.seeding import stream
from longreach.tasks import Sample, Task, Text
from longreach.training import TrainingStream, legal_lengths

_TOKENS = 1 << 22
"""Tokens of a batch that is looked at."""


def check(config: RunConfig, stacked: bool = False, check_memory: Callable[[RunConfig], None] = check_weights) -> None:
    """Raise BadInput for what would fail in training or after it; `stacked` if seeds are to be trained as one.

    `check_memory` is called before a model is made, with settings whose IDs fit the task.
    """
    if isinstance(config.task, Text):
        _ = config.task.opened  # or refuses a corpus that is not there
    data = _some_data(config, 1024)
    config.ids.check(config.task, _look(config.task, data.longest))
    check_memory(config)
    model = new_model(config, seed=0, device="cpu")
    if stacked:
        check_stackable(model)
    predicted = config.ids.supplier(config.task) == "model"
    _refuse_ignored(config, model, predicted)
    model.check_shift(config.evaluate.shift)
    if config.evaluate.encoding is not None:
        with torch.no_grad(), model.exchange_encoding(config.evaluate.encoding):  # or refuses what does not fit
            batch = data.batch(0)
            model(batch.sample.tokens[:1], batch.ids[:1])  # an encoding is computed when it is first used
    if config.task.open_ended:
        _check_text(config, model)
    else:
        _check_tests(config, model, data)
    rows = 1 if config.task.open_ended else 64  # a row of text is long
    batch = _some_data(config, rows).batch(0)
    for objective in resolve_objectives(config.train.objectives, model):
        objective.check(model, batch)


def _some_data(config: RunConfig, rows: int) -> TrainingStream:
    """Return training data in batches of so many rows, or of fewer if they are long."""
    data = training_data(config, 0, "cpu", 1)
    return replace(data, batch_size=max(1, min(rows, _TOKENS // data.width)))


def _check_tests(config: RunConfig, model: Model, data: TrainingStream) -> None:
    """Check that every test has the IDs that it needs, and the model an entry for each."""
    legal_lengths(config.held_out("valid"), config.train.lengths)  # or refuses: nothing to validate on
    tested = cells(config.held_out(), config.evaluate)[0]
    check_cells(tested, model, config.ids)
    for cell in tested:
        if config.evaluate.relabel_ids:
            config.ids.check(cell.task, _look(cell.task, cell.length))
    last = model.largest_id
    if last is None:
        return
    if config.ids.max_id > last:
        raise BadInput(f"training IDs go up to {config.ids.max_id}, the table ends at {last}")
    model.check_ids(data.batch(0).ids)
    if config.ids.draws_test_ids and config.ids.max_id + config.evaluate.shift > last:
        raise BadInput(f"test IDs go up to {config.ids.max_id + config.evaluate.shift}, the table ends at {last}")
    for cell in tested:
        model.check_ids(_test_ids(config, cell.task, cell.length))


def _check_text(config: RunConfig, model: Model) -> None:
    """That there is text to validate and test on, and an ID for every place of the longest context."""
    check_text_test(config.evaluate)
    task, contexts = config.task, config.evaluate.lengths
    task.held_out("valid").check_length(config.train.lengths.high)
    assert isinstance(task, Text)
    choose_targets(task.held_out("test").documents, config.evaluate.samples, max(contexts), config.evaluate.seed)
    window = max(contexts) + predicted_at_once(max(contexts))
    config.ids.check_test(task, window)
    if model.largest_id is not None:
        model.check_ids(_test_ids(config, task, window))


def _refuse_ignored(config: RunConfig, model: Model, predicted: bool) -> None:
    """Settings that need another one to have an effect."""
    ids = config.ids
    if predicted and model.position_head is None:
        raise BadInput(f"ids {ids.name} needs model.position_head: pointer or table")
    if not predicted and model.position_head is not None:
        raise BadInput(f"model.position_head predicts IDs, which ids {ids.name} does not use")
    if not predicted and config.evaluate.prompt_ids_only:
        raise BadInput(f"evaluate.prompt_ids_only concerns predicted IDs, which ids {ids.name} does not use")
    unused = choose(model, config.execution, "cpu", config.train.precision).unused  # or refuses names of unknown parts
    if config.execution.recompute and "recomputed_layers" in unused:
        raise BadInput(f"execution.recompute concerns the layers of a transformer: {unused['recomputed_layers']}")
    if not model.reads_ids and type(ids) is not Sequential:
        raise BadInput(f"model {config.model.name} reads no position IDs, so ids {ids.name} would make no difference")


def _test_ids(config: RunConfig, task: Task, length: int) -> Int[Tensor, "b g t"]:
    """Return the IDs of a few test samples."""
    sample = _look(task, length)
    draws = stream(0, "look", torch.arange(len(sample.tokens))).child("ids")
    return config.ids.evaluation_ids(task, sample, draws) + config.evaluate.shift


def _look(task: Task, length: int) -> Sample:
    numbers = torch.arange(16)
    return task.sample(torch.full_like(numbers, length), stream(0, "look", numbers), length)
