"""Start-up time: processes from their start to an end, or to the first training step, beside `import torch`."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from longreach.bench.timing import Effort
from longreach.errors import RunFailed

_PYTHON = (sys.executable, "-P")
_IMPORT = "import os, torch; os._exit(0)"
"""An orderly exit takes half as long again, and a run has its first step long before its exit."""
_POLL_SECONDS = 0.002
_FIRST_STEP_SECONDS = 300.0
"""Seconds after which a run without a first step is given up."""


@dataclass(frozen=True)
class StartTime:
    """How long one command took."""

    name: str
    seconds: tuple[float, ...]
    """By round."""
    ratios: tuple[float, ...]
    """By round, to `import torch` in the same round."""

    def to_json(self) -> dict[str, object]:
        """Return medians with the lowest and the highest round."""
        found: dict[str, object] = {"name": self.name, "rounds": len(self.seconds)}
        for name, values in (("seconds", self.seconds), ("ratio", self.ratios)):
            found |= {name: median(values), f"{name}_lowest": min(values), f"{name}_highest": max(values)}
        return found


def time_start(recipe: str, device: str, helps: Sequence[Sequence[str]], effort: Effort) -> list[StartTime]:
    """Time `import torch`, help, the slowest of `helps`, and a recipe until its first training step, in turns.

    Every command runs once before the clock does, so that files lie in the system's cache.

    Raises:
        RunFailed: A command fails, or a run has no first step.
    """
    by_time = {seconds: words for words in helps for seconds in (_until_end(*_longreach(*words)),)}
    slowest = by_time[max(by_time)]
    sides: dict[str, Callable[[], float]] = {
        "import torch": lambda: _until_end(*_PYTHON, "-c", _IMPORT),
        "longreach --help": lambda: _until_end(*_longreach("--help")),
        f"longreach {' '.join(slowest)}": lambda: _until_end(*_longreach(*slowest)),
        f"longreach run {recipe}, first step": lambda: _until_first_step(recipe, device),
    }
    for call in sides.values():
        call()
    rounds: list[list[float]] = []
    begun = time.perf_counter()
    while len(rounds) < effort.rounds and (not rounds or time.perf_counter() - begun < effort.seconds):
        rounds.append([call() for call in sides.values()])
    return [
        StartTime(name, tuple(row[side] for row in rounds), tuple(row[side] / row[0] for row in rounds))
        for side, name in enumerate(sides)
    ]


def _longreach(*words: str) -> tuple[str, ...]:
    return (*_PYTHON, "-m", "longreach", *words)


def _until_end(*command: str) -> float:
    """Return the seconds that a process takes."""
    start = time.perf_counter()
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    seconds = time.perf_counter() - start
    if done.returncode:
        raise _failure(command, done.stderr)
    return seconds


def _until_first_step(recipe: str, device: str) -> float:
    """Return the seconds until a run has logged the loss of its first step; the run is then killed.

    The loss is known when the step has been computed.  It is written to metrics.jsonl before anything else is done.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        out = Path(folder) / "run"
        flags = ("--out", str(out), "--device", device, "--execution.log_every", "1", "--json")
        command = _longreach("run", recipe, *flags)
        with (Path(folder) / "stderr").open("wb") as errors:
            start = time.perf_counter()
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )
            try:
                while not any(file.stat().st_size for file in out.rglob("metrics.jsonl")):
                    if process.poll() is not None or time.perf_counter() - start > _FIRST_STEP_SECONDS:
                        raise _failure(command, (Path(folder) / "stderr").read_bytes())
                    time.sleep(_POLL_SECONDS)
                return time.perf_counter() - start
            finally:
                with suppress(ProcessLookupError):  # the run has ended by itself
                    os.killpg(process.pid, signal.SIGKILL)  # processes that draw batches end too
                process.wait()


def _failure(command: Sequence[str], errors: bytes) -> RunFailed:
    last = (errors.decode(errors="replace").strip() or "it said nothing").splitlines()[-1]
    return RunFailed(f"{' '.join(command[len(_PYTHON) :])} failed: {last}")
