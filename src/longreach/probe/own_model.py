"""A model of ours, whose tokens have the IDs 0, 1, 2, ..."""

from collections.abc import Iterator
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from longreach.config import to_plain
from longreach.errors import BadInput
from longreach.evaluation import PassCost
from longreach.model import Model
from longreach.probe.fingerprint import fingerprint_of_model
from longreach.probe.language_model import LanguageModel, check_hiding


class OwnModel(LanguageModel):
    """A trained model, under position IDs that count tokens."""

    def __init__(self, model: Model, name: str, memory: int = 1 << 30) -> None:
        super().__init__(memory)
        if model.levels != 1:
            raise BadInput(f"{name}: tokens have {model.levels} position IDs each; only one that counts can be probed")
        self.model, self.embedding = model.eval(), model.embed
        self.name, self.device = f"{name} (fp32)", model.embed.weight.device
        self.vocabulary_size, width = model.embed.weight.shape
        self.numbers_per_token, self.heads = 16 * width, getattr(model.config, "heads", 1)
        self.longest = None if model.largest_id is None else model.largest_id + 1
        check_hiding(self)

    @cached_property
    def fingerprint(self) -> str:
        return fingerprint_of_model(self.model, to_plain(self.model.config))

    def pass_cost(self) -> PassCost:
        return PassCost.of(self.model)

    def scores(
        self,
        tokens: Int[Tensor, "b r"],
        positions: Int[Tensor, "b r"],
        keep: Bool[Tensor, "b r r"] | None,
        at: Int[Tensor, "a"],
    ) -> Float[Tensor, "b a v"]:
        if self.model.copy_head is not None:
            raise BadInput(f"{self.name}: a copy head looks at tokens that a mask hides")
        places = at.expand(len(tokens), -1)
        return self.model.logits(self.model(tokens, positions[:, None], at=places, keep=keep), places + 1)

    def scores_in_parts(
        self, tokens: Int[Tensor, "b r"], positions: Int[Tensor, "b r"], at: Int[Tensor, "a"], size: int
    ) -> Iterator[Float[Tensor, "b _ v"]]:
        places = at.expand(len(tokens), -1)
        states = self.model(tokens, positions[:, None], at=places)
        for part, some in zip(torch.split(states, size, dim=1), torch.split(places, size, dim=1), strict=True):
            yield self.model.logits(part, some + 1)
