"""How long `longreach run` takes for a recipe, in a process of its own, from its start to its end."""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from longreach.errors import RunFailed


@dataclass(frozen=True)
class WholeRow:
    """One `longreach run`."""

    recipe: str
    command: str
    """Without the folder that it writes to."""
    steps: int
    first_step: float
    """Seconds from the start of the process to the end of the first training step."""
    report: float
    """Seconds until the report was written."""
    end: float
    """Seconds until the process had ended, as its parent measures them."""
    phases: dict[str, float]
    """Seconds by name; they add up to `report`."""


def time_whole(name: str, words: Sequence[str], steps: int, device: str) -> WholeRow:
    """Run the recipe, variant and settings that the `words` of a command name, for so many steps and one seed."""
    command = ["run", *words, "--seeds", "1", "--train.steps", str(steps), "--device", device]
    with tempfile.TemporaryDirectory(prefix="longreach-bench-") as folder:
        flags = ["--out", f"{folder}/out", "--profile", "--profile-steps", "0", "--json"]
        begun = time.perf_counter()
        done = subprocess.run([sys.executable, "-m", "longreach", *command, *flags], capture_output=True, text=True)
        seconds = time.perf_counter() - begun
        if done.returncode:
            lines = done.stderr.strip().splitlines() or ["it printed nothing"]
            raise RunFailed(f"longreach {' '.join(command)} ended with code {done.returncode}: {lines[-1]}")
        facts = json.loads((Path(folder) / "out" / "profile.json").read_text())
    return WholeRow(
        recipe=name,
        command=" ".join(["longreach", *command]),
        steps=steps,
        first_step=facts["seconds_to_first_step"],
        report=facts["seconds"],
        end=seconds,
        phases={phase["name"]: phase["seconds"] for phase in facts["phases"]},
    )
