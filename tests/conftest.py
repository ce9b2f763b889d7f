"""Shapes are checked at run time here, and only here: annotations such as Float[Tensor, "b t w"] execute."""

import os
import sys
import tempfile
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder
from typing import Any

# runs with classes of their own are signed with a key, which must not be the one of whoever runs the tests
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp()
# some virtual machines announce AMX and then trap on it, which ends the process at the first bf16 product
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

from jaxtyping import install_import_hook

# before anything of the package is imported
install_import_hook("longreach", "beartype.beartype")


class _Unchecked(MetaPathFinder):
    """Imports as they are the modules that take millions of calls and no tensor, which checks would slow down."""

    def find_spec(self, name, path, target=None):
        unchecked = name in ("longreach.tasks.cursors", "longreach.tasks.programs", "longreach.tasks.lookups")
        return PathFinder.find_spec(name, path, target) if unchecked else None


sys.meta_path.insert(0, _Unchecked())

import pytest  # noqa: E402
import torch  # noqa: E402
from hypothesis import settings  # noqa: E402
from stories import long_story, write_jsonl  # noqa: E402

from longreach.text import PrepareConfig, prepare  # noqa: E402

torch.set_num_threads(1)  # two workers share two cores
settings.register_profile("default", deadline=None, max_examples=25, derandomize=True)
settings.load_profile("default")


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A prepared corpus of bytes, whose documents are long enough for every context of a shipped recipe."""
    folder = tmp_path_factory.mktemp("corpus")
    texts = [long_story(number, 250) for number in range(40)]
    write_jsonl(folder / "stories.jsonl", texts)
    prepare([str(folder / "stories.jsonl")], folder / "bytes", PrepareConfig(tokenizer="bytes", valid=0.2, test=0.2))
    return str(folder / "bytes")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Return a scheduler that keeps tests together which share a fixture, a cache, or a test function.

    Slow tests are few and long: the usual scheduler spreads them better.
    """
    if "not slow" not in config.option.markexpr:
        return None
    from xdist.scheduler import LoadScopeScheduling

    @cache
    def text(file: str) -> str:
        return (config.rootpath / file).read_text()

    def group(test: str) -> str:
        file = test.partition("::")[0]
        if "from learned import" in text(file):
            return "learned"
        return file if 'scope="module"' in text(file) else test.partition("[")[0]

    class GroupScheduling(LoadScopeScheduling):
        def _split_scope(self, test: str) -> str:
            return group(test)

    return GroupScheduling(config, log)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """Undo what a command of another test set in this process."""
    if torch.get_num_threads() != 1:
        torch.set_num_threads(1)
