"""Training of runs, one or a stack of them, from wherever they were left."""

from collections.abc import Sequence
from pathlib import Path

import torch

from longreach.engine.assembly import Drawn
from longreach.engine.drawing import HostStream, closing_workers
from longreach.engine.parallel import DistributedStep, Shared
from longreach.engine.plan import Parallel, Plan, choose, judges
from longreach.engine.ranks import Ranks
from longreach.engine.stacked_training import StackedStep, StackStream, stack_state, take_member
from longreach.engine.stacking import member_state, stack_models
from longreach.errors import BadInput, RunFailed
from longreach.evaluation import next_tokens
from longreach.model import RESERVED, Model
from longreach.runs.observer import Observer, Run, label, last_good
from longreach.runs.parts import common_training, stacked_data, training_data
from longreach.runs.profile import BUILD, LOAD, LOG, PREPARE, SAVE, VALIDATE, Training
from longreach.runs.recipe import RunConfig
from longreach.seeding import stream
from longreach.training import (
    AnyStep,
    Checkpoint,
    Hooks,
    Step,
    build_optimizer,
    legal_lengths,
    load_checkpoint,
    newest_intact,
    prune,
    remove_later,
    save_checkpoint,
    train,
)

_VALIDATION_SAMPLES = 256


def train_runs(
    runs: list[Run],
    device: str,
    observer: Observer,
    failures: dict[Path, str],
    ranks: Ranks,
    parallel: Parallel,
) -> bool:
    settings, _ = common_training([run.config for run in runs])
    execution, profile = runs[0].config.execution, observer.profile
    starts = _starts(runs, execution.save_every)
    steps = [_step(start) for start in starts]
    if len(set(steps)) > 1:
        runs[0].journal.warn(
            "the runs stopped at different steps: they go on one after the other, or as several stacks"
        )
        groups = [[run for run, own in zip(runs, steps, strict=True) if own == step] for step in sorted(set(steps))]
        return all(_train_group(group, device, observer, failures, ranks, parallel) for group in groups)
    with profile.phase(BUILD):
        optimizers = [build_optimizer(run.config.train.optimizer, run.model) for run in runs]
    step = steps[0]
    for run, start, own in zip(runs, starts, optimizers, strict=True):
        if start is not None:
            with profile.phase(LOAD):
                load_checkpoint(start, run.model, own)
            run.journal.tell("resumed", f"resuming {run.folder.path} at step {step}", step=step)
        prune(run.folder.checkpoints, execution.keep_last, step)
        run.folder.forget_after(step)
        run.tracker.forget_after(step)
    ranks.hear(step)
    if step >= settings.steps:
        return True
    model: Model = runs[0].model
    optimizer: torch.optim.Optimizer = optimizers[0]
    shared = None
    if ranks.count > 1:
        data = training_data(runs[0].config, runs[0].seed, device)
        shared = Shared(parallel, ranks, device, settings, execution, model, optimizer, data)
        model, optimizer = shared.model, shared.optimizer
    if len(runs) > 1:
        with profile.phase(BUILD):
            model = stack_models([run.model for run in runs])
            optimizer = build_optimizer(settings.optimizer, model)
            if step:
                stack_state(optimizer, optimizers)
    if execution.compile:
        check_compiler(device, torch.__version__)
    numbered = [(run.config, run.seed) for run in runs]
    with profile.phase(PREPARE):
        plan, take_step, drawn = make_step(numbered, model, optimizer, device, shared)
    observer.say(str(plan))
    for run in runs:
        run.folder.save_plan("training", plan.to_plain())
        run.journal.note("plan", message=str(plan))
    report = observer.phase(f"train {_labels(runs)}", settings.steps)
    report(step, "")

    def refresh(number: int) -> None:
        """Bring one of the models of a stack up to date, or the one that ranks have parts of."""
        if shared is not None:
            shared.refresh_model(runs[number].model)
        if len(runs) > 1:
            runs[number].model.load_state_dict(member_state(model, number))

    def hooks(number: int) -> Hooks:
        config, folder, seed, member, journal, tracker = runs[number]

        def log(done: int, values: dict[str, float]) -> None:
            folder.log(done, values)
            tracker.log(done, values)
            if number == 0 and isinstance(drawn, HostStream):
                for line in drawn.read_news():
                    journal.tell("drawing", line)

        def validate(done: int) -> float:
            refresh(number)
            score = _validate(config, member.eval(), seed, device)
            log(done, {"in_distribution_loss": -score} if config.task.open_ended else {"in_distribution_em": score})
            ranks.wait()
            return score

        def save(done: int, score: float | None) -> None:
            refresh(number)
            if shared is not None:
                shared.refresh_state(optimizers[number])
            if len(runs) > 1:
                take_member(optimizer, number, optimizers[number])
            save_checkpoint(folder.checkpoints, done, member, optimizers[number], score)
            if number == max(other for other, run in enumerate(runs) if run.folder.path not in failures):
                # not before all are saved: a stack that is killed in between goes back to a step that all have
                for run in runs:
                    remove_later(run.folder.checkpoints, done)
                    prune(run.folder.checkpoints, execution.keep_last, done)
            journal.note("checkpoint", step=done, score=score)
            observer.saved(folder)
            ranks.wait()

        def give_up(reason: str) -> None:
            failures[folder.path] = failure = (
                f"{folder.path}: {reason}; {last_good(folder)}; try a lower train.optimizer.lr"
            )
            journal.note("gave up", "error", message=failure)
            tracker.finish(done=False)
            if len(runs) == 1:
                raise RunFailed(failure)
            observer.say(f"{failure}; the others go on")

        return Hooks(
            log=profile.wrap(LOG, log),
            validate=profile.wrap(VALIDATE, validate),
            save=profile.wrap(SAVE, save),
            progress=lambda done, loss: report(done, "" if loss is None else f"loss {loss:.3g}"),
            should_stop=lambda: ranks.any(observer.should_stop()),
            give_up=give_up,
        )

    every = [hooks(number) for number in range(len(runs))]
    with closing_workers(drawn), profile.training(take_step, Training(numbered, step, drawn)) as take_step:
        return train(take_step, settings, execution, every, step)


