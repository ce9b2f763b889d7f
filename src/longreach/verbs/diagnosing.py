"""`diagnose`: estimate what longer lengths need, and what training covers."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeAlias

from longreach.config import Span, build_part
from longreach.diagnosis import Diagnosis, diagnose_data, diagnose_model, diagnose_task, read_rows
from longreach.errors import BadInput, argument
from longreach.model import Model
from longreach.runs import RunConfig, RunFolder
from longreach.system.files import write_atomically
from longreach.tasks import Task
from longreach.verbs.progress import Watch, bars
from longreach.verbs.trained import load_trained

_STEPS = 1500
Source: TypeAlias = str | Path | Task | Mapping[str, Any] | RunFolder | tuple[RunConfig, Model]
Range: TypeAlias = Span | str | int | tuple[int, int]


def diagnose(
    source: Source,
    *,
    train: Range | None = None,
    target: int | None = None,
    samples: int = 256,
    steps: int | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    trust: bool = False,
    progress: bool = True,
) -> Diagnosis:
    """Return what answers need at longer lengths, what training covers, and for a model how errors will grow.

    Args:
        source: A task, its name or a mapping with its name and settings; a run folder or the pair that `load_model`
            returns; or a .jsonl file of samples.
        train: Training lengths such as `(1, 40)`.  A task needs them, a run has its own, a file takes all its lengths.
        target: The length in question; by default ten times the longest trained.
        samples: Samples of each length.
        steps: Steps that learn a file; 1500 by default.
        seed: Seed of the samples, and of the model that learns a file.
        out: Folder for diagnosis.json and a picture.
        trust: Let the run folder name classes of the working folder.
        progress: Show progress bars on a terminal.

    Raises:
        BadInput: The source cannot be read, or an argument does not fit it.
    """
    found = make_diagnosis(source, train, target, samples, steps, seed, trust, bars(progress))
    if out is not None:
        save(found, Path(out))
    return found


def check_sizes(samples: int, steps: int | None) -> None:
    """Raise BadInput for too few samples or steps."""
    if samples < 32:
        raise BadInput(f"{argument('samples')} must be at least 32, got {samples}")
    if steps is not None and steps < 1:
        raise BadInput(f"{argument('steps')} must be at least 1, got {steps}")


def save(found: Diagnosis, folder: Path) -> None:
    """Write diagnosis.json and diagnosis.png into a folder."""
    from longreach.diagnosis.picture import draw  # matplotlib takes a while to load

    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "diagnosis.json", (json.dumps(asdict(found), indent=1) + "\n").encode())
    draw(found, folder / "diagnosis.png")


def make_diagnosis(
    source: Source,
    train: Range | None,
    target: int | None,
    samples: int,
    steps: int | None,
    seed: int,
    trust: bool,
    watch: Watch,
) -> Diagnosis:
    """Diagnose a task, a trained model or a file; see `diagnose`."""
    check_sizes(samples, steps)
    span = None if train is None else _span(train)
    if isinstance(source, str | Path) and Path(source).suffix == ".jsonl":
        with watch() as observer:
            rows = read_rows(Path(source))
            return diagnose_data(rows, span, target, samples, steps or _STEPS, seed, observer.phase)
    if steps is not None:
        raise BadInput(f"{argument('steps')} is for files: nothing is learnt from a task or a run")
    if isinstance(source, RunFolder | tuple | Path) or (isinstance(source, str) and Path(source).is_dir()):
        config, model, _, _ = load_trained(source, "cpu", trust)
        if span is not None:
            raise BadInput(f"{argument('train')} is known of a run: {config.train.lengths}")
        target = _target(target, config.train.lengths)
        with watch() as observer:
            return diagnose_model(
                model, config.task, config.ids, config.train.lengths, target, samples, seed, observer.phase
            )
    task = source if isinstance(source, Task) else build_part(Task, source, "task")
    if span is None:
        raise BadInput(f"a task needs its training lengths: {argument('train', '1..40')}")
    with watch() as observer:
        return diagnose_task(task, span, _target(target, span), samples, seed, phase=observer.phase)


def _span(lengths: Range) -> Span:
    try:
        return Span.parse(lengths)
    except ValueError as error:
        raise BadInput(f"{argument('train')}: {error}") from error


def _target(asked: int | None, span: Span) -> int:
    target = 10 * span.high if asked is None else asked
    if target <= span.high:
        raise BadInput(f"{argument('target')} must be beyond the training lengths {span}, got {target}")
    return target
