"""The training loop.  It measures and saves through callables that it is given."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from longreach.engine.ranks import ALONE, Ranks
from longreach.engine.stacked_stream import StackedStream
from longreach.errors import RunFailed
from longreach.execution import ExecutionConfig
from longreach.model import Model
from longreach.training.config import TrainConfig
from longreach.training.optimizer import learning_rate
from longreach.training.step import Stepper
from longreach.training.stream import TrainingStream


@dataclass(frozen=True)
class Hooks:
    """What the loop calls.  `save` gets the number of steps done and the last in-distribution score."""

    log: Callable[[int, dict[str, float]], None]
    validate: Callable[[int], float]
    save: Callable[[int, float | None], None]
    progress: Callable[[int, float | None], None]
    """Steps done and the latest known loss."""
    should_stop: Callable[[], bool]
    give_up: Callable[[str], None] | None = None
    """Told why training this model makes no sense any more; without it the loop itself fails."""


def train(
    model: Model,
    optimizer: torch.optim.Optimizer,
    data: TrainingStream | StackedStream,
    config: TrainConfig,
    hooks: Hooks | Sequence[Hooks],
    start_step: int = 0,
    compiled: Model | None = None,
    shares: Sequence[float] | None = None,
    ranks: Ranks = ALONE,
    loss: nn.Module | None = None,
    execution: ExecutionConfig | None = None,
) -> bool:
    """Train from `start_step` to the end; False if asked to stop before, with everything saved.

    A stack of models has hooks for each of them, of which the first tells progress and when to stop.  `compiled`, if
    given, is the same model in the form that computes the loss; `shares` are the models' learning rates, where they
    differ, as shares of the configured one.  Several `ranks` call this together, with the `loss` that they have in
    common; their hooks agree on when to stop.
    """
    execution = execution or ExecutionConfig()
    every = [hooks] if isinstance(hooks, Hooks) else list(hooks)
    unread: list[torch.Tensor] = []
    latest: list[list[float]] = []
    alive = dict(enumerate(every))
    logged_at, logged_step = time.perf_counter(), start_step
    model.train()
    take_step = Stepper(
        model if compiled is None else compiled,
        optimizer,
        data,
        config.optimizer,
        config.objective,
        config.steps,
        execution.accumulate,
        bf16=config.precision == "bf16",
        record=execution.graph,
        shares=shares,
        ranks=ranks,
        loss=loss,
    )
    for step in range(start_step, config.steps):
        unread.append(take_step(step))
        done = step + 1
        last = done == config.steps
        stop = every[0].should_stop()
        logging = done % execution.log_every == 0 or last
        saving = done % execution.save_every == 0 or last or stop
        if _reads_every_loss(data.device) or logging or saving:
            read = torch.stack(unread).tolist()
            _drop_spoilt(alive, read, first_step=done - len(read) + 1)
            latest, unread = read[-1], []
        if logging:
            seconds = time.perf_counter() - logged_at
            rate = (done - logged_step) * config.batch_size / seconds
            for number, one in alive.items():
                lr = learning_rate(config.optimizer, step, config.steps) * (1 if shares is None else shares[number])
                one.log(done, _values(model, latest[number], lr, rate))
            logged_at, logged_step = time.perf_counter(), done
        if saving:
            _drop_non_finite(model, len(every), alive, done, ranks)
        scores: dict[int, float] = {}
        if done % config.validate_every == 0 or last:
            model.eval()
            scores = {number: one.validate(done) for number, one in alive.items()}
            model.train()
        if saving:
            for number, one in alive.items():
                one.save(done, scores.get(number))
        every[0].progress(done, latest[0][0] if latest else None)
        if not alive:
            return True
        if stop and not last:
            return False
    return True


def _values(model: Model, losses: list[float], rate: float, samples_per_second: float) -> dict[str, float]:
    """What a line of metrics says; where models are stacked, the rate is that of each."""
    loss, id_loss, dependency_loss, norm = losses
    others = {} if model.position_head is None else {"id_loss": id_loss}
    others |= {} if model.dependency_head is None else {"dependency_loss": dependency_loss}
    return {"loss": loss, **others, "lr": rate, "grad_norm": norm, "samples_per_second": samples_per_second}


def _reads_every_loss(device: str | torch.device) -> bool:
    """Reading a loss waits for the device, so on a GPU losses are read only where they are logged or saved."""
    return torch.device(device).type == "cpu"


def _drop_spoilt(alive: dict[int, Hooks], read: list[list[list[float]]], first_step: int) -> None:
    """Give up a model before weights that a bad step has spoilt are saved; the others of a stack go on.  A gradient may
    overflow before the loss does."""
    for number in list(alive):
        reason = _non_finite([values[number] for values in read], first_step)
        if reason is not None:
            _give_up(alive, number, reason)


def _drop_non_finite(model: Model, models: int, alive: dict[int, Hooks], done: int, ranks: Ranks) -> None:
    """Give up models whose weights are not finite, before they are saved: no loss follows the last step."""
    weights = [part.to_local() if hasattr(part, "to_local") else part for part in model.parameters()]
    finite = [part.detach().isfinite().reshape(models, part.numel() // models).all(1) for part in weights]
    spoilt = (~torch.stack(finite).all(0)).tolist()
    for number in list(alive):
        if ranks.any(spoilt[number]):  # each rank may have only a part of the weights
            _give_up(alive, number, f"the weights after step {done} are not finite")


def _give_up(alive: dict[int, Hooks], number: int, reason: str) -> None:
    give_up = alive[number].give_up
    if give_up is None:
        raise RunFailed(reason)
    give_up(reason)
    del alive[number]


def _non_finite(read: list[list[float]], first_step: int) -> str | None:
    for offset, values in enumerate(read):
        for name, value in zip(("loss", "loss on IDs", "loss on dependencies", "gradient's norm"), values, strict=True):
            if not math.isfinite(value):
                return f"the {name} became {value} at step {first_step + offset}"
    return None
