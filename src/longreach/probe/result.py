"""What a probe found in one text: how much each prediction rests on each earlier token."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from safetensors.torch import load, save
from torch import Tensor

from longreach.config import build, to_plain
from longreach.probe.settings import ProbeConfig
from longreach.system.files import naming_damage, read_json, write_atomically

_FORMAT = 1
"""Raised when the files change in a way that older readers cannot follow."""


@dataclass(frozen=True)
class Cost:
    """What the probe computed.  Full-context losses and faithfulness are told apart: they are not needed to get the
    weights."""

    forwards: int
    """Sequences put through the model to get the weights."""
    backwards: int
    """Gradients taken to get the weights."""
    tokens: int
    """Tokens in these sequences."""
    checking_tokens: int
    """Tokens in all others: full context, held-out masks, retention of the top k."""
    seconds: float
    """All of it."""


@dataclass(frozen=True)
class Probed:
    """One text.  Of its t tokens n were predicted again and again, with some of the earlier ones hidden."""

    title: str
    model: str
    """What was asked, and in which precision."""
    pieces: tuple[str, ...]
    """The tokens as a person reads them."""
    tokens: Int[Tensor, "t"]
    targets: Int[Tensor, "n"]
    """The index of each predicted token, at least 1."""
    loss: Float[Tensor, "n"]
    """Nats, in full context."""
    entropy: Float[Tensor, "n"]
    """Nats, of the prediction in full context."""
    weights: Float[Tensor, "n t"]
    """Nats that seeing a token adds to the log-probability of the target; 0 where it is not earlier or always seen."""
    always: Bool[Tensor, "n t"]
    """Tokens that are never hidden from a target: the first, the one read last, and the local window."""
    sizes: tuple[int, ...]
    """Numbers of tokens whose retention was tried, rising from 0."""
    loss_at: Float[Tensor, "n s"]
    """The loss when only so many tokens of the largest weight are kept, besides those always seen."""
    faithfulness: Float[Tensor, "n"]
    """Rank correlation of predicted and true log-probabilities on fresh masks (LDS); NaN where it has none."""
    settings: ProbeConfig
    cost: Cost
    noise: Float[Tensor, "n"] | None = None
    """One number per target, in nats: the size of weight that chance may make (see `regression.noise_level`).

    A threshold, not an interval: weights are shrunken towards 0, so a true weight may lie farther from its estimate
    than this.  None where the weights were not estimated from random masks.
    """
    model_fingerprint: str = ""
    """What identifies the model, whatever its name; empty in records of before, and where only the name does."""
    text_fingerprint: str = ""
    """What identifies the text that a passage was cut from, in the same way."""

    @cached_property
    def clear_weights(self) -> Float[Tensor, "n t"]:
        """The weights, with 0 for those that chance may have made: up to three times the noise."""
        return self.weights if self.noise is None else self.weights * (self.weights.abs() > 3 * self.noise[:, None])

    @cached_property
    def influential(self) -> tuple[Int[Tensor, "_"], ...]:
        """For each target the tokens whose clear weight is beyond tau, the largest first."""
        size = self.clear_weights.abs()
        order = size.argsort(dim=1, descending=True, stable=True)
        return tuple(row[: int(k)] for row, k in zip(order, self.k_weights, strict=True))

    @cached_property
    def k_weights(self) -> Int[Tensor, "n"]:
        """How many tokens have a clear weight beyond tau."""
        return (self.clear_weights.abs() > self.settings.tau).sum(1)

    @cached_property
    def k_sufficient(self) -> Int[Tensor, "n"]:
        """The smallest tried k that keeps the loss within eps of full context; -1 where none does."""
        close = self.loss_at <= self.loss[:, None] + self.settings.eps
        first = torch.tensor(self.sizes)[close.int().argmax(1)]
        return torch.where(close.any(1), first, -1)

    @cached_property
    def k_participation(self) -> Float[Tensor, "n"]:
        """(sum |w|)^2 / sum w^2 of the clear weights: k for k equal ones, 0 where there are none."""
        squares = self.clear_weights.square().sum(1)
        return torch.where(squares > 0, self.clear_weights.abs().sum(1).square() / squares.clamp(min=1e-30), 0.0)

    @cached_property
    def span(self) -> Int[Tensor, "n"]:
        """The distance from a target to its farthest influential token; 0 where there is none."""
        distance = self.targets[:, None] - torch.arange(len(self.tokens))
        return distance.masked_fill(self.clear_weights.abs() <= self.settings.tau, 0).amax(1)

    def save(self, folder: Path) -> None:
        """Two files, neither of which can execute code; the record comes last: a folder that has one is complete."""
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {f.name: getattr(self, f.name) for f in fields(self) if isinstance(getattr(self, f.name), Tensor)}
        record = {
            "format": _FORMAT,
            "title": self.title,
            "model": self.model,
            "pieces": self.pieces,
            "sizes": self.sizes,
            "settings": to_plain(self.settings),
            "cost": asdict(self.cost),
            "model_fingerprint": self.model_fingerprint,
            "text_fingerprint": self.text_fingerprint,
        }
        write_atomically(folder / "probe.safetensors", save({name: t.contiguous() for name, t in tensors.items()}))
        write_atomically(folder / "probe.json", json.dumps(record, ensure_ascii=False).encode())

    @classmethod
    def load(cls, folder: Path) -> "Probed":
        """Read what `save` wrote; raise BadInput that names the file for any content that does not fit together."""
        record = read_json(folder / "probe.json", _check_format)
        path = folder / "probe.safetensors"
        with naming_damage(path):
            tensors = load(path.read_bytes())
        with naming_damage(folder / "probe.json"):
            settings = build(ProbeConfig, record.pop("settings"), "settings")
            cost = build(Cost, record.pop("cost"), "cost")
            told = build(_Record, record)
        with naming_damage(path):
            _check_tensors(tensors, len(told.pieces), len(told.sizes))
            made: dict[str, Any] = {**vars(told), **tensors}
            return cls(**made, settings=settings, cost=cost)


@dataclass(frozen=True)
class _Record:
    """The plain values of `probe.json`."""

    title: str
    model: str
    pieces: tuple[str, ...]
    sizes: tuple[int, ...]
    model_fingerprint: str = ""
    text_fingerprint: str = ""

    def __post_init__(self) -> None:
        if not self.pieces or self.sizes != tuple(sorted(set(self.sizes))) or self.sizes[:1] != (0,):
            raise ValueError("it needs pieces, and sizes that rise from 0")


def _check_format(record: Any) -> dict[str, Any]:
    if not isinstance(record, dict) or record.pop("format", None) != _FORMAT:
        raise ValueError("it is not the record of a probe that this version reads")
    return record


def _check_tensors(tensors: Mapping[str, Tensor], t: int, s: int) -> None:
    """Raise ValueError unless the tensors have the shapes and kinds of `Probed`, and numbers that can be."""
    targets = tensors["targets"]
    n = len(targets)
    shapes = {"tokens": (t,), "targets": (n,), "weights": (n, t), "always": (n, t), "loss_at": (n, s)}
    shapes |= dict.fromkeys(("loss", "entropy", "faithfulness", "noise"), (n,))
    whole, undecided = ("tokens", "targets"), ("faithfulness", "noise")
    for name, tensor in tensors.items():
        fits = tensor.dtype == torch.bool if name == "always" else tensor.is_floating_point() != (name in whole)
        if tensor.shape != shapes[name] or not fits:
            raise ValueError(f"{name} has the shape {tuple(tensor.shape)} and the kind {tensor.dtype}")
        if name not in undecided and not bool(tensor.isfinite().all()):
            raise ValueError(f"{name} is not finite")
    if n and not 1 <= int(targets.min()) <= int(targets.max()) < t:
        raise ValueError(f"targets go from {int(targets.min())} to {int(targets.max())} in {t} tokens")
