"""Where the classes that a file or a command names may be imported from.

A name on the command line or in a recipe may lead to the working folder.  The folder is put on the path for such a
name only, and last, so that no file in it stands in for a module of another place.  A name in a run folder leads to
modules that are loaded already, to installed packages, and to the folder from which this user started the run.
"""

import importlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from longreach.errors import BadInput, argument


class NotTrusted(BadInput):
    """A run folder names a class that may be anybody's code."""


@dataclass(frozen=True)
class RunOrigin:
    """A run folder whose names are being resolved."""

    folder: Path
    places: Callable[[], Mapping[str, str]]
    """Read, by the name of a class, the folder from which this user imported it for the run."""
    file: str = "config.yaml"
    """The file of the folder that holds the names."""
    advice: str = ""
    """Advice for trusting the names; empty where the caller has an argument `trust`."""


_reading: ContextVar[RunOrigin | None] = ContextVar("reading", default=None)
_working_folder: str | None = None
_owned = False
_place_of: dict[str, str] = {}
"""By module that a run named: the folder it was imported from."""


def allow_working_folder() -> None:
    """Let names in recipes and on the command line lead to the working folder."""
    global _working_folder
    if _working_folder in sys.path:  # of an earlier command in this process
        sys.path.remove(_working_folder)
    _working_folder = os.getcwd()


def own_the_process() -> None:
    """Take the working folder off the path, here and in all Python processes that are started from here."""
    global _owned
    _owned = True
    sys.path[:] = [entry for entry in sys.path if entry and os.path.abspath(entry) != os.getcwd()]
    os.environ["PYTHONSAFEPATH"] = "1"


def owns_the_process() -> bool:
    """Return whether this process was started for one command."""
    return _owned


@contextmanager
def names_of_run(origin: RunOrigin) -> Iterator[None]:
    """Resolve names as those of a run folder."""
    token = _reading.set(origin)
    try:
        yield
    finally:
        _reading.reset(token)


def import_for(name: str, kind: str) -> ModuleType:
    """Import the module of a class, given the class's import path.  NotTrusted if a run folder must not lead there."""
    module = name.rpartition(".")[0]
    origin = _reading.get()
    if origin is None:
        if module not in sys.modules and _working_folder is not None and _working_folder not in sys.path:
            sys.path.append(_working_folder)
        return importlib.import_module(module)
    if module in sys.modules:
        _refuse_two_places(name, module, origin)
        return sys.modules[module]
    path = _installed_path(origin.folder)
    place = None
    if not is_installed(module, origin.folder):
        place = origin.places().get(name)
        if place is None or not _is_found(module, [*path, place]):
            missing = "not installed" if place is None else f"neither installed nor in {place}"
            advice = origin.advice or f"add {argument('trust', True)} to run code from this folder"
            raise NotTrusted(f"{origin.folder / origin.file} names the {kind} {name}, which is {missing}: {advice}")
        _place_of[module] = place
    return _import_along(module, path if place is None else [*path, place])


def is_installed(module: str, run: Path) -> bool:
    """Return whether a module belongs to a package that is found without the working folder and those around a run.

    Modules of Python itself do not count: they hold no classes for a run, and importing some of them has effects.
    """
    return module.partition(".")[0] not in sys.stdlib_module_names and _is_found(module, _installed_path(run))


def is_importable(module: str) -> bool:
    """Return whether a new process with the path of this one would import a loaded module from the same file."""
    return _is_found(module, sys.path)


def place_of_class(name: str) -> str | None:
    """Return the folder on the path that a loaded class was imported from; None if it was not imported from a file."""
    module, _, last = name.rpartition(".")
    file = getattr(sys.modules.get(module), "__file__", None)
    if module == "__main__" or file is None or not isinstance(getattr(sys.modules[module], last, None), type):
        return None
    folders = Path(os.path.abspath(file)).parents
    return str(folders[module.count(".") + (Path(file).stem == "__init__")])


def _installed_path(run: Path) -> list[str]:
    """Return the path without the working folder, the running script's folder and every folder that the run lies in."""
    script = getattr(sys.modules["__main__"], "__file__", None)
    excluded = {Path.cwd(), run.resolve(), *run.resolve().parents}
    if script is not None:
        excluded.add(Path(script).resolve().parent)
    return [entry for entry in sys.path if Path(entry).resolve() not in excluded]


def _is_found(module: str, path: Sequence[str]) -> bool:
    """Look for the package of a module along a path, without importing anything."""
    top = module.partition(".")[0]
    if "__main__" in module.split("."):
        return False  # importing it would start a program
    with _path_set_to(path):
        spec = next(filter(None, (_spec_by(finder, top) for finder in sys.meta_path)), None)
    loaded = getattr(sys.modules.get(top), "__spec__", None)
    return spec is not None and (loaded is None or loaded.origin == spec.origin)


def _spec_by(finder: object, top: str) -> ModuleSpec | None:
    find_spec: Callable[[str, None], ModuleSpec | None] | None = getattr(finder, "find_spec", None)
    return find_spec(top, None) if find_spec is not None else None


def _import_along(module: str, path: Sequence[str]) -> ModuleType:
    """Import a module along a path of its own; the entries of that path stay importable, after all others."""
    with _path_set_to(path):
        found = importlib.import_module(module)
    sys.path.extend(entry for entry in path if entry not in sys.path)  # for imports inside functions
    return found


@contextmanager
def _path_set_to(path: Sequence[str]) -> Iterator[None]:
    before = list(sys.path)
    sys.path[:] = path
    try:
        yield
    finally:
        added = [entry for entry in sys.path if entry not in path and entry not in before]
        sys.path[:] = [*before, *added]


def _refuse_two_places(name: str, module: str, origin: RunOrigin) -> None:
    """Raise BadInput if an earlier run took the module from another folder: Python imports a module once."""
    if module in _place_of:
        place = origin.places().get(name, _place_of[module])
        if place != _place_of[module]:
            raise BadInput(
                f"{origin.folder} takes {name} from {place}, an earlier run took it from {_place_of[module]}:"
                " read them one at a time"
            )
