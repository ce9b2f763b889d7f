"""Shorthands for tests."""

import json
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from longreach.api import IdPolicy, RunConfig, Sample, ScaledSoftmaxConfig, Task, TransformerConfig, stream
from longreach.decoding import Generated
from longreach.errors import BadInput
from longreach.runs import RunFolder, execute, gather_info

TINY = TransformerConfig(layers=2, width=32, heads=2, attention=ScaledSoftmaxConfig())


def draw(task: Task, lengths: list[int], seed: int = 0, max_length: int = 0) -> Sample:
    numbers = torch.arange(len(lengths))
    return task.sample(torch.tensor(lengths), stream(seed, "test", numbers), max_length or max(lengths))


def load_example(name: str) -> ModuleType:
    """Import a file of the examples, whose folder is not on the path."""
    spec = spec_from_file_location(f"example_{name}", Path(__file__).parents[1] / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    sys.modules[spec.name] = module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def generate_the_truth(model, task: Task, policy: IdPolicy, sample: Sample, draws=None) -> Generated:
    """Stand in for `generate`, as a perfect model would answer one sample."""
    size = int(sample.num_tokens[0])
    ids = policy.evaluation_ids(task, sample, draws)[:, :, :size]
    return Generated(sample.tokens[:, :size], torch.tensor([True]), ids)


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


def page_data(page: Path) -> dict[str, Any]:
    """Return the data inside an interactive page."""
    _, _, rest = page.read_text().partition('<script type="application/json" id="data">')
    return json.loads(rest.partition("</script>")[0])