def make_step(
    runs: Sequence[tuple[RunConfig, int]],
    model: Model,
    optimizer: torch.optim.Optimizer,
    device: str,
    shared: Shared | None = None,
) -> tuple[Plan, AnyStep, Drawn]:
    """Return the training step of runs, each with its seed, that are trained as one, the plan that computes it, and
    the data that it reads; workers may draw it: see `closing_workers`."""
    settings, shares = common_training([config for config, _ in runs])
    (config, seed), parts = runs[0], runs[0][0].execution.accumulate
    if shared is not None:
        step: Step = DistributedStep(shared, settings, parts)
        return shared.plan, shared.plan.training_step(step), shared.data
    data = stacked_data(runs, device) if len(runs) > 1 else training_data(config, seed, device)
    plan = choose(model, config.execution, device, settings.precision, data=data)
    fast, drawn = plan.training_model(model), plan.training_data(data, settings.steps)
    if isinstance(drawn, StackStream) and len(runs) > 1:
        step = StackedStep(fast, optimizer, drawn, settings, parts, shares)
    else:
        step = Step(fast, optimizer, drawn, settings, parts)
    return plan, plan.training_step(step), drawn


def check_compiler(device: str, version: str) -> None:
    """Raise BadInput where torch.compile is known to be wrong.

    On CPUs, torch 2.11 compiles the layers of our models so that gradients are off by 2%; 2.12 and 2.13 are right.
    """
    if torch.device(device).type == "cpu" and version.startswith("2.11."):
        raise BadInput(
            f"execution.compile on a CPU needs torch 2.12 or newer: {version} computes other gradients there"
        )


def _train_group(
    runs: list[Run], device: str, observer: Observer, failures: dict[Path, str], ranks: Ranks, parallel: Parallel
) -> bool:
    """Some runs of a stack that has fallen apart: one that is given up is no reason to leave the others alone."""
    try:
        return train_runs(runs, device, observer, failures, ranks, parallel)
    except RunFailed:
        if any(run.folder.path not in failures for run in runs):
            raise
        return True


def _starts(runs: list[Run], save_every: int) -> list[Checkpoint | None]:
    """What each seed goes on from: where a stack was killed while it saved, the step before, which all of them have."""
    newest = [newest_intact(run.folder.checkpoints, run.journal.warn) for run in runs]
    steps = [_step(start) for start in newest]
    if max(steps) - min(steps) > save_every:
        return newest
    return [
        start if _step(start) == min(steps) else newest_intact(run.folder.checkpoints, run.journal.warn, min(steps))
        for run, start in zip(runs, newest, strict=True)
    ]


def _step(start: Checkpoint | None) -> int:
    return 0 if start is None else start.step


@torch.no_grad()
def _validate(config: RunConfig, model: Model, seed: int, device: str) -> float:
    """Share of exact answers at training lengths, on a stream of its own (short samples may repeat all the same); of
    text, minus the loss on held-out windows as long as the longest."""
    task = config.held_out("valid")
    lengths = torch.tensor(legal_lengths(task, config.train.lengths), device=device)
    draws = stream(seed, "validate", torch.arange(_VALIDATION_SAMPLES, device=device))
    length = lengths[draws.below("length", len(lengths), 1)[:, 0]]
    longest = int(lengths.max())
    if task.open_ended:
        tokens = task.sample(length, draws.child("task"), longest).tokens
        fast = choose(model, config.execution, device).test_model(model)
        predict = next_tokens(fast, task, config.ids, seed=seed)
        size = max(1, config.execution.batch_tokens // longest)
        starts = range(0, len(tokens), size)
        return -float(torch.cat([predict(tokens[first : first + size], longest - 1)[0] for first in starts]).mean())
    sample = task.sample(length, draws.child("task"), longest)
    ids = config.ids.evaluation_ids(task, sample, draws.child("ids"))
    judged = judges(config.execution, device)(model, 1)(sample, ids, RESERVED)
    return float(judged.exact_with_ids.float().mean())


def _labels(runs: list[Run]) -> str:
    if len({run.folder.path.parent for run in runs}) > 1:
        return f"{label(runs[0].folder)} and {len(runs) - 1} more"
    others = [str(run.seed) for run in runs[1:]]
    return ", ".join([label(runs[0].folder), *others])
