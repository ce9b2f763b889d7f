"""Pointing at a token read before, and copying its ID."""

import math
from dataclasses import dataclass
from typing import Annotated

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import normalize

from longreach.attention import exact_dtype
from longreach.config import Bounds
from longreach.config.registry import register
from longreach.errors import BadInput
from longreach.model.position_heads.base import Features, IdChoice, PositionHead, PositionHeadConfig, Steps
from longreach.positions.encodings import Encoding, Shape


@register("position_head", "pointer")
@dataclass(frozen=True, kw_only=True)
class PointerConfig(PositionHeadConfig):
    """Point at a token, the current one included; its ID, moved by a few steps among the IDs of the prompt, is the
    next token's.  Or say the reserved ID.  There is no largest ID, and shifting all IDs shifts the predictions.

    The loss is the log of the summed probability of all ways to reach the true ID.  Scores grow with the logarithm
    of the number of tokens, as in `scaled_softmax`.  Levels of bounded size are classes.  Ours.
    """

    moves: Annotated[int, Bounds(high=1000)] = 1
    """The most steps, up or down, by which a copied ID is moved."""
    normalise: bool = True
    """Compare directions instead of plain products.  A plain product, trained among a few tokens, tells only a few
    apart: a crowd of others has better matches by chance."""
    add_token: bool = True
    """Whether `normalise` adds the embeddings of tokens to what is learned of them."""
    start: Annotated[float, Bounds()] = 0.2
    """Initial slope of the growth of scores."""
    kind_first: bool = False
    """Decide first among the reserved ID, the current token and any token, then among the tokens.  So the current
    token, from which a walk goes on, need not outdo a crowd that grows with length."""
    across_levels: bool = False
    """Whether a level may also take the current token's ID at another level, so that a cursor can go where another one
    stands.  Useful where levels count the same places: see `Level.space`."""

    def __post_init__(self) -> None:
        if self.moves < 0:
            raise ValueError(f"pointer.moves must not be negative, got {self.moves}")

    def build(self, shape: Shape, encoding: Encoding) -> PositionHead:
        if all(shape.level_sizes):
            raise BadInput("position head pointer needs a level of IDs that grows with length: use table")
        return Pointer(shape, self)


class Pointer(PositionHead):
    def __init__(self, shape: Shape, config: PointerConfig) -> None:
        super().__init__()
        self.features = Features(shape.width, config.see_token)
        self.moves = tuple(range(-config.moves, config.moves + 1))
        self.normalise, self.across_levels = config.normalise, config.across_levels
        self.add_token = config.add_token
        self.width = shape.width
        self.growing = [level for level, size in enumerate(shape.level_sizes) if size == 0]
        self.memory_size = shape.width * len(self.growing)
        self.keys = nn.Linear(2 * shape.width, self.memory_size)
        others = len(self.growing) - 1 if config.across_levels else 0
        self.levels = nn.ModuleList(
            [
                Pointing(shape.width, self.features.size, len(self.moves), others, config)
                if size == 0
                else nn.Linear(shape.width, size + 1)
                for size in shape.level_sizes
            ]
        )

    def remember(self, hidden: Float[Tensor, "b t w"], tokens: Float[Tensor, "b t w"]) -> Float[Tensor, "b t m"]:
        # the token itself beside its state: what a name is should not fade as more is read
        keys = self.keys(torch.cat([hidden, tokens], dim=-1))
        if self.normalise:
            added = tokens if self.add_token else None
            parts = [direction(part, added) for part in torch.split(keys, self.width, dim=-1)]
            keys = torch.cat(parts, dim=-1)
        return keys  # type: ignore[no-any-return]

    def forward(self, steps: Steps) -> list[IdChoice]:
        raw, mixed = self.features(steps)
        memories = self.by_level(steps.memory)
        choices = []
        for number, level in enumerate(self.levels):
            reserved = steps.reserved[:, number, None]
            if isinstance(level, Pointing):
                reachable = steps.reachable[number]
                others = self.other_levels(steps, number)
                logits = level(steps, raw, mixed, memories[number], others == reserved[..., None])
                ids = torch.cat([reserved, reachable.flatten(1)], dim=1)[:, None]
                if others.shape[-1]:
                    ids = torch.cat([ids.expand(-1, others.shape[1], -1), others], dim=-1)
                choices.append(IdChoice(ids, logits))
            else:
                choices.append(self.class_choice(steps, number, mixed))
        return choices

    def by_level(self, memory: Float[Tensor, "b t m"]) -> dict[int, Float[Tensor, "b t w"]]:
        """Return the memory of each level that grows."""
        return dict(zip(self.growing, torch.split(memory, self.width, dim=-1), strict=True))

    def class_choice(self, steps: Steps, number: int, mixed: Float[Tensor, "b a w"]) -> IdChoice:
        """Return the choice of a level of bounded size."""
        logits = self.levels[number](mixed)
        logits = logits.to(exact_dtype(logits))
        ids = (steps.reserved[:, number, None] + torch.arange(logits.shape[-1], device=logits.device))[:, None]
        return IdChoice(ids, logits)

    def other_levels(self, steps: Steps, number: int) -> Int[Tensor, "b a others"]:
        """Return the current token's IDs at the other levels that grow, under each move."""
        found = []
        for other in self.growing if self.across_levels else ():
            if other != number:
                reachable = steps.reachable[other]  # [b, moves, t]
                current = (steps.visible - 1)[:, None].expand(-1, reachable.shape[1], -1)
                found.append(reachable.gather(2, current).transpose(1, 2))
        return torch.cat(found, dim=-1) if found else steps.visible[..., None][..., :0]


