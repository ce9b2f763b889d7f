"""Trained short, how far does this transformer reach, and how do I make it reach farther?

`import longreach` is cheap: the names of `longreach.api` are fetched when they are first used.  Nothing is imported
here: `python -m longreach` reads this file while the working folder is still first on the path.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["__version__"]


def __getattr__(name: str) -> "Any":
    import importlib

    if name == "__version__":
        return importlib.import_module("longreach.version").__version__
    if name.startswith("_"):
        raise AttributeError(name)
    # `from longreach import api` would ask this very function for `api`
    return getattr(importlib.import_module("longreach.api"), name)
