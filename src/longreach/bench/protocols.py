"""What both sides of an attribution are asked, and how much each may spend."""

from dataclasses import dataclass
from typing import ClassVar

from longreach.bench.citing import SOURCES
from longreach.config import Settings
from longreach.errors import BadInput


@dataclass(frozen=True, kw_only=True)
class Budget(Settings):
    """How many masks each side gets."""

    masks: tuple[int, ...] = (64, 256)
    """How many ours may spend when it hides tokens; each number is a side."""
    ablations: int = 64
    """ContextCite's."""
    held_out: int = 32
    """Fresh masks of each kind."""
    keep: float = 0.5
    """The probability with which ours keeps a token or a sentence: ContextCite's own, so that sides hide as much."""

    least: ClassVar[dict[str, int]] = {"ablations": 8, "held_out": 4}

    def __post_init__(self) -> None:
        for name, least in self.least.items():
            if getattr(self, name) < least:
                raise BadInput(f"{name.replace('_', '-')} must be at least {least}, got {getattr(self, name)}")
        if not self.masks or min(self.masks) < 8:
            raise BadInput(f"masks must be at least 8, got {','.join(map(str, self.masks))}")
        if not 0 < self.keep < 1:
            raise BadInput(f"keep must be between 0 and 1, got {self.keep:g}")


@dataclass(frozen=True, kw_only=True)
class Protocol(Budget):
    """The model's own answer to a question about a text: its tokens are the targets, the text is the context.  Ours
    spends as many masks as ContextCite when it hides sentences."""

    query: str = "What is this text about?"
    """Asked of every text."""
    answer: int = 16
    """Tokens of the answer, each of them a target."""

    least: ClassVar[dict[str, int]] = {**Budget.least, "answer": 1}


@dataclass(frozen=True, kw_only=True)
class EveryTarget(Budget):
    """The tokens of a text are the targets, each with the text before it as its context."""

    masks: tuple[int, ...] = (64, 128, 256, 512)
    every: int = 1
    """One in so many tokens is a target of ours."""
    sample: int = 12
    """Targets of each text, spread over it, that ContextCite is asked about, and that all sides are judged on: it works
    anew for each of them, so that a few tell its cost."""
    sources: tuple[str, ...] = ("words", "sentences")
    """What ContextCite cuts a text into; each is a side."""

    least: ClassVar[dict[str, int]] = {**Budget.least, "every": 1, "sample": 1}

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.sources or not set(self.sources) <= set(SOURCES):
            raise BadInput(f"sources must be {' or '.join(SOURCES)}, or both, got {','.join(self.sources)!r}")