def direction(x: Float[Tensor, "b t w"], token: Float[Tensor, "b t w"] | None) -> Float[Tensor, "b t w"]:
    """What was learned of a token, on top of the token itself, as a unit vector."""
    if token is not None:
        # states have lengths of about sqrt(width) too, so that at first the token outweighs what is not yet learned
        x = x + x.shape[-1] ** 0.5 * normalize(token, dim=-1)
    return normalize(x, dim=-1)


class Pointing(nn.Module):
    """One level: scores for the reserved ID, for every (move, token) and for every (other level, move)."""

    def __init__(self, width: int, features: int, moves: int, others: int, config: PointerConfig) -> None:
        super().__init__()
        self.config = config
        self.query = nn.Linear(features, width)
        self.move = nn.Linear(width, moves)
        self.special = nn.Linear(width, (3 if config.kind_first else 2) + others)
        """Scores of the reserved ID, of the current token (in addition to its own), where the kind is decided first of
        any token, and of the current token's ID at each other level."""
        self.slope = nn.Parameter(torch.full((), config.start))
        self.log_scale = nn.Parameter(torch.zeros(()))
        """Of the scores; from 10 where they are cosines, which are at most 1."""

    def initialise(self) -> None:
        nn.init.constant_(self.slope, self.config.start)
        nn.init.constant_(self.log_scale, math.log(10) if self.config.normalise else 0)

    def scale_and_slope(
        self, query: Float[Tensor, "b a w"]
    ) -> tuple[Float[Tensor, "#b #a #t"], Float[Tensor, "#b #a #t"]]:
        """Return the scale of the scores and the slope of their growth, for each row."""
        return self.log_scale.exp()[None, None, None], self.slope[None, None, None]

    def forward(
        self, steps: Steps, raw: Tensor, mixed: Tensor, memory: Tensor, hidden: Bool[Tensor, "b a others"]
    ) -> Float[Tensor, "b a c"]:
        """Return the scores; those of other levels are left out where they are `hidden`."""
        visible, query = steps.visible, self.query(raw)
        if self.config.normalise:
            query = direction(query, steps.token if self.config.see_token and self.config.add_token else None)
        else:
            query = query / memory.shape[-1] ** 0.5
        scale, slope = self.scale_and_slope(query)
        exact = exact_dtype(query)
        scores = scale * (query @ memory.transpose(1, 2)).to(exact)  # [b, a, t]
        special = self.special(mixed).to(exact)
        index = torch.arange(memory.shape[1], device=memory.device)
        is_current = index == visible[..., None] - 1
        growth = 1 + slope * visible.to(exact).log()[..., None]
        unseen = index >= visible[..., None]
        if self.config.kind_first:
            reserved, current, any_token, *others = special.log_softmax(-1)[..., None].unbind(-2)
            scores = (scores * growth).masked_fill(unseen, -torch.inf).log_softmax(-1) + any_token
            own = scores.gather(-1, visible[..., None] - 1)
            scores = torch.where(is_current, torch.logaddexp(own, current), scores)
        else:
            reserved, current, *others = special[..., None].unbind(-2)
            scores = ((scores + current * is_current) * growth).masked_fill(unseen, -torch.inf)
            reserved, others = reserved * growth, [other * growth for other in others]
        moves = self.move(mixed).to(exact).log_softmax(-1)  # [b, a, moves]
        pairs = (scores[:, :, None] + moves[..., None]).flatten(2)
        of_levels = torch.cat([other + moves for other in others], dim=-1) if others else pairs[..., :0]
        return torch.cat([reserved, pairs, of_levels.masked_fill(hidden, -torch.inf)], dim=-1)
