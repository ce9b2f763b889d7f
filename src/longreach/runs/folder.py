"""The run folder: one per seed, holding all that is needed to trust, repeat, resume and report a run.

config.yaml        the whole configuration, defaults written out
run.json           recipe, variant, seed, versions, device, commit, the fingerprint of its data
metrics.jsonl      one line per logged step; TensorBoard's files lie beside it in tensorboard/
checkpoints/       step-N.safetensors with step-N.json
plan.json          the parts of the engine that computed training and test, and why others did not
log.jsonl          what happened, and when: started, resumed, changed, checkpoint, gave up, testing, finished
tracking.json      what the run is called in Weights & Biases or trackio, if it was sent there
scores.json, .csv  counts per cell          card.json   the information card
losses.json        on text: loss by context and by position; every token's in losses.safetensors
measures.json      from `eval --measure`: attention on the true dependencies and margins, by length
"""

import json
import platform
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

import torch

from longreach.config import Plain, build, dump_yaml, read_yaml, to_plain, upgrade_recorded
from longreach.errors import BadInput, RunFailed, argument
from longreach.evaluation import (
    Card,
    Loss,
    Measures,
    Score,
    TextResult,
    from_json,
    losses_from_json,
    losses_to_json,
    measures_from_json,
    measures_to_json,
    resolve_axes,
    to_csv,
    to_json,
)
from longreach.execution import ExecutionConfig
from longreach.runs.origin import is_signed, places_of_classes, sign
from longreach.runs.recipe import RunConfig
from longreach.system.files import append_line, naming_damage, parse_json, read_json, read_note, write_atomically
from longreach.system.imports import RunOrigin, names_of_run
from longreach.tasks.checking import CheckRecord
from longreach.version import PACKAGE, __version__

_NOTES = ("progress.json", "attempts.json")
_BEFORE_THE_START = ("run.json", "log.txt", *_NOTES, *(f"{name}.damaged" for name in _NOTES))
"""What a start that came to nothing, or a sweep, may have left in a folder: nothing is lost by starting there."""


@dataclass(frozen=True)
class RunInfo:
    """Where a run came from."""

    recipe: str
    variant: str
    seed: int
    device: str
    versions: dict[str, str]
    commit: str
    title: str = ""
    stack: list[str] = field(default_factory=list)
    """Runs that were trained as one stack, its own among them; empty where it was trained alone."""
    ranks: int = 1
    """Processes that trained it together."""
    resumed: list[dict[str, Any]] = field(default_factory=list)
    """Device, versions, commit and ranks of later starts, where they differ from the first."""
    corpus: str = ""
    """Fingerprint of the files that its samples were read from; empty where samples are drawn, and in old runs."""
    places: dict[str, str] = field(default_factory=dict)
    """By class that belongs to no installed package: the folder it was imported from."""
    signature: str = ""
    """Of config.yaml and these places, by the user who started the run."""
    task_check: CheckRecord = ""
    """Result of the check before the start; empty for tasks of longreach, and in runs that did not note it."""
    variants: list[str] = field(default_factory=list)
    """Variants of the recipe, in its order; empty in old runs and where there is no recipe."""
    command: str = ""
    """Command that started it; empty in old runs and for runs that a Python program started."""


