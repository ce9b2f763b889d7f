"""The record of one generation: what each step read and wrote, level by level."""

from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor

from longreach.model import IdChoice
from longreach.tasks import Level


@dataclass(frozen=True)
class Pointed:
    """Where a pointer head points for one level of IDs."""

    index: int | None
    """The token whose ID is copied; None for the reserved ID."""
    move: int
    """Steps by which the copied ID is moved."""
    probability: float
    level: str | None = None
    """The level whose ID is copied, where it is another one."""


@dataclass(frozen=True)
class HeadAttention:
    """One attention head in one step.  Layers and heads are counted from 0."""

    layer: int
    head: int
    mass: float
    """Attention on the earlier tokens that share the ID of the token the step starts from."""
    most: int
    """Place of the one of these tokens that gets the most attention."""


@dataclass(frozen=True)
class LevelStep:
    """One level of position IDs in one step."""

    level: str
    read_id: int
    id: int | None
    """Of the token written; None for the last token, which is never read."""
    id_probability: float | None
    """Of this ID, where the model predicts it."""
    true_id: int | None
    points_at: Pointed | None
    """Where a pointer predicts the ID and the level grows."""
    matches: list[int]
    """Places of the earlier tokens with the same ID at this level as the token the step starts from."""
    heads: list[HeadAttention]
    """Heads with the most attention on these tokens."""


@dataclass(frozen=True)
class GeneratedStep:
    """One answer step: it starts from a token that was read and writes the next one."""

    number: int
    """Counted from 0."""
    index: int
    """Place of the token that the step starts from."""
    reads: str
    read_ids: list[int]
    writes: str
    given: bool
    """Whether the token written was handed to the model."""
    token_probability: float
    true_token: str | None
    ids: list[int] | None
    """Of the token written, one per level; None for the last token, which is never read."""
    id_probability: float | None
    """Of these IDs, where the model predicts them."""
    true_ids: list[int] | None
    depends_on: list[int] | None
    """Places of the tokens that the true token depends on, where they are known."""
    levels: list[LevelStep]
    shares_id_with: list[int]
    """Places of the earlier tokens that match the token the step starts from at every level."""
    heads: list[HeadAttention]
    """Heads with the most attention on these tokens."""

    @property
    def wrong_token(self) -> bool:
        return self.true_token is not None and self.writes != self.true_token

    @property
    def wrong_id(self) -> bool:
        return self.ids is not None and self.true_ids is not None and self.ids != self.true_ids


@dataclass(frozen=True)
class MatchCount:
    """How often the token that a step starts from shares its ID with earlier tokens."""

    level: str | None
    """None: at every level at once."""
    steps: int
    """Steps with a match."""
    tokens: int
    """Matches of all steps."""
    needed: int | None
    """Matches that the step depends on, where dependencies are known."""


@dataclass(frozen=True)
class Inside:
    """One generation, opened up."""

    words: list[str]
    """All tokens, the prompt's and those written."""
    prompt_tokens: int
    ids: Int[Tensor, "g read"]
    """Under which the tokens were read; the last one written is not."""
    levels: tuple[Level, ...]
    """Levels of these IDs."""
    predicts_ids: bool
    stopped: bool
    true_answer: list[str] | None
    knows_ids: bool
    """Whether the true IDs are known."""
    steps: list[GeneratedStep]
    weights: Float[Tensor, "layers heads steps read"]
    """Attention of each step on the tokens read so far."""
    token_probabilities: Float[Tensor, "steps vocabulary"]
    id_choices: list[IdChoice]
    """One per level, where the model predicts IDs."""

    @property
    def right(self) -> bool | None:
        """Return whether the answer is right; None if the truth is not known."""
        if self.true_answer is None:
            return None
        return self.stopped and self.words[self.prompt_tokens :] == self.true_answer

    @property
    def matches(self) -> list[MatchCount]:
        """Count matches by level and, if there are several levels, those at every level."""
        counts = [
            self._count(level.name, [step.levels[number].matches for step in self.steps])
            for number, level in enumerate(self.levels)
        ]
        return counts if len(counts) == 1 else [*counts, self._count(None, [s.shares_id_with for s in self.steps])]

    def _count(self, level: str | None, matches: list[list[int]]) -> MatchCount:
        pairs = [(places, s.depends_on) for places, s in zip(matches, self.steps, strict=True)]
        needed = [len({*places} & {*on}) for places, on in pairs if on is not None]
        return MatchCount(level, sum(map(bool, matches)), sum(map(len, matches)), sum(needed) if needed else None)

    @property
    def first_error(self) -> tuple[int, str] | None:
        """Return the first step that went wrong, and which of `token` and `ID` did.

        If both are wrong it is the token: the ID is chosen after it.
        """
        for step in self.steps:
            if step.wrong_token or step.wrong_id:
                return step.number, "token" if step.wrong_token else "ID"
        return None


@dataclass(frozen=True)
class Detail:
    """More of one step."""

    step: int
    tokens: list[tuple[str, float]]
    """The likeliest tokens and their probabilities."""
    ids: list[list[tuple[int, float]]]
    """Per level the likeliest IDs and their probabilities, where the model predicts them."""
    attended: list[int]
    """Places of the tokens that any head attends to most, in their order."""
    weights: list[list[list[float]]]
    """Per layer and head the attention on these tokens."""
    matched: list[list[list[float]]]
    """Per level, layer and head the attention on all tokens that share the step's ID at that level."""


def verdict(inside: Inside, most: int | None = None) -> str:
    """Return in one line whether the answer is right and, if not, the true answer, up to `most` tokens, and the first
    error."""
    unknown = "" if inside.knows_ids else " (the true IDs are not known)"
    if inside.right is None:
        return f"the true answer is not known{unknown}"
    answer, error = inside.true_answer or [], inside.first_error
    cut = most is not None and len(answer) > most
    truth = " ".join(answer[:most]) + (f" ... ({len(answer)} tokens)" if cut else "")
    if inside.right:
        harmless = "" if error is None else f", though the ID of step {error[0]} is wrong"
        return f"right{harmless}{unknown}"
    place = "" if error is None else f"; the first error is the {error[1]} of step {error[0]}"
    return f"wrong; the true answer is {truth}{place}{unknown}"
