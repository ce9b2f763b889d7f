"""Which runs are trained as one computation."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from longreach.config import to_plain
from longreach.config.spans import Span
from longreach.engine.stacking import check_stackable
from longreach.errors import BadInput
from longreach.runs.parts import new_model, training_data
from longreach.runs.recipe import RunConfig

T = TypeVar("T")


def cut_into_stacks(runs: Iterable[tuple[RunConfig, Sequence[T]]], most: Callable[[RunConfig], int]) -> list[list[T]]:
    """The runs of some configurations, those together that are trained as one; `most` says how many runs like these
    may be.  The same runs in the same order are cut the same way, so that a stack that was interrupted goes on as a
    stack."""
    alike: dict[str, list[T]] = {}
    size: dict[str, int] = {}
    for number, (config, own) in enumerate(runs):
        together = most(config)
        shared = _stack_key(config) if together > 1 else None
        key = shared or str(number)
        alike.setdefault(key, []).extend(own)
        size[key] = min(together, size.get(key, together)) if shared else 1
    return [same[first : first + size[key]] for key, same in alike.items() for first in range(0, len(same), size[key])]


def _stack_key(config: RunConfig) -> str | None:
    """Runs with the same key can be trained as one: all must be alike but their seeds, their learning rates, and, as
    long as shapes agree, their data and IDs.  None if a part of the model knows nothing of stacks."""
    model, data = new_model(config, seed=0, device="cpu"), training_data(config, 2, [0], "cpu")
    try:
        check_stackable(model)
    except BadInput:
        return None
    optimizer = replace(config.train.optimizer, lr=1.0)
    training = replace(config.train, optimizer=optimizer, lengths=Span(1, 1), prime=None)
    execution = replace(config.execution, batch_tokens=1, device="auto", stack="auto")  # each run is tested alone
    rows = [tuple(tensor.shape[1:]) for tensor in data.batch(0).tensors()]
    weights = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    levels = config.ids.level_sizes(config.task)
    settings = (to_plain(config.model), to_plain(training), to_plain(execution), type(config.task), levels)
    return repr((*settings, model.largest_id, rows, weights))
