"""All runs and sweeps below a folder at one moment."""

import os
import re
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

from longreach.errors import BadInput, RunFailed
from longreach.live.records import SWEEP, SWEEP_LOCK, SweepRecord, read_sweep
from longreach.live.run import LiveRun, RunView, State, SweepState
from longreach.live.scan import Folders, Listing
from longreach.system.lock import is_locked
from longreach.system.palette import styles

STATES: tuple[State, ...] = get_args(State)
"""In the order in which runs are shown."""


@dataclass(frozen=True)
class Overview:
    """The runs of a folder, those that run or failed in front."""

    folder: str
    time: float
    """Seconds since 1970."""
    runs: list[RunView]
    counts: dict[State, int]
    """Of all runs, also of those that are not in the list."""
    sweeps: list[SweepState]
    problems: list[str]
    """Folders and records that cannot be read."""

    @property
    def left_out(self) -> int:
        """Return the number of runs that are not in the list."""
        return sum(self.counts.values()) - len(self.runs)

    def to_json(self) -> dict[str, Any]:
        """Return the overview as plain values; `colour` and `dash` of a run are those of its variant in reports."""
        looks = styles(self._variants())
        runs = [
            {name: value for name, value in asdict(run).items() if name != "variants"}
            | {"colour": looks[run.variant]["color"], "dash": looks[run.variant]["linestyle"]}
            for run in self.runs
        ]
        return {**asdict(self), "runs": runs, "left_out": self.left_out}

    def _variants(self) -> list[str]:
        """Return the variants of all runs, those of a recipe in its order."""
        recorded = {name: None for run in self.runs for name in run.variants}
        return list(recorded | dict.fromkeys(sorted(run.variant for run in self.runs)))


class Watched:
    """A folder that is looked at again and again."""

    def __init__(self, root: Path) -> None:
        if "://" in str(root):
            raise BadInput(f"{root} is a URL: `longreach sweep status FILE --out URL` looks there")
        if not root.is_dir():
            raise BadInput(f"there is no folder {root}")
        self.root = root
        self._folders = Folders(root)
        self._runs: dict[str, LiveRun] = {}
        self._records: dict[str, tuple[float, SweepRecord]] = {}

    def look(self, most: int, points: int) -> Overview:
        """Look at all runs, and return `most` of them with curves of so many points."""
        found = self._folders.look()
        problems = list(self._folders.problems)
        sweeps, planned = self._sweeps(found, problems)
        known, self._runs = self._runs, {}
        for path, listing in found.items():
            if listing.is_run:
                run = self._runs[path] = known.get(path) or LiveRun(self.root / path)
                run.look(listing, planned.get(path))
        later = [path for path in planned if path not in self._runs]
        order = sorted(self._runs, key=lambda path: _urgency(path, self._runs[path]))
        counts = Counter(run.state for run in self._runs.values())
        counts["waiting"] += len(later)
        shown = [self._runs[path].view(path or self.root.name, points) for path in order[:most]]
        waiting = [RunView(name=path, state="waiting") for path in sorted(later, key=_natural)[: most - len(shown)]]
        first = [run for run in shown if run.state != "finished"]
        finished = [run for run in shown if run.state == "finished"]
        return Overview(
            folder=str(self.root),
            time=time.time(),
            runs=[*first, *waiting, *finished],
            counts={state: counts[state] for state in STATES if counts[state]},
            sweeps=sweeps,
            problems=problems,
        )

    def _sweeps(
        self, found: Mapping[str, Listing], problems: list[str]
    ) -> tuple[list[SweepState], dict[str, SweepState]]:
        """Return the sweeps, and the sweep of each of their runs by the path of the run."""
        sweeps: list[SweepState] = []
        planned: dict[str, SweepState] = {}
        for path, listing in found.items():
            if SWEEP not in listing.names:
                continue
            try:
                record = self._record(path, listing)
                running = is_locked(self.root / path / SWEEP_LOCK)
            except (BadInput, RunFailed) as error:
                problems.append(str(error))
                continue
            sweep = SweepState(path or self.root.name, record.title, len(record.runs), running, record.retries)
            sweeps.append(sweep)
            planned |= {os.path.join(path, name): sweep for name in record.runs}
        return sweeps, planned

    def _record(self, path: str, listing: Listing) -> SweepRecord:
        changed, record = self._records.get(path, (None, None))
        if record is None or changed != listing.changed:
            record = read_sweep(self.root / path)
            self._records[path] = listing.changed, record
        return record


def _urgency(path: str, run: LiveRun) -> tuple[int, float, list[tuple[int, str]]]:
    """Put what runs first, then what failed; of finished runs the last one first."""
    return STATES.index(run.state), -run.changed if run.state == "finished" else 0.0, _natural(path)


def _natural(path: str) -> list[tuple[int, str]]:
    """Put seed-9 before seed-10."""
    return [(int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"(\d+)", path)]
