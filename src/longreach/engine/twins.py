"""A second model with the same weights, some parts of which are computed in another way."""

import copy
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from torch import nn

M = TypeVar("M", bound=nn.Module)


class Swap(NamedTuple):
    """Another way to compute a part: a subclass of its class, and attributes of that subclass."""

    version: type[nn.Module]
    attributes: dict[str, Any]


def make_twin(model: M, swap: Callable[[nn.Module], Swap | None]) -> M:
    """Copy the tree of modules.  Weights, buffers and hooks are shared, so that both models stay the same."""
    copied: dict[int, nn.Module] = {}

    def of(module: nn.Module) -> nn.Module:
        if id(module) not in copied:
            copied[id(module)] = twin = copy.copy(module)
            twin.__dict__["_modules"] = {
                name: None if child is None else of(child) for name, child in module._modules.items()
            }
            found = swap(module)
            if found is not None:
                twin.__class__ = _combined(found.version, type(module))
                twin.__dict__.update(found.attributes)
        return copied[id(module)]

    return of(model)  # type: ignore[return-value]


_made: dict[tuple[type[nn.Module], type[nn.Module]], type[nn.Module]] = {}


def _combined(version: type[nn.Module], own: type[nn.Module]) -> type[nn.Module]:
    """Return a class with the methods of `version` before those of the part's own class."""
    if issubclass(own, version):
        return own
    if issubclass(version, own):
        return version
    if (version, own) not in _made:
        _made[version, own] = type(f"{version.__name__}{own.__name__}", (version, own), {"__module__": __name__})
    return _made[version, own]