@dataclass(frozen=True)
class RunFolder:
    path: Path

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def finished(self) -> bool:
        return (self.path / "scores.json").exists()

    @property
    def begun(self) -> bool:
        return (self.path / "config.yaml").exists()

    def refuse_existing(self) -> None:
        """Raise `BadInput` if starting here would lose something."""
        if self.path.exists() and any(path.name not in _BEFORE_THE_START for path in self.path.glob("[!.]*")):
            resume, out = argument("resume", True), argument("out")
            raise BadInput(f"{self.path} exists: add {resume} to continue it, or choose another {out}")

    def create(self, config: RunConfig, info: RunInfo) -> None:
        self.refuse_existing()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            # the config comes last: a folder that has one is complete
            self._write_json("run.json", asdict(info))
            write_atomically(self.path / "config.yaml", _content(config))
        except OSError as error:
            raise RunFailed(f"cannot write to {self.path}: {error.strerror}") from error

    def settings(self) -> Plain:
        """Read config.yaml, as this version writes it, without importing the classes that it names."""
        path = self.path / "config.yaml"
        if not path.is_file():
            raise BadInput(f"{self.path} is not a run folder: it has no config.yaml")
        return upgrade_recorded(read_yaml(path))

    def compared_settings(self) -> str:
        """Return the settings as text that is the same for runs that differ in `execution` only."""
        settings = {section: value for section, value in self.settings().items() if section != "execution"}
        return json.dumps(settings, sort_keys=True, default=str)

    def changes_of_execution(self, config: RunConfig) -> dict[str, tuple[Any, Any]]:
        """Return the settings of `execution` in which config.yaml differs from a configuration, as (old, new)."""
        old = to_plain(build(ExecutionConfig, self.settings().get("execution", {}), "execution"))
        return {name: (old[name], new) for name, new in to_plain(config.execution).items() if old[name] != new}

    def update_execution(self, config: RunConfig) -> str:
        """Write a configuration that differs in `execution` only; return a line on the changes, empty if none."""
        changes = self.changes_of_execution(config)
        if changes:
            write_atomically(self.path / "config.yaml", _content(config))
        return ", ".join(f"execution.{name}={new} (before: {old})" for name, (old, new) in changes.items())

    def config(self, trust: bool = False) -> RunConfig:
        """Build the configuration.

        The classes that it names must be loaded, installed, or lie where this user started the run.  With `trust`
        they may lie anywhere on the path, the working folder included.
        """
        settings = self.settings()
        if trust:
            return build(RunConfig, settings)
        with names_of_run(RunOrigin(self.path, self._signed_places)):
            config = build(RunConfig, settings)
            resolve_axes(config.task, config.evaluate)
        return config

    def sign_places(self, config: RunConfig) -> dict[str, Any]:
        """Return `places` and `signature` for the record of a run that this user starts; empty if all is installed.

        OSError if the user's key can neither be read nor written.
        """
        places = places_of_classes(to_plain(config), self.path)
        if not places:
            return {}
        path = self.path / "config.yaml"
        keeps = path.exists() and not self.changes_of_execution(config)
        return {"places": places, "signature": sign(path.read_bytes() if keeps else _content(config), places)}

    def _signed_places(self) -> dict[str, str]:
        """Return the places of classes if this user signed them, else none."""
        try:
            info = self.info()
        except BadInput:
            return {}  # a record that cannot be read vouches for nothing
        return info.places if is_signed((self.path / "config.yaml").read_bytes(), info.places, info.signature) else {}

    def info(self) -> RunInfo:
        return read_json(self.path / "run.json", lambda content: build(RunInfo, content))

    def note_resume(self, now: RunInfo) -> None:
        """Remember a start under other circumstances."""
        first = self.info()
        facts = {"device": now.device, "versions": now.versions, "commit": now.commit, "ranks": now.ranks}
        known = [{name: getattr(first, name) for name in facts}, *first.resumed]
        noted = first if facts in known else replace(first, resumed=[*first.resumed, facts])
        if now.signature:
            noted = replace(noted, places=now.places, signature=now.signature)
        if noted != first:
            self._write_json("run.json", asdict(noted))

    def log(self, step: int, values: dict[str, float]) -> None:
        append_line(self.path / "metrics.jsonl", json.dumps({"step": step, **values}))

    def forget_after(self, step: int) -> None:
        """Drop metrics of steps that a resumed run will do again."""
        path = self.path / "metrics.jsonl"
        if path.exists():
            kept = [json.dumps(line) for line in self.metrics() if line["step"] <= step]
            write_atomically(path, "".join(line + "\n" for line in kept).encode())

    def metrics(self) -> list[dict[str, Any]]:
        """All whole lines; one without an end was cut by a crash."""
        path = self.path / "metrics.jsonl"
        *whole, _ = path.read_bytes().split(b"\n") if path.exists() else [b""]
        lines = []
        for number, line in enumerate(whole, start=1):
            with naming_damage(path, f" in line {number}"):
                lines.append(_line_of_metrics(line))
        return lines

    def save_plan(self, phase: Literal["training", "test"], plan: dict[str, Any]) -> None:
        """Write which parts of the engine compute a phase; a resumed run may be computed in another way."""
        try:
            self._write_json("plan.json", {**self.plans(), phase: plan})
        except OSError as error:
            raise RunFailed(f"could not write to {self.path / 'plan.json'}: {error.strerror}") from error

    def plans(self) -> dict[str, Any]:
        """Return the plans of the phases that have begun."""
        path = self.path / "plan.json"
        return read_json(path, _plans) if path.exists() else {}

    def save_results(self, scores: list[Score], card: Card, text: TextResult | None = None) -> None:
        try:
            self._write_json("card.json", asdict(card))
            if text is not None:
                text.by_context.save(self.path / "losses.safetensors")
                self._write_json("losses.json", losses_to_json(text.losses))
            write_atomically(self.path / "scores.csv", to_csv(scores).encode())
            self._write_json("scores.json", to_json(scores))  # last: it marks the run as finished
        except OSError as error:
            raise RunFailed(f"could not save the scores to {self.path}: {error.strerror}") from error

    def scores(self) -> list[Score]:
        return read_json(self.path / "scores.json", from_json)

    def losses(self) -> list[Loss]:
        """By length, of a run on text; empty where exact match counts."""
        path = self.path / "losses.json"
        return read_json(path, losses_from_json) if path.exists() else []

    def measures(self) -> Measures | None:
        """Return the measures of `eval --measure`; None if nothing was measured."""
        return read_note(self.path / "measures.json", measures_from_json)

    def save_measures(self, measures: Measures) -> None:
        try:
            self._write_json("measures.json", measures_to_json(measures))
        except OSError as error:
            raise RunFailed(f"could not save measures to {self.path}: {error.strerror}") from error

    def card(self) -> Card:
        return read_json(self.path / "card.json", lambda content: build(Card, content))

    def _write_json(self, name: str, content: object) -> None:
        write_atomically(self.path / name, (json.dumps(content, indent=1) + "\n").encode())


