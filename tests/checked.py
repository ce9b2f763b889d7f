"""Fast checks of types and shapes in the place of those of `jaxtyping.jaxtyped`.

jaxtyping binds the arguments of each call and checks them twice.  Here beartype checks each call once, and only
functions whose annotations have axes push the sizes of axes.
"""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from functools import wraps
from typing import Any, get_args, get_type_hints

import jaxtyping
from beartype import beartype
from jaxtyping import AbstractArray, config

_jaxtyped = jaxtyping.jaxtyped
_axes = _jaxtyped("context")


def install() -> None:
    """Replace the decorator that the import hook of jaxtyping inserts."""
    jaxtyping.jaxtyped = lambda *, typechecker: checked


def checked(made: Any) -> Any:
    """Return a function, a method or a dataclass with checks of its annotations."""
    if isinstance(made, classmethod | staticmethod):
        return type(made)(checked(made.__func__))
    if isinstance(made, property):
        return property(*(each and checked(each) for each in (made.fget, made.fset, made.fdel)))
    if isinstance(made, type):
        if is_dataclass(made) and "__init__" in vars(made) and not hasattr(made.__init__, "__wrapped__"):
            made.__init__ = checked(made.__init__)
        return made
    return _check_calls(made) if made.__annotations__ else made


def _check_calls(function: Callable) -> Callable:
    hints = {name: _resolved(hint, function.__globals__) for name, hint in function.__annotations__.items()}
    shapes = [shape for hint in hints.values() for shape in _shapes(hint)]
    if inspect.isgeneratorfunction(function) or any("{" in shape.dim_str for shape in shapes):
        return _jaxtyped(function, typechecker=beartype)  # "{width}" is the value of an argument
    written, function.__annotations__ = function.__annotations__, hints
    try:
        checking = beartype(function)
    finally:
        function.__annotations__ = written

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        return (function if config.jaxtyping_disable else checking)(*args, **kwargs)

    @wraps(function)
    def call_with_axes(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        with _axes:
            return call(*args, **kwargs)

    return call_with_axes if shapes else call


def _resolved(hint: Any, names: dict[str, Any]) -> Any:
    """Return the type that an annotation names, or Any for a name that is not defined yet, as jaxtyping does."""

    def holder(value):
        return value

    holder.__annotations__ = {"value": hint}
    try:
        return get_type_hints(holder, names, include_extras=True)["value"]
    except Exception:
        return Any


def _shapes(hint: Any) -> Iterator[type[AbstractArray]]:
    if isinstance(hint, type) and issubclass(hint, AbstractArray):
        yield hint
    for part in get_args(hint):
        yield from _shapes(part)
