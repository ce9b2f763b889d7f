"""Tests of the engine against the reference core on a GPU.  Without a GPU all of them are skipped."""

import importlib.util
import json
import platform
from collections import Counter
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import pytest
import torch

from longreach.version import __version__

HERE = Path(__file__).parent
RESULT = HERE.parents[1] / "results" / "gpu_tests.json"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record", action="store_true", help=f"write a summary to results/{RESULT.name}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.skip(reason="needs a GPU"))


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("record", default=False):
        if not torch.cuda.is_available():
            raise pytest.UsageError("--record needs a GPU")
        config.pluginmanager.register(Summary(), "gpu summary")


class Summary:
    """Counts outcomes, and writes them at the end."""

    def __init__(self) -> None:
        self.outcomes: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            self.outcomes[report.nodeid] = report.outcome

    def pytest_sessionfinish(self) -> None:
        summary = {
            "date": datetime.now(UTC).date().isoformat(),
            "gpu": torch.cuda.get_device_name(),
            "versions": {
                "longreach": __version__,
                "python": platform.python_version(),
                "torch": torch.__version__,
                "cuda": torch.version.cuda,
                **{name: version(name) for name in ("triton", "adasplash") if importlib.util.find_spec(name)},
            },
            "counts": dict(sorted(Counter(self.outcomes.values()).items())),
            "not_passed": sorted(name for name, outcome in self.outcomes.items() if outcome != "passed"),
        }
        RESULT.write_text(json.dumps(summary, indent=2) + "\n")
