"""The result of `longreach reach`: what was measured, of which model, on which texts."""

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from longreach.config import build, to_plain
from longreach.extension.measure import MeasuredReach, ReachConfig
from longreach.extension.retrieval import NAMES, RETRIEVED, VALUES, RetrievalScore
from longreach.extension.texts import ReachTexts
from longreach.probe import HuggingFace
from longreach.system.files import read_json, write_atomically
from longreach.version import __version__

AS_IT_IS = "as it is"
"""Name of the measurement of a model without another encoding."""
FILE = "reach.json"
_SCHEMA = 1


@dataclass(frozen=True, kw_only=True)
class MeasuredModel:
    """The model that was measured."""

    name: str
    type: str
    """`model_type` of its configuration."""
    parameters: int
    trained_to: int | None
    """Length of texts that its configuration states."""
    device: str
    fingerprint: str
    """SHA-256 of its configuration and weights."""

    @classmethod
    def of(cls, model: HuggingFace) -> "MeasuredModel":
        return cls(
            name=model.name,
            type=model.model.config.model_type,
            parameters=model.model.num_parameters(),
            trained_to=model.trained_to,
            device=str(model.device),
            fingerprint=model.fingerprint,
        )


@dataclass(frozen=True, kw_only=True)
class MeasuredTexts:
    """The texts of a measurement."""

    sources: tuple[str, ...]
    unit: str
    """documents, or parts of the text: the unit of intervals."""
    units: int
    """Number of these units."""
    tokens: int
    fingerprint: str

    @classmethod
    def of(cls, texts: ReachTexts, context: int) -> "MeasuredTexts":
        split = texts.cut(context)
        return cls(
            sources=texts.sources,
            unit=texts.unit,
            units=split.documents,
            tokens=len(split.tokens),
            fingerprint=texts.fingerprint,
        )


@dataclass(frozen=True, kw_only=True)
class ReachResult:
    """Figures of a model by context, with everything that identifies them.  `str(result)` is the verdict."""

    model: MeasuredModel
    texts: MeasuredTexts
    settings: ReachConfig
    measured: Mapping[str, MeasuredReach]
    """`as it is`, and a name for every other measurement, such as an encoding."""
    left_out: Sequence[str] = ()
    """A line for each reason why contexts were left out."""
    probe: Mapping[str, Any] | None = None
    """Figures of `longreach probe`; None without it."""
    versions: Mapping[str, str]
    seconds: float

    def __str__(self) -> str:
        several = len(self.measured) > 1
        return "\n".join(f"{name}: {verdict(one)}" if several else verdict(one) for name, one in self.measured.items())

    def to_plain(self) -> dict[str, Any]:
        return {
            "schema": _SCHEMA,
            "model": asdict(self.model),
            "texts": asdict(self.texts),
            "settings": to_plain(self.settings),
            "words": {"names": list(NAMES), "values": list(VALUES)},
            "measured": {name: one.to_plain() for name, one in self.measured.items()},
            "left_out": list(self.left_out),
            "probe": self.probe,
            "versions": dict(self.versions),
            "seconds": self.seconds,
        }

    def save(self, folder: Path) -> Path:
        """Write `reach.json` into a folder, which is made where it is missing, and return its path."""
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / FILE, (json.dumps(self.to_plain(), indent=1) + "\n").encode())
        return folder / FILE

    @classmethod
    def load(cls, path: Path) -> "ReachResult":
        """Read a file that `save` wrote; raise BadInput that names the file for any other content."""
        return read_json(path, cls._from_plain)

    @classmethod
    def _from_plain(cls, plain: Any) -> "ReachResult":
        if plain["schema"] != _SCHEMA:
            raise ValueError(f"it has schema {plain['schema']!r:.20}, and this version reads {_SCHEMA}")
        if not plain["measured"]:
            raise ValueError("nothing was measured")
        return cls(
            model=build(MeasuredModel, plain["model"], "model"),
            texts=build(MeasuredTexts, plain["texts"], "texts"),
            settings=build(ReachConfig, plain["settings"], "settings"),
            measured={str(name): MeasuredReach.from_plain(one) for name, one in plain["measured"].items()},
            left_out=[str(line) for line in plain["left_out"]],
            probe=plain["probe"],
            versions={str(name): str(one) for name, one in plain["versions"].items()},
            seconds=float(plain["seconds"]),
        )


def used_versions(*others: str) -> dict[str, str]:
    """Return the versions of everything that decides the figures; `others` are further packages."""
    packages = {name: version(name) for name in ("torch", "transformers", *others)}
    return {"longreach": __version__, "python": platform.python_version(), **packages}


def verdict(measured: MeasuredReach) -> str:
    """Return one line: how far the loss holds, and how far needles are retrieved."""
    parts = [f"holds to {measured.holds_to} tokens"]
    for needles in sorted({score.needles for score in measured.retrieval if score.needles}):
        reached = retrieves_to(measured.retrieval, needles)
        what = "one needle" if needles == 1 else f"one of {needles} needles"
        parts.append(f"retrieves {what} up to {reached} tokens" if reached else f"does not retrieve {what}")
    return "; ".join(parts)


def pooled(scores: Sequence[RetrievalScore], needles: int) -> list[RetrievalScore]:
    """Return the right answers with so many needles at all depths together, by context."""
    contexts = sorted({score.context for score in scores if score.needles == needles})
    rows = [[score for score in scores if (score.context, score.needles) == (one, needles)] for one in contexts]
    return [
        RetrievalScore(row[0].context, needles, None, sum(one.right for one in row), sum(one.questions for one in row))
        for row in rows
    ]


def retrieves_to(scores: Sequence[RetrievalScore], needles: int) -> int:
    """Return the longest tested context with at least 80% right answers; 0 if there is none.

    No shorter context may be clearly below: with an interval that ends below 80%.
    """
    reached = 0
    for score in pooled(scores, needles):
        if score.interval()[1] < RETRIEVED:
            break
        if score.right >= RETRIEVED * score.questions:
            reached = score.context
    return reached
