"""Checkpoints: weights and optimizer state as safetensors, written so that a crash at any moment loses none.

Each checkpoint is two files.  `step-N.safetensors` holds all tensors; `step-N.json`, written last, holds the
step and the SHA-256 of the first.  Both are written under another name, flushed to disk and renamed, so a
file under its real name is whole.  Nothing is ever unpickled.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from longreach.errors import BadInput, RunFailed
from longreach.system.files import naming_damage, read_json, write_atomically


@dataclass(frozen=True)
class Checkpoint:
    """A whole checkpoint on disk."""

    path: Path
    step: int
    score: float | None
    """In-distribution score at that step, if one was measured."""


def save_checkpoint(
    folder: Path, step: int, model: nn.Module, optimizer: torch.optim.Optimizer, score: float | None
) -> Checkpoint:
    """Write model and optimizer; on any failure the checkpoints before it are untouched."""
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    for index, state in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{index}.{name}": torch.as_tensor(value) for name, value in state.items()}
    content = save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})
    path = folder / f"{_stem(step)}.safetensors"
    facts = {"step": step, "score": score, "sha256": hashlib.sha256(content).hexdigest()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content)
        write_atomically(path.with_suffix(".json"), json.dumps(facts).encode())
    except OSError as error:
        raise RunFailed(
            f"could not save step {step} to {path}: {error.strerror}; earlier checkpoints are intact"
        ) from error
    return Checkpoint(path, step, score)


def load_checkpoint(checkpoint: Checkpoint, model: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> None:
    """Put the saved state into the model, and into the optimizer if one is given, bit for bit."""
    tensors = _read(checkpoint.path)
    try:
        model.load_state_dict(_under("model.", tensors))
        if optimizer is None:
            return
        state: dict[int, dict[str, Tensor]] = {}
        for name, tensor in _under("optimizer.", tensors).items():
            index, _, key = name.partition(".")
            state.setdefault(int(index), {})[key] = tensor
        optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
    except torch.OutOfMemoryError:
        raise  # it may well fit the model, if not the device
    except (RuntimeError, ValueError, KeyError) as error:
        raise RunFailed(f"checkpoint {checkpoint.path} does not fit the model of its config.yaml") from error


def list_checkpoints(folder: Path) -> list[Checkpoint]:
    """All checkpoints whose record is there, oldest first."""
    found = []
    for record in sorted(folder.glob("step-*.json")):
        try:
            found.append(_read_record(record)[0])
        except ValueError:
            continue  # a damaged record has no checkpoint to offer; `newest_intact` names it
    return found


def newest_intact(folder: Path, warn: Callable[[str], None], up_to: int | None = None) -> Checkpoint | None:
    """The newest checkpoint, or the newest up to a step, whose content matches its record; damaged ones are named and
    passed over."""
    readable = {checkpoint.path.stem: checkpoint for checkpoint in list_checkpoints(folder)}
    for record in sorted(folder.glob("step-[0-9]*.json"), reverse=True):
        if up_to is not None and record.stem > _stem(up_to):
            continue
        checkpoint = readable.get(record.stem)
        problem = "its record is damaged" if checkpoint is None else find_damage(checkpoint.path)
        if checkpoint is not None and problem is None:
            return checkpoint
        warn(f"checkpoint {record.with_suffix('.safetensors')} is damaged ({problem}); trying the one before")
    return None


def find_damage(path: Path) -> str | None:
    """What is wrong with a checkpoint file, or None."""
    try:
        _, expected = _read_record(path.with_suffix(".json"))
        content = path.read_bytes()
    except (OSError, ValueError) as error:
        return str(error)
    return None if hashlib.sha256(content).hexdigest() == expected else "its checksum does not match"


def prune(folder: Path, keep_last: int, step: int) -> None:
    """Keep the newest checkpoints up to `step` and the best in distribution (the latest among equals).

    Later checkpoints are left alone: a run that went back to `step` has nothing better yet.  What a killed process left
    goes: temporary files, and tensors without a record.  The caller holds the run's lock.
    """
    checkpoints = [checkpoint for checkpoint in list_checkpoints(folder) if checkpoint.step <= step]
    scored = [checkpoint for checkpoint in checkpoints if checkpoint.score is not None]
    best = max(scored, key=lambda c: (c.score, c.step), default=None)
    kept = {checkpoint.path.stem for checkpoint in (*checkpoints[-keep_last:], *([best] if best else []))}
    for record in folder.glob("step-[0-9]*.json"):  # damaged ones too
        if record.stem <= _stem(step) and record.stem not in kept:
            _remove(record)
    for part in folder.glob(".step-*.part"):
        part.unlink(missing_ok=True)
    for tensors in folder.glob("step-[0-9]*.safetensors"):
        if not tensors.with_suffix(".json").exists():
            tensors.unlink(missing_ok=True)


def remove_later(folder: Path, step: int) -> None:
    """Remove the checkpoints after `step`, also damaged ones: the run that saved them has gone back."""
    for record in folder.glob("step-[0-9]*.json"):
        if record.stem > _stem(step):
            _remove(record)


def _remove(record: Path) -> None:
    """Remove a checkpoint, its record first: a checkpoint without a record does not count."""
    record.unlink(missing_ok=True)
    record.with_suffix(".safetensors").unlink(missing_ok=True)


def _read_record(path: Path) -> tuple[Checkpoint, str]:
    """The checkpoint of a record, and its SHA-256; ValueError if the record makes no sense.

    Nothing in a record leads to a file: its checkpoint lies beside it, under its own name.
    """
    step, score, digest = read_json(path, lambda facts: (facts["step"], facts["score"], facts["sha256"]))
    if type(step) is not int or path.stem != _stem(step):
        raise ValueError(f"its record is that of step {step!r:.40}")
    if isinstance(score, bool) or not isinstance(score, int | float | None) or score != score:
        raise ValueError(f"its record has the score {score!r:.40}")
    return Checkpoint(path.with_suffix(".safetensors"), step, score), str(digest)


def _stem(step: int) -> str:
    return f"step-{step:08d}"


def _read(path: Path) -> dict[str, Tensor]:
    damage = find_damage(path)
    if damage is not None:
        raise RunFailed(f"checkpoint {path} is damaged: {damage}")
    try:
        with naming_damage(path):
            return load(path.read_bytes())
    except BadInput as error:
        raise RunFailed(f"checkpoint {error}") from error


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
