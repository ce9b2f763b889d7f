"""Shorthands for tests."""

import torch

from longreach.api import RunConfig, Sample, ScaledSoftmaxConfig, Task, TransformerConfig, stream
from longreach.errors import BadInput
from longreach.runs import RunFolder, execute, gather_info

TINY = TransformerConfig(layers=2, width=32, heads=2, attention=ScaledSoftmaxConfig())


def draw(task: Task, lengths: list[int], seed: int = 0, max_length: int = 0) -> Sample:
    numbers = torch.arange(len(lengths))
    return task.sample(torch.tensor(lengths), stream(seed, "test", numbers), max_length or max(lengths))


def answer_of(sample: Sample, row: int) -> list[int]:
    return sample.tokens[row][sample.answer[row]].tolist()


_LONGEST: dict[tuple[str, int], int] = {}


def legal(task: Task, lengths: list[int]) -> list[int]:
    """Lengths near the given ones that the task has."""
    longest = _longest(task, max(lengths) // 2 * 2 + 6)
    return [min(max(6, length + length % 2), longest) for length in lengths]


def _longest(task: Task, length: int) -> int:
    """The longest length that a task has, of this and shorter ones.  Kept, for some tasks must try to find out."""
    key = (repr(task), length)
    if key not in _LONGEST:
        try:
            task.check_length(length)
            _LONGEST[key] = length
        except BadInput:
            _LONGEST[key] = _longest(task, length - 2)
    return _LONGEST[key]


def execute_in(path, config: RunConfig, seed: int = 0, **options) -> RunFolder:
    folder = RunFolder(path)
    execute(config, folder, gather_info("test", "", "", seed, "cpu"), "cpu", **options)
    return folder
