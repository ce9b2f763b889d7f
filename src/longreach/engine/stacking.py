"""Models of one shape, stacked: one computation that trains them all, each as if it were alone.

A small model leaves most of a GPU idle, so that others can share it.  Every weight gets a dimension in front, the
model.  Products become batched products.  The rows of a batch belong to the models in turn: first all of the first
model, then all of the second.  A row meets the weights of its own model only, so that samples, IDs, losses and heads
are computed as for one batch.
"""

import copy
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from longreach.attention.base import ScaledSoftmax
from longreach.errors import BadInput
from longreach.model import Model
from longreach.model.block import IdHeads
from longreach.model.look_back import LookBack
from longreach.model.position_heads.pointer import Pointing
from longreach.model.position_heads.table import Table


def by_row(parameter: Tensor, rows: int) -> Float[Tensor, "rows ..."]:
    """Repeat the parameters of each model for its rows of a batch."""
    return parameter.repeat_interleave(rows // len(parameter), 0)


def times_transposed(x: Float[Tensor, "b *n w"], weight: Float[Tensor, "m v w"]) -> Float[Tensor, "b *n v"]:
    """Multiply each row by the transposed weight of its model."""
    return (x.reshape(len(weight), -1, x.shape[-1]) @ weight.transpose(1, 2)).view(*x.shape[:-1], -1)


class StackedLinear(nn.Linear):
    """A map for each model."""

    def forward(self, x: Float[Tensor, "b *n i"]) -> Float[Tensor, "b *n o"]:
        rows = x.reshape(len(self.weight), -1, x.shape[-1])
        weight = self.weight.transpose(1, 2)
        mapped = rows @ weight
        if self.bias is not None:  # in a product with bias, torch would write the bias out for every row first
            mapped = mapped + self.bias[:, None].to(mapped.dtype)
        return mapped.view(*x.shape[:-1], -1)


class StackedEmbedding(nn.Embedding):
    """A table for each model."""

    def forward(self, tokens: Int[Tensor, "b *n"]) -> Float[Tensor, "b *n w"]:
        return nn.functional.embedding(row_numbers(self.weight, tokens), self.weight.flatten(0, 1))


def row_numbers(table: Float[Tensor, "m v w"], tokens: Int[Tensor, "b *n"]) -> Int[Tensor, "b *n"]:
    """Return the row of each token in the tables of all models, one below the other."""
    models, entries, _ = table.shape
    model = torch.arange(models, device=tokens.device).repeat_interleave(len(tokens) // models)
    return tokens + (model * entries).view(-1, *[1] * (tokens.dim() - 1))


class StackedLayerNorm(nn.LayerNorm):
    """A scale and a shift for each model."""

    def forward(self, x: Float[Tensor, "b *n w"]) -> Float[Tensor, "b *n w"]:
        normed = nn.functional.layer_norm(x, self.normalized_shape, eps=self.eps)
        by_model = normed.reshape(len(self.weight), -1, x.shape[-1])
        if self.bias is None:
            return (by_model * self.weight[:, None]).view(x.shape)
        return torch.addcmul(self.bias[:, None], by_model, self.weight[:, None]).view(x.shape)


class StackedRMSNorm(nn.RMSNorm):
    """A scale for each model."""

    def forward(self, x: Float[Tensor, "b *n w"]) -> Float[Tensor, "b *n w"]:
        normed = nn.functional.rms_norm(x, self.normalized_shape, eps=self.eps)
        return (normed.reshape(len(self.weight), -1, x.shape[-1]) * self.weight[:, None]).view(x.shape)


class _StackedIdHeads(IdHeads):
    def replace(self, x: Float[Tensor, "b h t d"], fixed: Float[Tensor, "m n d"]) -> Float[Tensor, "b h t d"]:
        constant = by_row(fixed, len(x)).to(x.dtype)[:, :, None].expand(-1, -1, x.shape[2], -1)
        return torch.cat([constant, x[:, constant.shape[1] :]], dim=1)


class _StackedSlopes(ScaledSoftmax):
    def slopes(self, states: Float[Tensor, "b q w"]) -> Float[Tensor, "b h"]:
        return by_row(self.slope, len(states))


class _StackedLookBack(LookBack):
    def slope_of(self, hidden: Float[Tensor, "b a w"]) -> Float[Tensor, "b 1"]:
        return by_row(self.slope, len(hidden))[:, None]

    def scale_of(self, hidden: Float[Tensor, "b a w"]) -> Float[Tensor, "#b 1"]:
        return by_row(self.log_scale.exp(), len(hidden))[:, None]


class _StackedPointing(Pointing):
    def scale_and_slope(self, query: Float[Tensor, "b a w"]) -> tuple[Float[Tensor, "b 1 1"], Float[Tensor, "b 1 1"]]:
        scale, slope = (by_row(part, len(query))[:, None, None] for part in (self.log_scale, self.slope))
        return scale.exp(), slope


class _StackedTable(Table):
    def scores(self, mixed: Float[Tensor, "b a w"], weight: Float[Tensor, "m n w"]) -> Float[Tensor, "b a n"]:
        return times_transposed(mixed, weight)


class _StackedModel(Model):
    def vocabulary_scores(self, hidden: Float[Tensor, "b a w"]) -> Float[Tensor, "b a v"]:
        if self.head is None:
            return times_transposed(hidden, self.embed.weight)
        return super().vocabulary_scores(hidden)


STACKED: dict[type[nn.Module], type[nn.Module]] = {
    nn.Linear: StackedLinear,
    nn.Embedding: StackedEmbedding,
    nn.LayerNorm: StackedLayerNorm,
    nn.RMSNorm: StackedRMSNorm,
}
"""Parts of torch and their stacked versions."""
_OWN: tuple[type[nn.Module], ...] = (
    _StackedIdHeads,
    _StackedSlopes,
    _StackedLookBack,
    _StackedPointing,
    _StackedTable,
    _StackedModel,
)
"""Stacked versions of parts of the core; each serves its base class and the subclasses of that."""


_made: dict[type[nn.Module], type[nn.Module]] = {}


def stacked_class(part: type[nn.Module]) -> type[nn.Module] | None:
    """Return the class that computes with stacked weights; None where the weights of a part need no other."""
    if part in STACKED:
        return STACKED[part]
    for version in _OWN:
        if part not in _made and issubclass(part, version.__bases__[0]):
            _made[part] = type(f"Stacked{part.__name__}", (version, part), {"__module__": __name__})
    return _made.get(part)


def check_stackable(model: Model) -> None:
    """Raise BadInput for a model with weights that have no stacked version, or a part that says `stacks = False`."""
    for module in model.modules():
        has_weights = any(True for _ in module.parameters(recurse=False))
        if not getattr(module, "stacks", True) or (has_weights and stacked_class(type(module)) is None):
            raise BadInput(f"{type(module).__name__} cannot be stacked: its seeds must be trained one after the other")


def stack_models(models: Sequence[Model]) -> Model:
    """Return one model that holds them all, in order; the models themselves are not changed."""
    check_stackable(models[0])
    stacked = copy.deepcopy(models[0])
    members = [dict(model.named_modules()) for model in models]
    for name, module in stacked.named_modules():
        for own in dict(module.named_parameters(recurse=False)):
            weights = torch.stack([getattr(member[name], own).detach() for member in members])
            setattr(module, own, nn.Parameter(weights))
        module.__class__ = stacked_class(type(module)) or type(module)
    return stacked


def member_state(stacked: Model, number: int) -> dict[str, Tensor]:
    """Return the weights of one of the models, as it would hold them alone."""
    return {name: tensor[number] for name, tensor in stacked.state_dict().items()}
