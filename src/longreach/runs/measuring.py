"""Measures of a trained run: attention mass on the true dependencies and margins, by length."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from longreach.errors import BadInput
from longreach.evaluation import EvalConfig, cells, estimate_measures, memory_of_test, total_samples
from longreach.evaluation.evaluate import Cell
from longreach.evaluation.measures import Measure, MeasureName, Measures
from longreach.evaluation.measuring import PAIRS, choose_heads, inapplicable, measure_cell, measures_of_cell
from longreach.model import Model
from longreach.runs.folder import RunFolder, commit_of_this_code, device_name
from longreach.runs.observer import Observer
from longreach.runs.recipe import RunConfig
from longreach.runs.scoring import selected_checkpoint
from longreach.system.capacity import check_memory
from longreach.system.lock import wait_for_lock
from longreach.tasks import Task
from longreach.training import legal_lengths

_LOCK = ".measures.lock"
"""Held while measures.json is read and written."""
_BYTES_OF_PAIR = 8
"""Memory of the dependencies of a pair of tokens."""


@dataclass(frozen=True)
class MeasurePlan:
    """The measures that apply to a run."""

    names: tuple[MeasureName, ...]
    trained_to: int
    """The longest training length."""
    notes: tuple[str, ...]
    """A line for each measure that does not apply."""


def plan_measures(
    model: Model,
    config: RunConfig,
    asked: EvalConfig,
    names: Sequence[MeasureName],
    device: str,
    batch_tokens: int,
    observer: Observer,
) -> MeasurePlan:
    """Return which measures apply to a run; raise BadInput if their memory cannot suffice."""
    task = config.held_out()
    trained_to = max(legal_lengths(config.task, config.train.lengths))
    reasons = inapplicable(model, task, config.ids, asked, names, trained_to)
    notes = tuple(f"{name} does not apply: {reason}" for name, reason in reasons.items())
    plan = MeasurePlan(tuple(name for name in names if name not in reasons), trained_to, notes)
    if "mass" in plan.names:
        _check_memory(model, task, asked, device, batch_tokens, observer)
    return plan


def measure_run(
    model: Model,
    config: RunConfig,
    asked: EvalConfig,
    plan: MeasurePlan,
    device: str,
    batch_tokens: int,
    folder: RunFolder,
    observer: Observer,
) -> Measures:
    """Measure the cells of a test, write them into the run folder after each cell, and return the new ones."""
    task, policy = config.held_out(), config.ids
    asked = asked.of_run(folder.info().seed)
    step = selected_checkpoint(folder, config).step
    origin = {"device": device_name(device), "commit": commit_of_this_code()}
    origin["date"] = datetime.now(UTC).isoformat(timespec="seconds")
    report = observer.phase(f"measure {folder.path}", total_samples(task, asked))
    model.eval()
    chosen = []
    if "mass" in plan.names:
        seed = config.evaluate.seed
        chosen = choose_heads(model, task, policy, seed, plan.trained_to, device, batch_tokens)

    def measure(cell: Cell, samples: int) -> None:
        some = replace(asked, samples=samples, free_samples=0, prompt_ids_only=False)
        measure_cell(model, policy, cell, some, plan.names, device, batch_tokens)

    work = estimate_measures(model, task, asked, device, measure)
    if work is not None:
        observer.expect(work)
    entries: list[Measure] = []
    done = 0
    for cell in cells(task, asked)[0]:
        progress = _adding(report, done, f"length {cell.length}")
        found = measure_cell(model, policy, cell, asked, plan.names, device, batch_tokens, progress)
        new = measures_of_cell(found, cell, asked, chosen, origin)
        entries += new
        _save(folder, Measures(step, chosen, new), observer)
        done += cell.samples(asked)
    if not entries:
        raise BadInput(f"no step of an answer of {task.name} has what {', '.join(plan.names)} is about")
    return Measures(step, chosen, entries)


def _adding(report: Callable[[int, str], None], before: int, note: str) -> Callable[[int], None]:
    return lambda done: report(before + done, note)


def _check_memory(
    model: Model, task: Task, asked: EvalConfig, device: str, batch_tokens: int, observer: Observer
) -> None:
    """Raise BadInput if the dependencies of the longest samples do not fit into memory; warn if they may not."""
    one_pass = replace(asked, free_samples=0, prompt_ids_only=False)
    needed, length = memory_of_test(model, task, one_pass, batch_tokens)
    needed += _BYTES_OF_PAIR * max(PAIRS, task.max_tokens(length) ** 2)
    check_memory(needed, device, f"measuring at length {length}", "measure shorter lengths", observer.say)


def _save(folder: RunFolder, new: Measures, observer: Observer) -> None:
    """Merge new measures into the file of a run; other processes may measure the same run."""
    with wait_for_lock(folder.path / _LOCK, lambda: False, observer.say):
        old = folder.measures()
        folder.save_measures(new if old is None else old.merge(new))
