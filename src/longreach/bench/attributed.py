"""What a comparison of attributions found: every side on every text, and all texts together."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import median


@dataclass(frozen=True)
class Trial:
    """One side on one text."""

    side: str
    text: int
    targets: int
    failed: int
    """Targets for which it found nothing because its solver refused."""
    seconds: float
    """For each target; the generation of an answer is not counted."""
    tokens: float
    """Put through the model, for each target."""
    each_lds: dict[str, tuple[float, ...]]
    """By kind of fresh mask: of the targets that every side could treat, which are the same for all sides."""

    @property
    def lds(self) -> dict[str, float]:
        """The median over targets."""
        return {kind: median(scores) for kind, scores in self.each_lds.items()}


@dataclass(frozen=True)
class SideRow:
    """One side over all texts: medians, with the smallest and the largest."""

    side: str
    seconds: tuple[float, float, float]
    tokens: tuple[float, float, float]
    ratio: tuple[float, float, float]
    """How many times the seconds of the first side it took, text by text."""
    failed: int
    targets: int
    lds: dict[str, tuple[float, float, float]]


@dataclass(frozen=True)
class Attribution:
    """The whole comparison."""

    trials: tuple[Trial, ...]
    notes: tuple[str, ...]

    @property
    def rows(self) -> list[SideRow]:
        sides = list(dict.fromkeys(trial.side for trial in self.trials))
        first = {trial.text: trial.seconds for trial in self.trials if trial.side == sides[0]}
        found = []
        for side in sides:
            own = [trial for trial in self.trials if trial.side == side]
            found.append(
                SideRow(
                    side=side,
                    seconds=_spread([trial.seconds for trial in own]),
                    tokens=_spread([trial.tokens for trial in own]),
                    ratio=_spread([trial.seconds / first[trial.text] for trial in own]),
                    failed=sum(trial.failed for trial in own),
                    targets=sum(trial.targets for trial in own),
                    lds={kind: _spread([trial.lds[kind] for trial in own]) for kind in own[0].lds},
                )
            )
        return found

    def to_json(self) -> dict[str, object]:
        return {
            "notes": list(self.notes),
            "rows": [asdict(row) for row in self.rows],
            "trials": [{**asdict(trial), "lds": trial.lds} for trial in self.trials],
        }


def try_all(
    texts: Sequence[str], one_text: Callable[[int, str], Iterable[Trial]], tell: Callable[[Trial], None]
) -> tuple[Trial, ...]:
    """Every side on every text, in turns; each trial is told as soon as it is done."""
    trials = []
    for number, text in enumerate(texts):
        for trial in one_text(number, text):
            trials.append(trial)
            tell(trial)
    return tuple(trials)


def _spread(values: Sequence[float]) -> tuple[float, float, float]:
    return median(values), min(values), max(values)
