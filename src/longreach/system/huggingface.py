"""The one place that imports the optional package transformers."""

import importlib
import importlib.util
import re
import sys
from collections.abc import Callable
from importlib import metadata
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from longreach.errors import BadInput

LEAST = (5, 5)
"""The first release that works: older ones compute a wrong rotary fraction for GPT-NeoX."""
_INSTALL = "pip install 'longreach[hf]'"


def is_usable() -> bool:
    """Return whether transformers is installed and new enough."""
    numbers = re.findall(r"\d+", _installed() or "0.0")
    return tuple(int(number) for number in numbers[:2]) >= LEAST


def _installed() -> str | None:
    try:
        return metadata.version("transformers")
    except metadata.PackageNotFoundError:
        return None


def import_transformers(for_what: str, module: str = "") -> Any:
    """Return the package transformers, or a module of it; raise BadInput if it is absent or too old.

    The import takes seconds, so callers do it late.
    """
    found = _installed()
    if found is None:
        raise BadInput(f"{for_what} needs the package transformers: {_INSTALL}")
    if not is_usable():
        least = ".".join(map(str, LEAST))
        raise BadInput(f"{for_what} needs transformers {least} or newer, found {found}: {_INSTALL} --upgrade")
    return importlib.import_module(f"transformers.{module}" if module else "transformers")


def once_imported(module: str, action: Callable[[], None]) -> None:
    """Run an action now if a module is imported already, and else right after its first import.

    The module itself is not imported: transformers takes seconds.
    """
    if module in sys.modules:
        action()
    elif not any(isinstance(finder, _AfterImport) and finder.module == module for finder in sys.meta_path):
        sys.meta_path.insert(0, _AfterImport(module, action))


class _AfterImport(MetaPathFinder):
    """Runs an action once, right after a module is executed."""

    def __init__(self, module: str, action: Callable[[], None]) -> None:
        self.module, self.action = module, action

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != self.module:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_then_act(module: ModuleType) -> None:
            execute(module)
            self.action()

        spec.loader.exec_module = execute_then_act  # type: ignore[method-assign]
        return spec
