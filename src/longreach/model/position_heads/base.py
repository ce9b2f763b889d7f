"""What a position head is: it says, for a token about to be written, how likely each position ID is."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from longreach.config import Settings
from longreach.config.registry import kind, name_of
from longreach.errors import BadInput
from longreach.positions.encodings import Encoding, Shape
from longreach.positions.ladder import Ladder

RESERVED = 0
"""The ID of tokens that stand nowhere, before any shift."""


@dataclass(frozen=True)
class IdChoice:
    """A distribution over candidates, each of which stands for an ID; several may stand for the same one."""

    ids: Int[Tensor, "b #a c"]
    logits: Float[Tensor, "b a c"]

    def log_probability(self, target: Int[Tensor, "b a"]) -> Float[Tensor, "b a"]:
        """Of an ID: the log of the summed probability of all its candidates; minus infinity where it has none."""
        of_target = self.logits.masked_fill(self.ids != target[..., None], -torch.inf)
        return of_target.logsumexp(-1) - self.logits.logsumexp(-1)

    def best(self) -> Int[Tensor, "b a"]:
        """The ID of the most likely candidate."""
        # equal tokens tie: in float32 the first wins, while in float64 the order of sums would choose
        best = self.logits.float().argmax(-1, keepdim=True)
        return self.ids.expand(self.logits.shape).gather(2, best)[..., 0]

    def margin(self) -> Float[Tensor, "b a"]:
        """How much the most likely candidate is ahead of the best one with another ID, in logits.  Not a number where
        its logit is infinite: nothing follows from an overflow."""
        others = self.logits.masked_fill(self.ids == self.best()[..., None], -torch.inf)
        largest = self.logits.amax(-1)
        return (largest - others.amax(-1)).masked_fill(largest.isinf(), torch.nan)

    def up_to(self, last: int) -> "IdChoice":
        """Without the candidates that no table has an entry for."""
        return IdChoice(self.ids, self.logits.masked_fill(self.ids > last, -torch.inf))

    def reaches(self, target: Int[Tensor, "b a"]) -> Bool[Tensor, "b a"]:
        """Whether any candidate stands for the target."""
        return ((self.ids == target[..., None]) & (self.logits > -torch.inf)).any(-1)

    def only(self, allowed: Ladder, reserved: Int[Tensor, "b"]) -> "IdChoice":
        """Without the candidates whose ID is neither a rung nor the reserved one."""
        inside = allowed.has(self.ids.flatten(1)).view(self.ids.shape) | (self.ids == reserved[:, None, None])
        return IdChoice(self.ids, self.logits.masked_fill(~inside, -torch.inf))


@dataclass(frozen=True)
class Steps:
    """The states at which IDs are asked for, and all that they may look at."""

    hidden: Float[Tensor, "b a w"]
    token: Float[Tensor, "b a w"]
    """Embedding of the token whose ID is asked."""
    visible: Int[Tensor, "b a"]
    """How many tokens have been read: the state belongs to the last of them."""
    memory: Float[Tensor, "b t m"]
    """What the head keeps of every token read."""
    reachable: tuple[Int[Tensor, "b moves t"], ...]
    """Per level that grows: the IDs to which each token read leads, one for each move."""
    reserved: Int[Tensor, "b g"]
    """The reserved ID of each level: 0, unless all IDs were shifted."""


class Features(nn.Module):
    """What both heads see of a step: the state and, unless switched off, the token just chosen.

    The ID of a token often depends on what the token is (which statement defines this name?).  Seeing it spares
    the transformer a second look-up before the first is written down: P(token, ID) = P(token) P(ID | token).
    """

    def __init__(self, width: int, see_token: bool) -> None:
        super().__init__()
        self.see_token = see_token
        self.size = 2 * width if see_token else width
        self.mix = nn.Linear(self.size, width)

    def forward(self, steps: Steps) -> tuple[Float[Tensor, "b a f"], Float[Tensor, "b a w"]]:
        """The raw features, and a nonlinear mixture of them."""
        raw = torch.cat([steps.hidden, steps.token], dim=-1) if self.see_token else steps.hidden
        return raw, torch.nn.functional.gelu(self.mix(raw))


class PositionHead(nn.Module):
    """Base of all position heads."""

    largest_id: int | None = None
    """The last ID the head can say; None where there is no last one."""
    memory_size: int = 0
    """Numbers kept of every token read."""
    moves: tuple[int, ...] = ()
    """Steps up or down by which a copied ID may be moved."""

    def remember(self, hidden: Float[Tensor, "b t w"], tokens: Float[Tensor, "b t w"]) -> Float[Tensor, "b t m"]:
        """What later steps will look at, from states and token embeddings."""
        return hidden[..., :0]

    def forward(self, steps: Steps) -> list[IdChoice]:
        """One choice per level."""
        raise BadInput(f"{type(self).__name__} does not say how to choose IDs")

    def choices_up_to(self, steps: Steps, last: int | None) -> list[IdChoice]:
        """Return one choice per level, without the IDs beyond the last one, if there is any."""
        choices: list[IdChoice] = self(steps)
        return choices if last is None else [choice.up_to(last) for choice in choices]

    def log_probabilities(
        self, steps: Steps, targets: Int[Tensor, "b g a"], last: int | None
    ) -> list[Float[Tensor, "b a"]]:
        """Return the log-probability of one ID per level; `last` as in `choices_up_to`."""
        choices = self.choices_up_to(steps, last)
        return [choice.log_probability(target) for choice, target in zip(choices, targets.unbind(1), strict=True)]

    def reachable(
        self, ids: Int[Tensor, "b g t"], ladders: tuple[Ladder, ...], reserved: Int[Tensor, "b g"]
    ) -> tuple[Int[Tensor, "b moves t"], ...]:
        """Where each token's ID leads by each move, per level.  A reserved ID leads nowhere else."""
        if not self.moves:
            return ()
        found = []
        for level, ladder in enumerate(ladders):
            one, stays = ids[:, level], ids[:, level] == reserved[:, level, None]
            moved = [torch.where(stays, one, ladder.move(one, steps)) for steps in self.moves]
            found.append(torch.stack(moved, dim=1))
        return tuple(found)


def prompt_ladders(
    ids: Int[Tensor, "b g t"], prompt_tokens: Int[Tensor, "b"], reserved: Int[Tensor, "b g"]
) -> tuple[Ladder, ...]:
    """Per level the IDs of each prompt."""
    index = torch.arange(ids.shape[2], device=ids.device)
    in_prompt: Bool[Tensor, "b t"] = index < prompt_tokens[:, None]
    return tuple(Ladder.of(ids[:, g], in_prompt & (ids[:, g] != reserved[:, g, None])) for g in range(ids.shape[1]))


@kind("position_head")
@dataclass(frozen=True, kw_only=True)
class PositionHeadConfig(Settings):
    """Base of the settings of a position head: what a recipe names."""

    see_token: bool = True
    """Whether the head sees the token whose ID it predicts.  Ours; `false` predicts both from the same state."""

    def build(self, shape: Shape, encoding: Encoding) -> PositionHead:
        raise BadInput(f"position head {name_of(type(self))} does not say how to build it")
