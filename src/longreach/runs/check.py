"""What would go wrong in a run, found out before it starts."""

import math
from dataclasses import replace

import torch
from jaxtyping import Int
from torch import Tensor

from longreach.engine.stacking import check_stackable
from longreach.errors import BadInput
from longreach.evaluation import cells, check_text_test
from longreach.evaluation.context import choose_targets, predicted_at_once
from longreach.model import Model, Transformer
from longreach.objective import ObjectiveConfig, answer_loss
from longreach.positions.ids import Sequential
from longreach.runs.parts import new_model, training_data
from longreach.runs.recipe import RunConfig
from longreach.seeding import stream
from longreach.tasks import Sample, Task, Text
from longreach.training import legal_lengths


def check(config: RunConfig, stacked: bool = False) -> None:
    """Find out before training starts what would go wrong after it; `stacked` if seeds are to be trained as one."""
    if isinstance(config.task, Text):
        _ = config.task.opened  # or refuses a corpus that is not there
    data = training_data(config, 1024, [0], device="cpu")
    config.ids.check(config.task, _look(config.task, data.longest))
    model = new_model(config, seed=0, device="cpu")
    if stacked:
        check_stackable(model)
    predicted = config.ids.supplier(config.task) == "model"
    _refuse_ignored(config, model, predicted)
    if config.evaluate.encoding is not None:
        with torch.no_grad(), model.exchange_encoding(config.evaluate.encoding):  # or refuses what does not fit
            batch = data.batch(0)
            model(batch.sample.tokens[:1], batch.ids[:1])  # an encoding is computed when it is first used
    if config.task.open_ended:
        _check_text(config, model)
        return
    tested = cells(config.task, config.evaluate)[0]
    for cell in tested:
        config.ids.check_test(cell.task, cell.task.max_tokens(cell.length))
        if config.evaluate.relabel_ids:
            config.ids.check(cell.task, _look(cell.task, cell.length))
    last = model.largest_id
    if last is None:
        if predicted:
            _check_reachable(config, model)
        return
    if config.ids.max_id > last:
        raise BadInput(f"training IDs go up to {config.ids.max_id}, the table ends at {last}")
    model.check_ids(data.batch(0).ids)
    if config.ids.draws_test_ids and config.ids.max_id + config.evaluate.shift > last:
        raise BadInput(f"test IDs go up to {config.ids.max_id + config.evaluate.shift}, the table ends at {last}")
    for cell in tested:
        model.check_ids(_test_ids(config, cell.task, cell.length))
    if predicted:
        _check_reachable(config, model)


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
    ids, objective = config.ids, config.train.objective
    if predicted and model.position_head is None:
        raise BadInput(f"ids {ids.name} needs model.position_head: pointer or table")
    if not predicted and model.position_head is not None:
        raise BadInput(f"model.position_head predicts IDs, which ids {ids.name} does not use")
    if not predicted and replace(objective, dependency_weight=1.0) != ObjectiveConfig():
        raise BadInput(f"train.objective concerns predicted IDs, which ids {ids.name} does not use")
    if not predicted and config.evaluate.prompt_ids_only:
        raise BadInput(f"evaluate.prompt_ids_only concerns predicted IDs, which ids {ids.name} does not use")
    if model.dependency_head is None and objective.dependency_weight != ObjectiveConfig().dependency_weight:
        raise BadInput("train.objective.dependency_weight needs model.dependency_head")
    if model.dependency_head is not None:
        config.task.depends_on(_look(config.task, min(legal_lengths(config.task, config.train.lengths))))
    if config.execution.recompute and not isinstance(model, Transformer):
        raise BadInput(f"execution.recompute concerns the layers of a transformer, not of a {config.model.name} model")
    if not model.reads_ids and type(ids) is not Sequential:
        raise BadInput(f"model {config.model.name} reads no position IDs, so ids {ids.name} would make no difference")


@torch.no_grad()
def _check_reachable(config: RunConfig, model: Model) -> None:
    """Refuse a position head that cannot say the true IDs: its loss would be infinite."""
    batch = training_data(config, 64, [0], device="cpu").batch(0)
    objective = ObjectiveConfig(id_loss_on=config.train.objective.id_loss_on)
    needs = None if model.dependency_head is None else config.task.depends_on(batch.sample)
    loss = answer_loss(model, batch.sample, batch.ids, objective, depends_on=needs)
    if not math.isfinite(float(loss.position.sum())):
        raise BadInput(
            f"the position head cannot reach all IDs of {config.task.name}: raise model.position_head.moves,"
            " or use another head or form of coupling"
        )


def _test_ids(config: RunConfig, task: Task, length: int) -> Int[Tensor, "b g t"]:
    """Return the IDs of a few test samples."""
    sample = _look(task, length)
    draws = stream(0, "look", torch.arange(len(sample.tokens))).child("ids")
    return config.ids.evaluation_ids(task, sample, draws) + config.evaluate.shift


def _look(task: Task, length: int) -> Sample:
    numbers = torch.arange(16)
    return task.sample(torch.full_like(numbers, length), stream(0, "look", numbers), length)
