"""Trained short, how far does this transformer reach, and how do I make it reach farther?

`import longreach` is cheap: the names of `longreach.api` are fetched when they are first used.
"""

import importlib
from typing import Any

from longreach.version import __version__

__all__ = ["__version__"]


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    # `from longreach import api` would ask this very function for `api`
    return getattr(importlib.import_module("longreach.api"), name)
