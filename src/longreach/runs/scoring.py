"""Tests of a trained run."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial

from longreach.engine.plan import choose, describe_plan, judges, write_fast
from longreach.errors import BadInput
from longreach.evaluation import (
    EvalConfig,
    Score,
    TextResult,
    cells,
    check_text_test,
    estimate_test,
    evaluate,
    evaluate_text,
    fewer_samples,
    make_card,
    next_tokens,
    text_work,
    total_samples,
)
from longreach.execution import ExecutionConfig
from longreach.model import Model
from longreach.positions.ids import IdPolicy
from longreach.runs.corpus import refuse_other_corpus, verify_corpus
from longreach.runs.folder import RunFolder
from longreach.runs.memory import check_test_memory
from longreach.runs.observer import Observer, Run, label
from longreach.runs.parts import new_model
from longreach.runs.profile import ESTIMATE, LOAD, NewJudge, NoProfile, Write
from longreach.runs.recipe import RunConfig
from longreach.runs.tracking import score_values
from longreach.tasks import Task, Text
from longreach.training import Checkpoint, legal_lengths, list_checkpoints, load_checkpoint


class _StopTesting(Exception):
    """Asked to stop between two batches of a test."""


def score_run(run: Run, device: str, observer: Observer) -> bool:
    config, folder, seed, model, journal, tracker = run
    journal.note("testing")
    with observer.profile.phase(LOAD):
        load_checkpoint(selected_checkpoint(folder, config), model)
    tested = config.held_out()
    report = observer.phase(f"test {label(folder)}", work_of_test(tested, config.evaluate))
    for line in left_out(tested, config.evaluate):
        journal.tell("left out", f"left out: {line}")
    with observer.profile.phase(ESTIMATE):
        expect_test(model, config, config.evaluate, config.execution, device, observer)
    with _encoding_of_test(model, config.evaluate):
        folder.save_plan("test", choose(model, config.execution, device).to_plain())

    def progress(done: int, note: str) -> None:
        report(done, note)
        if observer.should_stop():
            raise _StopTesting

    try:
        scores, text = run_test(
            *(model, tested, config.ids, config.evaluate, seed, device, config.execution),
            progress,
            observer.profile,
        )
    except _StopTesting:
        return False
    lengths = legal_lengths(config.task, config.train.lengths)
    noted = folder.info().task_check
    card = make_card(config.task, config.ids, lengths, config.evaluate, config.train.prime, computed_by(folder), noted)
    folder.save_results(scores, card, text)
    tracker.log(config.train.steps, score_values(scores))
    tracker.finish(done=True)
    journal.note("finished")
    observer.saved(folder)
    return True


def computed_by(folder: RunFolder) -> str:
    """Return the plans of a run in one line."""
    return "; ".join(f"{phase} by {describe_plan(plan)}" for phase, plan in folder.plans().items())


def _encoding_of_test(model: Model, config: EvalConfig) -> AbstractContextManager[None]:
    """Exchange the encoding of the model for a while, if the test has another one."""
    return nullcontext() if config.encoding is None else model.exchange_encoding(config.encoding)


def work_of_test(task: Task, config: EvalConfig) -> int:
    """What `run_test` tells its progress out of."""
    return text_work(config) if task.open_ended else total_samples(task, config)


def expect_test(
    model: Model, config: RunConfig, asked: EvalConfig, execution: ExecutionConfig, device: str, observer: Observer
) -> None:
    """Tell the observer how long a test will take; raise BadInput if it does not fit into memory."""
    task = config.held_out()
    check_test_memory(model, task, asked, execution.batch_tokens, device, observer.say)
    plan = choose(model, execution, device)
    fast = plan.test_model(model.eval())
    predict = next_tokens(fast, task, config.ids, asked.shift) if task.open_ended else None
    budget = execution.batch_tokens
    test = partial(
        evaluate, batch_tokens=budget, new_judge=judges(execution, device), write=write_fast(execution, device)
    )
    work = estimate_test(model, task, config.ids, asked, device, budget, predict, test)
    if work is not None:
        observer.expect(work)


def left_out(task: Task, config: EvalConfig) -> list[str]:
    """Return a line for each cell that cannot exist, and one for samples that a file has no rows for."""
    return [] if task.open_ended else [*cells(task, config)[1], *fewer_samples(task, config)]


def run_test(
    model: Model,
    task: Task,
    policy: IdPolicy,
    config: EvalConfig,
    seed: int,
    device: str,
    execution: ExecutionConfig,
    progress: Callable[[int, str], None] = lambda done, note: None,
    profile: NoProfile | None = None,
) -> tuple[list[Score], TextResult | None]:
    """Return the scores of a trained model by length; on text also its losses."""
    new_judge, write = judges(execution, device), write_fast(execution, device)
    with (profile or NoProfile()).testing(new_judge, write, progress) as measured:
        return _run_test(model, task, policy, config, seed, device, execution, *measured)


def _run_test(
    model: Model,
    task: Task,
    policy: IdPolicy,
    config: EvalConfig,
    seed: int,
    device: str,
    execution: ExecutionConfig,
    new_judge: NewJudge,
    write: Write,
    progress: Callable[[int, str], None],
) -> tuple[list[Score], TextResult | None]:
    if not isinstance(task, Text):
        budget = execution.batch_tokens
        return evaluate(model, task, policy, config, seed, device, progress, budget, new_judge, write), None
    check_text_test(config)
    verify_corpus(task)
    with _encoding_of_test(model, config):
        fast = choose(model, execution, device).test_model(model.eval())
        predict = next_tokens(fast, task, policy, config.shift, config.seed)
        split = task.held_out("test").documents
        result = evaluate_text(predict, split, config, seed, device, progress, execution.batch_tokens)
    return result.scores, result


def load_model(folder: RunFolder, device: str = "cpu", trust: bool = False) -> tuple[RunConfig, Model]:
    """Return a trained model and the configuration it was trained under; see `RunFolder.config` for `trust`."""
    config = folder.config(trust)
    refuse_other_corpus(folder, config.task)
    model = new_model(config, seed=0, device=device)
    load_checkpoint(selected_checkpoint(folder, config), model)
    return config, model.eval()


def selected_checkpoint(folder: RunFolder, config: RunConfig) -> Checkpoint:
    """Return the checkpoint that tests load; raise BadInput if there is none."""
    checkpoints = list_checkpoints(folder.checkpoints)
    if not checkpoints:
        raise BadInput(f"{folder.path} has no checkpoint yet")
    if config.evaluate.select == "last":
        return checkpoints[-1]
    scored = [checkpoint for checkpoint in checkpoints if checkpoint.score is not None]
    if not scored:
        raise BadInput(f"{folder.path} has no checkpoint yet that was measured at training lengths")
    return max(scored, key=lambda checkpoint: (checkpoint.score, checkpoint.step))
