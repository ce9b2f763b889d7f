"""Tests of a trained run."""

from longreach.errors import BadInput
from longreach.evaluate import cells, evaluate, make_card, total_samples
from longreach.model import Model
from longreach.runs.folder import RunFolder
from longreach.runs.observer import Observer, Run, label
from longreach.runs.parts import new_model
from longreach.runs.recipe import RunConfig
from longreach.runs.tracking import score_values
from longreach.train import Checkpoint, legal_lengths, list_checkpoints, load_checkpoint


class _StopTesting(Exception):
    """Asked to stop between two batches of a test."""


def score_run(run: Run, device: str, observer: Observer) -> bool:
    config, folder, seed, model, journal, tracker = run
    journal.note("testing")
    load_checkpoint(_selected(folder, config), model)
    report = observer.phase(f"test {label(folder)}", total_samples(config.task, config.evaluate))
    for line in cells(config.task, config.evaluate)[1]:
        journal.tell("left out", f"left out: {line}")

    def progress(done: int, note: str) -> None:
        report(done, note)
        if observer.should_stop():
            raise _StopTesting

    try:
        scores = evaluate(model, config.task, config.ids, config.evaluate, seed, device, progress)
    except _StopTesting:
        return False
    lengths = legal_lengths(config.task, config.train.lengths)
    folder.save_results(scores, make_card(config.task, config.ids, lengths, config.evaluate, config.train.prime))
    tracker.log(config.train.steps, score_values(scores))
    tracker.finish(done=True)
    journal.note("finished")
    observer.saved(folder)
    return True


def load_model(folder: RunFolder, device: str = "cpu") -> tuple[RunConfig, Model]:
    """A trained model and the configuration it was trained under."""
    config = folder.config()
    model = new_model(config, seed=0, device=device)
    load_checkpoint(_selected(folder, config), model)
    return config, model.eval()


def _selected(folder: RunFolder, config: RunConfig) -> Checkpoint:
    checkpoints = list_checkpoints(folder.checkpoints)
    if not checkpoints:
        raise BadInput(f"{folder.path} has no checkpoint yet")
    if config.evaluate.select == "last":
        return checkpoints[-1]
    scored = [checkpoint for checkpoint in checkpoints if checkpoint.score is not None]
    if not scored:
        raise BadInput(f"{folder.path} has no checkpoint yet that was measured at training lengths")
    return max(scored, key=lambda checkpoint: (checkpoint.score, checkpoint.step))
