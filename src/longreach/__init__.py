"""Trained short, how far does this transformer reach, and how do I make it reach farther?

`import longreach` is cheap: `longreach.api`, and with it torch, is imported when one of its names is first used.
Nothing is imported here: `python -m longreach` reads this file while the working folder is still first on the path.
"""

# ruff: noqa: F403 (type checkers read the names from longreach.api)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from longreach.api import *
    from longreach.tasks import *
    from longreach.version import __version__ as __version__
else:

    def __getattr__(name: str) -> object:
        """Return `__version__`, `__all__`, or a public name of `longreach.api`."""
        if name.startswith("_") and name not in ("__all__", "__version__"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        import importlib

        if name == "__version__":
            return importlib.import_module("longreach.version").__version__
        api = importlib.import_module("longreach.api")  # `from longreach import api` would call this function
        if name not in ("__all__", *api.__all__):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(api, name)

    def __dir__() -> list[str]:
        """Return all public names; this imports `longreach.api`."""
        return sorted({*__getattr__("__all__"), *(name for name in globals() if name.startswith("__"))})
