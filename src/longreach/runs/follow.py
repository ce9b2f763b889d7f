"""The work of the ranks after the first: compute their rows of every step, and write nothing."""

from collections.abc import Callable

from longreach.engine.drawing import closing_workers
from longreach.engine.parallel import DistributedStep, Shared
from longreach.engine.plan import Parallel
from longreach.engine.ranks import Ranks
from longreach.errors import RunFailed
from longreach.runs.folder import RunFolder
from longreach.runs.parts import new_model, training_data
from longreach.runs.recipe import RunConfig
from longreach.training import Hooks, build_optimizer, list_checkpoints, load_checkpoint, train

FINISHED = -1
"""What the first rank says instead of a step where nothing is left to do."""


def follow(
    config: RunConfig,
    folder: RunFolder,
    seed: int,
    device: str,
    ranks: Ranks,
    parallel: Parallel,
    should_stop: Callable[[], bool],
) -> bool:
    """Train along with the first rank, then wait for its tests; False if interrupted."""
    step = ranks.hear()
    if step == FINISHED:
        return True
    if step < config.train.steps and not _train(config, folder, seed, device, ranks, parallel, should_stop, step):
        return False
    return bool(ranks.hear())


def _train(
    config: RunConfig,
    folder: RunFolder,
    seed: int,
    device: str,
    ranks: Ranks,
    parallel: Parallel,
    should_stop: Callable[[], bool],
    step: int,
) -> bool:
    model = new_model(config, seed, device)
    optimizer = build_optimizer(config.train.optimizer, model)
    if step:
        seen = [checkpoint for checkpoint in list_checkpoints(folder.checkpoints) if checkpoint.step == step]
        if not seen:
            raise RunFailed(f"step {step} is not in {folder.checkpoints}: all processes need the same file system")
        load_checkpoint(seen[0], model, optimizer)
    data = training_data(config, seed, device)
    shared = Shared(parallel, ranks, device, config.train, config.execution, model, optimizer, data)
    take_step = shared.plan.training_step(DistributedStep(shared, config.train, config.execution.accumulate))

    def validate(done: int) -> float:
        shared.refresh_model(None)
        ranks.wait()
        return 0.0  # the score is the first rank's

    def save(done: int, score: float | None) -> None:
        shared.refresh_model(None)
        shared.refresh_state(None)
        ranks.wait()

    hooks = Hooks(
        log=lambda done, values: None,
        validate=validate,
        save=save,
        progress=lambda done, loss: None,
        should_stop=lambda: ranks.any(should_stop()),
    )
    with closing_workers(shared.data):
        return train(take_step, config.train, config.execution, [hooks], step)
