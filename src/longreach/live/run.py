"""One run folder, read while another process may be writing to it."""

import math
import os
import re
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Literal, NamedTuple, TypeVar

from longreach.errors import BadInput, RunFailed
from longreach.live.history import MetricHistory
from longreach.live.records import ATTEMPTS, Attempts, read_progress
from longreach.live.scan import RUN_LOCK, SCORES, Listing
from longreach.live.tail import Tail
from longreach.system.files import naming_damage, read_json, read_note
from longreach.system.lock import is_locked

T = TypeVar("T")

State = Literal["running", "failed", "damaged", "stopped", "waiting", "finished"]

HEADLINE = ("token_em_free", "token_id_em_tf", "token_em_tf", "next_token")
"""Metrics, the best first, as in reports."""
_SCORES_SO_FAR = ("in_distribution_em", "in_distribution_loss")
_EVENTS = ("started", "testing", "interrupted", "gave up", "failed", "finished")
"""Events that tell in which state a run is."""
_LOG_TAIL = 1 << 16
_LARGEST_CONFIG = 4 << 20
_RATES = 5
"""Lines of metrics whose median is the rate."""


@dataclass(frozen=True)
class SweepState:
    """A sweep that a run belongs to."""

    name: str
    title: str
    runs: int
    running: bool
    """Whether a process drives it."""
    retries: int = 0


@dataclass(frozen=True)
class RunView:
    """A run at one moment."""

    name: str
    """Its path below the folder that is watched."""
    state: State
    reason: str = ""
    """Why it failed or stopped, or what is damaged."""
    variant: str = ""
    seed: int | None = None
    title: str = ""
    variants: tuple[str, ...] = ()
    """Variants of its recipe, in order, if they were recorded."""
    phase: str = ""
    """train or test, of a run that is running."""
    step: int | None = None
    total: int | None = None
    rate: float | None = None
    """Steps per second."""
    left: float | None = None
    """Seconds of training that are left."""
    loss: float | None = None
    losses: list[tuple[int, float]] = field(default_factory=list)
    """By step."""
    score_name: str = ""
    """Score on training lengths."""
    scores: list[tuple[int, float]] = field(default_factory=list)
    """By step."""
    metric: str = ""
    exact: list[tuple[int, float]] = field(default_factory=list)
    """Rate of the metric by tested length."""


class _Origin(NamedTuple):
    variant: str = ""
    seed: int | None = None
    title: str = ""
    variants: tuple[str, ...] = ()


class _Config(NamedTuple):
    steps: int | None = None
    batch_size: int | None = None


