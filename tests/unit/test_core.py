"""The reference core can be read: plain PyTorch, in few and short files."""

import re
import sys
from pathlib import Path

import pytest
import torch

import longreach
from longreach.engine.plan import choose
from longreach.execution import ExecutionConfig
from longreach.runs import load_recipe
from longreach.runs.parts import new_model, training_data
from longreach.training import build_optimizer
from longreach.training.step import Step

ROOT = Path(longreach.__file__).parent
CORE = ("model", "attention", "objectives", "training", "decoding", "evaluation")
FORBIDDEN = re.compile(r"is_cuda|triton|CUDAGraph|cuda\.graph|longreach\.engine|longreach import engine", re.IGNORECASE)
MOST_FILES = 15
MOST_LINES = 400
MOST_MODULES = 8


def lines_of(path):
    return path.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("package", CORE)
def test_the_core_is_plain_torch(package):
    folder = ROOT / package
    files = sorted(folder.rglob("*.py"))
    assert files
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in files
        for number, line in enumerate(lines_of(path), 1)
        if FORBIDDEN.search(line)
    ]
    assert found == []


def test_no_file_is_long():
    long = {str(path.relative_to(ROOT)): len(lines_of(path)) for path in ROOT.rglob("*.py")}
    assert {path: count for path, count in long.items() if count > MOST_LINES} == {}


def test_few_modules_at_the_root():
    modules = sorted(path.name for path in ROOT.glob("*.py") if path.name not in ("__init__.py", "__main__.py"))
    assert len(modules) <= MOST_MODULES, modules


def new_step(config, engine):
    """Return a function of the number of a step, as a run on a CPU makes it."""
    model = new_model(config, 0, "cpu")
    train, data = config.train, training_data(config, 0, "cpu")
    twin = choose(model, ExecutionConfig(engine=engine), "cpu", train.precision).training_model(model)
    optimizer = build_optimizer(train.optimizer, model)
    return Step(twin, optimizer, data, train)


def files_of(compute):
    """Return the files of the package whose functions run."""
    found = set()

    def look(frame, event, argument):
        if event == "call":
            found.add(frame.f_code.co_filename)

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        compute()
    finally:
        sys.setprofile(before)
    return sorted(str(Path(name).relative_to(ROOT)) for name in found if name.startswith(str(ROOT)))


@pytest.mark.parametrize("engine", ["plain", "auto"])
def test_a_training_step_can_be_read_in_few_files(engine):
    step = new_step(load_recipe("parity_small").variants["rule"], engine)
    assert torch.isfinite(step(0)).all()  # what is imported or made only once is no part of a step
    files = files_of(lambda: step(1))
    assert {"model/transformer.py", "model/block.py", "training/step.py"} <= set(files)
    assert any(name.startswith("engine/layers") for name in files) == (engine == "auto")
    core = [name for name in files if not name.startswith("engine/")]
    assert len(core) <= MOST_FILES, "\n".join(core)
    assert len(files) <= len(core) + 2, "\n".join(files)
    assert {name: len(lines_of(ROOT / name)) for name in files if len(lines_of(ROOT / name)) > MOST_LINES} == {}
