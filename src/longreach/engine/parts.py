"""Whether the parts of a model are what they seem and nobody watches them: then they may be computed in another way."""

from torch import nn
from torch.nn.modules.module import _has_any_global_hook


def is_plain(part: nn.Module, *kinds: type[nn.Module]) -> bool:
    """A part of just one of these kinds, or of several stacked ones."""
    from longreach.engine.stacking import STACKED

    return any(type(part) in (kind, STACKED.get(kind)) for kind in kinds)


def is_watched(*modules: nn.Module) -> bool:
    """By a hook of one of the modules themselves, or by something put in place of its forward pass."""
    return bool(_has_any_global_hook()) or any(_has_hook(module) for module in modules)  # type: ignore[no-untyped-call]


def _has_hook(module: nn.Module) -> bool:
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    return any(hooks) or "forward" in vars(module)
