"""The training loop.  It validates and saves through callables that it is given."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from longreach.errors import RunFailed
from longreach.execution import ExecutionConfig
from longreach.training.config import TrainConfig
from longreach.training.step import AnyStep


@dataclass(frozen=True)
class Hooks:
    """The callables of the loop for one model."""

    log: Callable[[int, dict[str, float]], None]
    """Gets the number of steps done and the metrics."""
    validate: Callable[[int], float]
    """Returns the in-distribution score."""
    save: Callable[[int, float | None], None]
    """Gets the number of steps done and the last in-distribution score."""
    progress: Callable[[int, float | None], None]
    """Gets the number of steps done and the latest known loss, that of the first model that is not given up."""
    should_stop: Callable[[], bool]
    give_up: Callable[[str], None] | None = None
    """Gets the reason why this model cannot be trained further; without it the loop raises RunFailed."""


def train(
    step: AnyStep, config: TrainConfig, execution: ExecutionConfig, hooks: Sequence[Hooks], start_step: int = 0
) -> bool:
    """Train from `start_step` to the end; return False if stopped before, with everything saved.

    There are hooks for each model that the step trains.  The first ones get the progress and may stop the loop.
    """
    unread: list[torch.Tensor] = []
    latest: list[list[float]] = []
    alive = dict(enumerate(hooks))
    logged_at, logged_step = time.perf_counter(), start_step
    step.model.train()
    for number in range(start_step, config.steps):
        unread.append(step(number))
        done = number + 1
        last = done == config.steps
        stop = hooks[0].should_stop()
        logging = done % execution.log_every == 0 or last
        saving = done % execution.save_every == 0 or last or stop
        if step.reads_host or logging or saving:
            read = torch.stack(unread).tolist()
            _drop_non_finite_values(alive, step.values, read, first_step=done - len(read) + 1)
            latest, unread = read[-1], []
        if logging:
            speed = (done - logged_step) * config.batch_size / (time.perf_counter() - logged_at)
            rates = step.rates(number)
            for index, one in alive.items():
                values = dict(zip(step.values, latest[index], strict=True))
                norm = values.pop("grad_norm")
                one.log(done, {**values, "lr": rates[index], "grad_norm": norm, "samples_per_second": speed})
            logged_at, logged_step = time.perf_counter(), done
        if saving:  # no loss shows whether the last step was bad
            for index, finite in enumerate(step.finite()):
                if not finite and index in alive:
                    _give_up(alive, index, f"the weights after step {done} are not finite")
        scores: dict[int, float] = {}
        if done % config.validate_every == 0 or last:
            step.model.eval()
            scores = {index: one.validate(done) for index, one in alive.items()}
            step.model.train()
        if saving:
            for index, one in alive.items():
                one.save(done, scores.get(index))
        hooks[0].progress(done, latest[min(alive)][0] if latest and alive else None)
        if not alive:
            return True
        if stop and not last:
            return False
    return True


def _drop_non_finite_values(
    alive: dict[int, Hooks], names: Sequence[str], read: list[list[list[float]]], first_step: int
) -> None:
    """Give up models with a loss or gradient that is not finite, before their weights are saved."""
    for index in list(alive):
        bad = (
            f"the {name} became {value} at step {first_step + offset}"
            for offset, models in enumerate(read)
            for name, value in zip(names, models[index], strict=True)
            if not math.isfinite(value)
        )
        reason = next(bad, None)
        if reason is not None:
            _give_up(alive, index, reason)


def _give_up(alive: dict[int, Hooks], index: int, reason: str) -> None:
    give_up = alive[index].give_up
    if give_up is None:
        raise RunFailed(reason)
    give_up(reason)
    del alive[index]