def _content(config: RunConfig) -> bytes:
    return dump_yaml(to_plain(config)).encode()


def _plans(content: Any) -> dict[str, Any]:
    """Return the plans of a file; raise ValueError where one lacks what its line shows."""
    for phase, plan in dict(content).items():
        if phase not in ("training", "test") or not {"device", "precision", "used"} <= set(plan):
            raise ValueError(f"it has no plan of {phase!r:.40}")
        if not all(isinstance(plan[name], str) for name in ("device", "precision")) or not isinstance(
            plan["used"], dict
        ):
            raise ValueError(f"the plan of {phase} is no plan")
    return dict(content)


def _line_of_metrics(line: bytes) -> dict[str, Any]:
    values = parse_json(line)
    if not isinstance(values, dict) or type(values.get("step")) is not int:
        raise ValueError("it has no step")
    for name, value in values.items():
        if not isinstance(value, int | float | None):
            raise ValueError(f"{name} is not a number: {value!r:.40}")
    return values


def find_runs(path: Path) -> Iterator[RunFolder]:
    """The run folders at or below a path, in order."""
    if not path.exists():
        raise BadInput(f"there is no {path}")
    for config in sorted(path.rglob("config.yaml"), key=_natural):
        if not _is_wandbs(config):
            yield RunFolder(config.parent)


def _is_wandbs(config: Path) -> bool:
    """W&B keeps a config.yaml of its own kind below RUN/wandb."""
    return any(folder.name == "wandb" and (folder.parent / "config.yaml").exists() for folder in config.parents)


def _natural(path: Path) -> list[tuple[int, str]]:
    """K4 before K12, seed-9 before seed-10."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", str(path))]


def gather_info(
    recipe: str, title: str, variant: str, seed: int, device: str, stack: Sequence[str] = (), ranks: int = 1
) -> RunInfo:
    """Of a run that starts now."""
    commit = commit_of_this_code()
    return RunInfo(recipe, variant, seed, device_name(device), _versions(), commit, title, list(stack), ranks)


def _versions() -> dict[str, str]:
    found = {"longreach": __version__, "python": platform.python_version()}
    for package in ("torch", "numpy", "safetensors"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "unknown"
    return found


def device_name(device: str) -> str:
    """Return the name of a GPU, or the number of threads of a CPU."""
    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"cpu ({torch.get_num_threads()} threads)"


def commit_of_this_code() -> str:
    """The commit of the checkout the package runs from, with + if it was changed; empty outside a checkout."""

    def git(*arguments: str) -> str:
        try:
            done = subprocess.run(["git", *arguments], cwd=PACKAGE, capture_output=True, text=True, timeout=10)
        except (OSError, subprocess.TimeoutExpired):
            return ""
        return done.stdout.strip() if done.returncode == 0 else ""

    if not git("ls-files", "version.py"):
        return ""  # installed somewhere below another project's checkout
    changed = git("status", "--porcelain", "--", ":/src", ":/recipes")
    return git("rev-parse", "--short=12", "HEAD") + ("+" if changed else "")
