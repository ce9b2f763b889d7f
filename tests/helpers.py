"""Shorthands for tests."""

import torch

from longreach.api import RunConfig, Sample, ScaledSoftmaxConfig, Task, TransformerConfig, stream
from longreach.runs import RunFolder, execute, gather_info

TINY = TransformerConfig(layers=2, width=32, heads=2, attention=ScaledSoftmaxConfig())


def draw(task: Task, lengths: list[int], seed: int = 0, max_length: int = 0) -> Sample:
    numbers = torch.arange(len(lengths))
    return task.sample(torch.tensor(lengths), stream(seed, "test", numbers), max_length or max(lengths))


def answer_of(sample: Sample, row: int) -> list[int]:
    return sample.tokens[row][sample.answer[row]].tolist()


def legal(task: Task, lengths: list[int]) -> list[int]:
    """Lengths near the given ones that the task has."""
    return [max(6, length + length % 2) for length in lengths]


def execute_in(path, config: RunConfig, seed: int = 0, **options) -> RunFolder:
    folder = RunFolder(path)
    execute(config, folder, gather_info("test", "", "", seed, "cpu"), "cpu", **options)
    return folder
