"""Settings of an extension, and the arms that they ask for."""

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from longreach.config import Bounds, Natural, Positive, Seed, Settings
from longreach.errors import BadInput, argument
from longreach.extension.rope import RopeMethod

Ids = Literal["pose", "uniform_pose", "sequential"]
Controls = Literal["all", "none"]
_WINDOW = 2048
"""Tokens of a row where none are asked for, at most."""
_WORDS = {"pose": "PoSE", "uniform_pose": "uniform PoSE", "sequential": "sequential training"}
_LARGE = 7e9
"""Parameters of a model that takes the learning rate `_RATE`."""
_RATE, _HIGHEST_RATE, _RATE_OF_LORA = 2e-5, 1e-3, 10.0


@dataclass(frozen=True)
class Arm:
    """One way to read longer texts, measured beside the others."""

    name: str
    scaled: bool
    """RoPE is scaled."""
    ids: Ids | None
    """Position IDs of the training; None where nothing is trained."""


AS_IT_IS = Arm("as it is", False, None)


@dataclass(frozen=True, kw_only=True)
class ExtendConfig(Settings):
    """Settings that decide the result of an extension, beside the model and the texts."""

    to: Annotated[int, Bounds(2, 2**24)]
    """Tokens that the model is to read."""
    trained: Annotated[int, Bounds(2)]
    """Tokens that the model was trained for."""
    window: Annotated[int, Bounds(2)]
    """Tokens of a row of training."""
    rope: RopeMethod = "yarn"
    """Method by which RoPE is scaled."""
    ids: Ids = "pose"
    """Position IDs of the training."""
    steps: Positive = 400
    """Optimizer steps of each trained arm."""
    batch_size: Positive = 8
    """Rows of a step."""
    lr: float
    """Highest learning rate; it rises for a twentieth of the steps and falls to 0 then."""
    lora: Natural = 0
    """Rank of the adapters that are trained instead of all weights; 0 for none."""
    controls: Controls = "all"
    """Arms that show what helped: all or none."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """Precision of the arithmetic and of the folder that is written."""
    samples: Positive = 2048
    """About how many tokens are predicted at each context."""
    field: str | None = None
    """Field of the text in JSONL, Parquet and datasets (default: text)."""
    test: float | None = None
    """Share of the documents that are held out and measured (default: 0.1); a prepared corpus has its own."""
    documents: Positive | None = None
    """At most so many documents, from the beginning."""
    seed: Seed = 0
    """Another seed: other rows, IDs and measured tokens."""

    def __post_init__(self) -> None:
        if self.to <= self.trained:
            raise BadInput(
                f"{argument('to', self.to)} must be above {argument('trained', self.trained)}, the tokens that the"
                f" model was trained for; give {argument('trained')} if its configuration is wrong"
            )
        if self.window > self.to:
            raise BadInput(f"{argument('window', self.window)} must be at most {argument('to', self.to)}")
        if not 0 < self.lr < math.inf:
            raise BadInput(f"{argument('lr')} must be above 0, got {self.lr}")
        if self.test is not None and not 0 < self.test < 1:
            raise BadInput(f"{argument('test')} must be above 0 and below 1, got {self.test}")

    @property
    def arms(self) -> list[Arm]:
        """Return the arms in order; the last one is the result."""
        scaled = self.rope != "none"
        result = self._trained(self.ids)
        if self.controls == "none":
            return [result]
        controls = [AS_IT_IS, *([Arm("scaling only", True, None)] if scaled else [])]
        return [*controls, *([self._trained("sequential")] if self.ids != "sequential" else []), result]

    @property
    def tokens(self) -> int:
        """Return the tokens that a trained arm reads."""
        return self.steps * self.batch_size * self.window

    @property
    def contexts(self) -> list[int]:
        """Return half the trained length, the trained length, and its doublings up to `to`."""
        found = [self.trained // 2, self.trained]
        while found[-1] * 2 < self.to:
            found.append(found[-1] * 2)
        return [*found, self.to]

    def _trained(self, ids: Ids) -> Arm:
        scaled = self.rope != "none"
        return Arm(("scaling, " if scaled else "") + _WORDS[ids], scaled, ids)


def usual_window(trained: int) -> int:
    """Return the tokens of a row where the user gives none."""
    return min(trained, _WINDOW)


def usual_rate(parameters: int, lora: bool) -> float:
    """Return a learning rate for a model of this size; a rule of thumb.

    It is 2e-5 for 7 billion parameters, falls with the root of their number, is ten times higher with adapters, and
    at most 1e-3.
    """
    rate = _RATE * math.sqrt(_LARGE / parameters) * (_RATE_OF_LORA if lora else 1.0)
    return float(f"{min(_HIGHEST_RATE, rate):.2g}")


def difference(earlier: dict[str, Any], now: dict[str, Any]) -> str:
    """Return the first setting that differs, with both values; empty if none does."""
    for name, value in now.items():
        if name == "fingerprint" and earlier.get(name) != value:
            return "other weights or another configuration of the model"
        if name == "texts_sha256" and earlier.get(name) != value:
            return "other texts"
        if name not in earlier or earlier[name] != value:
            return f"{argument(name)} {earlier.get(name)!r}, not {value!r}"
    return ""