class LiveRun:
    """Reads of a run folder only what has changed since the last look.  Damaged files are named and never raise."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.state: State = "waiting"
        self.reason = ""
        self.changed = 0.0
        self._listed: float | None = None
        self._problem = ""
        self._origin, self._config = _Origin(), _Config()
        self._attempts = Attempts()
        self._metric = ""
        self._exact: list[tuple[int, float]] = []
        self._log = Tail(path / "log.jsonl", _LOG_TAIL)
        self._event = self._message = ""
        self._metrics = Tail(path / "metrics.jsonl")
        self._forget()

    def look(self, listing: Listing, sweep: SweepState | None) -> None:
        """Find out in which state the run is."""
        self.changed = listing.changed
        if self._listed != listing.changed:
            self._read_whole_files(listing)
            settled = time.time() - listing.changed > 2
            self._listed = listing.changed if settled else None
        if SCORES in listing.names:
            self.state, self.reason = ("damaged", self._problem) if self._problem else ("finished", "")
            return
        self._log.read(self._note)
        self._metrics.read(self._log_step, self._forget)
        self.state, self.reason = self._state(listing, sweep)
        damage = self._problem or self._metrics.problem or self._log.problem
        if self.state in ("stopped", "waiting") and damage:
            self.state, self.reason = "damaged", damage
        elif damage:
            self.reason = "; ".join(filter(None, (self.reason, damage)))

    def view(self, name: str, points: int) -> RunView:
        """Return the run with curves of so many points."""
        self._metrics.read(self._log_step, self._forget)
        progress = read_progress(self.path) if self.state == "running" else None
        step, total = self._step, self._config.steps
        if progress is not None and progress.phase == "train":
            step = max(step or 0, int(progress.done))
        rate = median(self._rates) / self._config.batch_size if self._rates and self._config.batch_size else None
        phase = "" if self.state != "running" else "test" if self._event == "testing" else "train"
        left = None
        if phase == "train" and rate and total is not None and self._step is not None:
            # no line of metrics tells of the time since the last one
            since = max(0.0, time.time() - self._metrics.changed)
            left = max(0.0, (total - self._step) / max(rate, 1e-9) - since)
        return RunView(
            name=name,
            state=self.state,
            reason=(self.reason or (self._metrics.problem if self.state == "finished" else "")).replace(
                f"{self.path}{os.sep}", ""
            ),
            variant=self._origin.variant,
            seed=self._origin.seed,
            title=self._origin.title,
            variants=self._origin.variants,
            phase=phase,
            step=step,
            total=total,
            rate=rate if phase == "train" else None,
            left=left,
            loss=self._losses.last,
            losses=self._losses.points(points),
            score_name=self._score_name,
            scores=self._scores.points(points),
            metric=self._metric,
            exact=self._exact,
        )

    def _state(self, listing: Listing, sweep: SweepState | None) -> tuple[State, str]:
        try:
            locked = RUN_LOCK in listing.names and is_locked(self.path / RUN_LOCK)
        except (BadInput, RunFailed) as error:
            locked, self._problem = False, str(error)
        if locked and self._event != "gave up":
            return "running", ""
        failures = self._attempts.failures
        if failures or self._event in ("failed", "gave up"):
            again = sweep is not None and sweep.running and 0 < failures <= sweep.retries
            return "waiting" if again else "failed", self._attempts.reason or self._message
        if sweep is not None and sweep.running:
            return "waiting", ""
        if self._event == "interrupted":
            return "stopped", "interrupted"
        if self._metrics.ends_within_a_line:
            return "stopped", f"ended without a word, and {self._metrics.path.name} within a line"
        return "stopped", "ended without a word: killed, or its machine was lost"

    def _read_whole_files(self, listing: Listing) -> None:
        self._problem = ""
        begun = "config.yaml" in listing.names
        if begun:
            self._origin = self._try(lambda: read_json(self.path / "run.json", _origin), self._origin)
            self._config = self._try(lambda: _read_config(self.path / "config.yaml"), self._config)
        self._attempts = Attempts()
        if ATTEMPTS in listing.names:
            read = self._try(lambda: read_note(self.path / ATTEMPTS, lambda content: Attempts(**content)), None)
            self._attempts = read or Attempts()
        if SCORES in listing.names:
            nothing: tuple[str, list[tuple[int, float]]] = ("", [])
            self._metric, self._exact = self._try(lambda: read_json(self.path / SCORES, _headline), nothing)

    def _try(self, read: Callable[[], T], otherwise: T) -> T:
        try:
            return read()
        except BadInput as error:
            self._problem = self._problem or str(error)
            return otherwise

    def _note(self, values: dict[str, Any]) -> None:
        if values.get("event") in _EVENTS:
            self._event, self._message = values["event"], str(values.get("message", ""))

    def _forget(self) -> None:
        """Begin the curves anew: a resumed run has rewritten its metrics."""
        self._step: int | None = None
        self._losses, self._scores, self._score_name = MetricHistory(), MetricHistory(), ""
        self._rates: deque[float] = deque(maxlen=_RATES)

    def _log_step(self, values: dict[str, Any]) -> None:
        step = values["step"]
        if type(step) is not int:
            raise ValueError(f"the step is no whole number: {step!r:.40}")
        self._step = step
        if (loss := _number(values, "loss")) is not None:
            self._losses.add(step, loss)
        if (rate := _number(values, "samples_per_second")) is not None and rate > 0:
            self._rates.append(rate)
        for name in _SCORES_SO_FAR:
            if (score := _number(values, name)) is not None:
                self._score_name = name
                self._scores.add(step, score)


def _number(values: dict[str, Any], name: str) -> float | None:
    """Return a number of a line of metrics; None if it has none, and ValueError if that is not a finite number."""
    value = values.get(name)
    if value is None:
        return None
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError(f"{name} is not a finite number: {value!r:.40}")
    return float(value)


def _origin(content: Any) -> _Origin:
    variant, seed, title = content["variant"] or content["recipe"], content["seed"], content.get("title", "")
    if not (isinstance(variant, str) and type(seed) is int and isinstance(title, str)):
        raise TypeError("variant, seed or title has the wrong type")
    variants = content.get("variants", [])
    if not (isinstance(variants, list) and all(isinstance(name, str) for name in variants)):
        raise TypeError("the names of variants are no text")
    return _Origin(variant, seed, title, tuple(variants))


def _read_config(path: Path) -> _Config:
    """Read the two numbers that a look needs; thousands of whole YAML files would take seconds."""
    with naming_damage(path):
        with path.open("rb") as file:
            text = file.read(_LARGEST_CONFIG).decode()
        section = re.search(r"^train:\n((?:[ ].*\n?)*)", text, flags=re.M)
        found = [
            re.search(rf"^  {name}: (\d{{1,10}})$", section[1] if section else "", flags=re.M)
            for name in ("steps", "batch_size")
        ]
        if found[0] is None or found[1] is None:
            raise ValueError("it has no train.steps or no train.batch_size")
        return _Config(int(found[0][1]), int(found[1][1]))


def _headline(rows: Any) -> tuple[str, list[tuple[int, float]]]:
    """Return the best metric that a run has, and its rate by length on the task that was trained."""
    for metric in HEADLINE:
        rates = {}
        for row in rows:
            if row["metric"] == metric and not row["overrides"]:
                hits, samples, length = row["hits"], row["samples"], row["length"]
                if not all(type(n) is int for n in (hits, samples, length)) or not 0 <= hits <= samples or not samples:
                    raise ValueError(f"{hits!r:.20} hits of {samples!r:.20} samples")
                rates[length] = hits / samples
        if rates:
            return metric, sorted(rates.items())
    return "", []
