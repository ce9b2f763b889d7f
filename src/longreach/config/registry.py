"""One table per kind of part: name -> class.  A miss suggests the nearest names."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from longreach.errors import BadInput
from longreach.errors import nearest as nearest
from longreach.system.imports import NotTrusted, import_for

T = TypeVar("T")

_TABLES: dict[str, dict[str, type]] = {}
_BASES: dict[type, str] = {}
_SHORT: dict[str, dict[str, dict[str, Any]]] = {}
"""Short names: kind and short name -> the full name of a class, and its settings."""


def kind(name: str) -> Callable[[type[T]], type[T]]:
    """Class decorator for the base class of a kind: recipes choose among its subclasses by name."""

    def add(cls: type[T]) -> type[T]:
        _TABLES.setdefault(name, {})
        _BASES[cls] = name
        return cls

    return add


def kind_of(base: object) -> str | None:
    """The kind whose base class this is."""
    return _BASES.get(base) if isinstance(base, type) else None


def register(kind: str, name: str) -> Callable[[type[T]], type[T]]:
    """Class decorator: makes the class available as `name` in recipes, lists and tests."""

    def add(cls: type[T]) -> type[T]:
        table = _TABLES.setdefault(kind, {})
        if name in table and table[name].__qualname__ != cls.__qualname__:
            raise ValueError(f"{kind} {name!r} is already registered by {table[name].__qualname__}")
        table[name] = cls
        return cls

    return add


def shorten(kind: str, short: str, name: str, **settings: Any) -> None:
    """Let a short name stand for a registered name with some settings, such as `yarn` for `scaled_rope`."""
    _SHORT.setdefault(kind, {})[short] = {"name": name, **settings}


def expand(kind: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a part with its short name written out."""
    full = _SHORT.get(kind, {}).get(values["name"], {"name": values["name"]})
    for key in full.keys() & (values.keys() - {"name"}):
        if values[key] != full[key]:
            raise BadInput(f"{kind} {values['name']!r} has {key}={full[key]}, and {key}={values[key]} was given")
    return {**values, **full}


def kinds() -> list[str]:
    return sorted(_TABLES)


def entries(kind: str) -> dict[str, type]:
    """All registered classes of a kind, by name."""
    if kind not in _TABLES:
        raise BadInput(f"unknown kind {kind!r}{nearest(kind, _TABLES)}")
    return dict(_TABLES[kind])


def lookup(kind: str, name: str) -> type:
    """The class registered as `name`, or, if the name has a dot, the class at that import path."""
    table = entries(kind)
    if name in table:
        return table[name]
    if "." in name:
        return _import_class(kind, name)
    raise BadInput(f"unknown {kind} {name!r}{nearest(name, [*table, *_SHORT.get(kind, {})])}")


def name_of(cls: type) -> str:
    """The inverse of `lookup`: a registered name, or the import path of a class from outside."""
    for table in _TABLES.values():
        for name, registered in table.items():
            if registered is cls:
                return name
    return f"{cls.__module__}.{cls.__qualname__}"


def _import_class(kind: str, path: str) -> type:
    try:
        found = getattr(import_for(path, kind), path.rpartition(".")[2])
    except NotTrusted:
        raise
    except Exception as error:  # whatever a module from outside does when it is imported
        raise BadInput(f"cannot import {kind} {path!r}: {error}") from error
    if not isinstance(found, type):
        raise BadInput(f"{kind} {path!r} is not a class")
    return found
