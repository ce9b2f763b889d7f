"""Models of one shape, stacked: one computation that trains them all, each as if it were alone.

A small model leaves most of a GPU idle, so that others can share it.  Every weight gets a dimension in front,
products become batched products, and nothing else changes: a row of a batch meets the weights of its own model only, so
that samples, IDs, losses and heads are computed as for one batch.
"""

import copy
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from longreach.errors import BadInput
from longreach.model.base import Model
from longreach.model.embedding import Entries, TokenEmbedding


class _Linear(nn.Linear):
    """A map for each model."""

    def forward(self, x: Float[Tensor, "b *n i"]) -> Float[Tensor, "b *n o"]:
        rows = x.reshape(len(self.weight), -1, x.shape[-1])
        weight = self.weight.transpose(1, 2)
        mapped = rows @ weight
        if self.bias is not None:  # in a product with bias, torch would write the bias out for every row first
            mapped = mapped + self.bias[:, None].to(mapped.dtype)
        return mapped.view(*x.shape[:-1], -1)


class _Embedding(TokenEmbedding):
    """A table for each model."""

    def read(self, tokens: Int[Tensor, "b *n"]) -> Entries:
        models, entries, _ = self.weight.shape
        model = torch.arange(models, device=tokens.device).repeat_interleave(len(tokens) // models)
        first = (model * entries).view(-1, *[1] * (tokens.dim() - 1))
        return Entries(self.weight, tokens + first)


class _LayerNorm(nn.LayerNorm):
    """A scale and a shift for each model."""

    def forward(self, x: Float[Tensor, "b *n w"]) -> Float[Tensor, "b *n w"]:
        normed = nn.functional.layer_norm(x, self.normalized_shape, eps=self.eps)
        by_model = normed.reshape(len(self.weight), -1, x.shape[-1])
        if self.bias is None:
            return (by_model * self.weight[:, None]).view(x.shape)
        return torch.addcmul(self.bias[:, None], by_model, self.weight[:, None]).view(x.shape)


class _RMSNorm(nn.RMSNorm):
    """A scale for each model."""

    def forward(self, x: Float[Tensor, "b *n w"]) -> Float[Tensor, "b *n w"]:
        normed = nn.functional.rms_norm(x, self.normalized_shape, eps=self.eps)
        return (normed.reshape(len(self.weight), -1, x.shape[-1]) * self.weight[:, None]).view(x.shape)


STACKED: dict[type[nn.Module], type[nn.Module]] = {
    nn.Linear: _Linear,
    nn.Embedding: _Embedding,
    TokenEmbedding: _Embedding,
    nn.LayerNorm: _LayerNorm,
    nn.RMSNorm: _RMSNorm,
}
"""What becomes of the parts of a model."""


def check_stackable(model: Model) -> None:
    """Refuse a model with a part that knows nothing of stacking."""
    for module in model.modules():
        own = any(True for _ in module.parameters(recurse=False))
        known = type(module) in STACKED or getattr(module, "stacks", not own)
        if not known:
            raise BadInput(f"{type(module).__name__} cannot be stacked: its seeds must be trained one after the other")


def stack_models(models: Sequence[Model]) -> Model:
    """One model that holds them all, in order; the models themselves are not changed."""
    check_stackable(models[0])
    stacked = copy.deepcopy(models[0])
    members = [dict(model.named_modules()) for model in models]
    for name, module in stacked.named_modules():
        for own in dict(module.named_parameters(recurse=False)):
            weights = torch.stack([getattr(member[name], own).detach() for member in members])
            setattr(module, own, nn.Parameter(weights))
        if type(module) in STACKED:
            module.__class__ = STACKED[type(module)]
    return stacked


def member_state(stacked: Model, number: int) -> dict[str, Tensor]:
    """The weights of one of the models, as it would hold them alone."""
    return {name: tensor[number] for name, tensor in stacked.state_dict().items()}
