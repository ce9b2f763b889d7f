"""Facts about a model that the reasons of a plan rest on."""

from functools import cached_property
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import _has_any_global_hook

from longreach.attention import Attention
from longreach.engine.drawing import Stream, draws_on_host
from longreach.engine.kernels import HAS_TRITON, PRECISIONS
from longreach.engine.stacking import STACKED, stacked_class
from longreach.execution import ExecutionConfig
from longreach.model import Model, Transformer
from longreach.model.block import Block, FeedForward, SelfAttention


class Facts:
    """A model, its execution and its data, and what the reasons of a plan ask of them."""

    def __init__(
        self,
        model: Model,
        execution: ExecutionConfig,
        device: torch.device,
        precision: str,
        data: Stream | None = None,
    ) -> None:
        self.model, self.execution, self.device, self.precision = model, execution, device, precision
        self.data, self.host_draws = data, data is not None and draws_on_host(data)
        self.cuda = device.type == "cuda"
        self.attentions = [module for module in model.modules() if isinstance(module, Attention)]
        self.no_cpu = "" if self.device.type == "cpu" else "needs a CPU"

    @cached_property
    def reads_states(self) -> bool:
        """Return whether an attention rescales queries by the states that they were computed from."""
        own = (Attention.growth, Attention.rescale)
        return any((type(mix).growth, type(mix).rescale) != own for mix in self.attentions)

    @cached_property
    def foreign(self) -> str:
        """Return the class or the hook that is not ours, for which layers cannot be computed in another way."""
        if not self.is_ours:
            return f"{type(self.model).__name__} computes its states in a way of its own"
        if bool(_has_any_global_hook()) or any(has_hook(module) for module in self.model.modules()):  # type: ignore[no-untyped-call]
            return "a hook is registered on the model, or a forward method is replaced"
        for block in self.blocks:
            if type(block) is not Block or type(block.attention) is not SelfAttention:
                return f"{type(block).__name__} is a layer of another class"
            if type(block.feed_forward) is not FeedForward:
                return f"{type(block.feed_forward).__name__} is a feed-forward net of another class"
        return ""

    @property
    def is_ours(self) -> bool:
        """Return whether the model is a transformer of the core, alone or stacked, and not of a subclass."""
        return type(self.model) in (Transformer, stacked_class(Transformer))

    @property
    def own_losses(self) -> str:
        """Return why the loss cannot be computed in another way."""
        return "" if self.is_ours else f"{type(self.model).__name__} may compute losses in a way of its own"

    @property
    def transformer(self) -> Transformer:
        assert isinstance(self.model, Transformer)
        return self.model

    @property
    def blocks(self) -> list[Any]:
        return list(self.transformer.blocks)

    @cached_property
    def encoded(self) -> tuple[Any, Any, Any]:
        """Return what the encoding gives for one token: rotations of queries and keys, and a bias."""
        device, encoding = next(self.model.parameters()).device, self.transformer.encoding
        ids = torch.zeros(1, self.model.levels, 1, dtype=torch.long, device=device)
        with torch.no_grad():
            return encoding.rotation(ids, ids), encoding.key_rotation(ids, ids), encoding.score_bias(ids, ids)

    def no_kernels(self) -> str:
        """Return why kernels of ours cannot run at all."""
        if not self.cuda:
            return "needs a GPU"
        if not HAS_TRITON:
            return "Triton is not installed"
        if self.model.embed.weight.dtype not in PRECISIONS:
            return f"weights are in {str(self.model.embed.weight.dtype).removeprefix('torch.')}"
        return ""

    def turned_apart(self) -> str:
        """Return why queries and keys are not turned by the same angles, each head with keys of its own."""
        attention = self.blocks[0].attention
        if attention.groups != attention.heads:
            return "heads share keys and values"
        return "keys are turned by other angles than queries" if self.encoded[1] is not None else ""

    def only_turned(self) -> str:
        """Return why queries and keys are more than turned by one rotation of all dimensions."""
        attention = self.blocks[0].attention
        if attention.id_heads is not None:
            return "id_heads replace queries and keys"
        if isinstance(attention.norm_q, nn.RMSNorm):
            return "queries and keys are normalised"
        rotation = self.encoded[0]
        if rotation is not None and 2 * rotation[0].shape[-1] != self.transformer.config.head_dim:
            return "only a part of each head is turned"
        return self.turned_apart()


def is_plain(part: nn.Module, *kinds: type[nn.Module]) -> bool:
    """Return whether a part is of just one of these classes of torch, or of its stacked version."""
    return any(type(part) in (kind, STACKED[kind]) for kind in kinds)


def has_bias(part: nn.Module) -> bool:
    """Return whether a norm or a linear map has a bias."""
    return getattr(part, "bias", None) is not None


def has_hook(module: nn.Module) -> bool:
    """Return whether a module has a hook, or something in place of its forward method."""
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    return any(hooks) or "forward" in vars(module)
