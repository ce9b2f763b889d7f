"""Recipes: plain mappings <-> frozen dataclasses.

A part that can be chosen is written `{name: rope, base: 500000}`, or just `rope`; the name is a registered one
or the import path of a class of yours.  Every complaint is one line that says where in the recipe it belongs.
"""

import dataclasses
import functools
import inspect
import math
import numbers
import types
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from longreach.config.field_docs import field_docs
from longreach.config.registry import expand, kind_of, lookup, name_of, nearest
from longreach.config.spans import LARGEST, Lengths, Span
from longreach.errors import BadInput
from longreach.system.imports import NotTrusted

T = TypeVar("T")
Plain = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Bounds:
    """The range of a number, both ends included: `steps: Annotated[int, Bounds(1)]`."""

    low: int | float = -LARGEST
    high: int | float = LARGEST

    def check(self, value: int | float, where: str) -> None:
        """Raise BadInput for a number outside the range."""
        if value < self.low:
            negative = "must not be negative" if self.low == 0 else f"must be at least {self.low}"
            raise BadInput(f"{where} {negative}, got {_shown(value)}")
        if value > self.high:
            raise BadInput(f"{where} must be at most {self.high}, got {_shown(value)}")


Positive = Annotated[int, Bounds(1)]
"""A whole number from 1."""
Natural = Annotated[int, Bounds(0)]
"""A whole number from 0."""
Seed = Annotated[int, Bounds(0, 2**63 - 1)]
"""The seed of a random stream."""
Share = Annotated[float, Bounds(0, 1)]
"""A share or a probability."""
Nonnegative = Annotated[float, Bounds(0, math.inf)]
"""A number from 0."""
LARGEST_ID = 2**30
"""The largest position ID.  Relabelling draws among 5/4 times as many numbers, and `Draws.below` among 2**31."""
PositionId = Annotated[int, Bounds(0, LARGEST_ID)]
"""A position ID."""
Size = Annotated[int, Bounds(high=1_000_000)]
"""The size of a list or a table, every entry of which lies in memory."""


class Settings:
    """Base of all classes that a recipe fills: frozen dataclasses, whose fields are its settings.

    Every field is converted and checked when an object is made, before the `__post_init__` of its class.  Python may
    write what a recipe may: `RunConfig(task="copy", train={"lengths": "1..6"})`.  A value that does not fit raises
    BadInput, which is a ValueError.  Numbers must be finite, and whole ones within `_bounds` unless their type states
    others: `Annotated[int, Bounds(1, 10)]`.
    """

    _bounds: ClassVar[Bounds] = Bounds()
    """The range of every whole number whose type states none."""

    def __post_init__(self) -> None:
        """Check what the types of the fields do not say; the fields are converted already."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Let `__post_init__` convert the fields first, whether or not a subclass calls its base's."""
        super().__init_subclass__(**options)
        own = cls.__post_init__
        if hasattr(own, "converts"):
            return  # inherited

        @functools.wraps(own)
        def convert_first(self: Settings) -> None:
            if type(self).__post_init__ is convert_first:  # a subclass that calls it has converted them
                _convert_fields(self)
            own(self)

        convert_first.converts = True  # type: ignore[attr-defined]
        cls.__post_init__ = convert_first  # type: ignore[method-assign]


def _refuse_ignored_fields(cls: type) -> None:
    """Raise BadInput if a class states fields but is no dataclass, so that they would be ignored."""
    for base in cls.__mro__:
        if not issubclass(base, Settings) or base is Settings or "__dataclass_params__" in vars(base):
            continue
        for name, hint in inspect.get_annotations(base).items():
            is_constant = "ClassVar" in (hint if isinstance(hint, str) else str(get_origin(hint) or hint))
            if not is_constant and not any(hasattr(above, name) for above in base.__mro__[1:]):
                raise BadInput(
                    f"{name_of(base)} lacks @dataclass(frozen=True, kw_only=True), so its field {name} is ignored"
                )


def _convert_fields(settings: Settings) -> None:
    """Convert all fields of an object in place."""
    cls: Any = type(settings)
    _refuse_ignored_fields(cls)
    fields = cls.__dataclass_fields__
    for name, hint in _hints(cls).items():
        value = getattr(settings, name)
        converted = _convert_field(fields[name], hint, value, f"{cls.__name__}.{name}", cls._bounds)
        if converted is not value:
            object.__setattr__(settings, name, converted)


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    """Return the types of a dataclass's fields, except those that no recipe can write (a function, a tensor)."""
    try:
        hints = get_type_hints(cls, include_extras=True)
    except NameError:  # a type that only type checkers import: what the bases say holds all the same
        hints = {name: hint for base in reversed(cls.__bases__) for name, hint in _hints(base).items()}
    names = [field.name for field in dataclasses.fields(cls)] if dataclasses.is_dataclass(cls) else []
    return {name: hints[name] for name in names if name in hints and _is_plain(hints[name])}


def _is_plain(hint: Any) -> bool:
    """Return whether `_convert` knows a type."""
    origin, options = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _is_plain(options[0])
    if origin in (Union, types.UnionType, list, tuple, dict, Mapping):
        return all(option is Ellipsis or _is_plain(option) for option in options)
    is_class = isinstance(hint, type) and origin is None and not getattr(hint, "_is_protocol", False)
    return origin is Literal or hint is Any or is_class


def build(cls: type[T], values: object, where: str = "") -> T:
    """An object of a dataclass from a plain mapping; what is not given takes its default."""
    if not isinstance(values, Mapping):
        raise BadInput(f"{where or cls.__name__}: expected a mapping of settings, got {_shown(values)}")
    _refuse_ignored_fields(cls)
    hints = get_type_hints(cls, include_extras=True)
    fields = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    bounds = cls._bounds if issubclass(cls, Settings) else Bounds()
    made = {}
    for key, value in values.items():
        place = f"{where}.{key}" if where else str(key)
        if key not in fields:
            raise BadInput(f"{place}: unknown key{nearest(str(key), fields)}")
        made[key] = _convert_field(fields[key], hints[key], value, place, bounds)
    for name, field in fields.items():
        if name not in made and field.default is field.default_factory is dataclasses.MISSING:
            raise BadInput(f"{where}.{name} is missing" if where else f"{name} is missing")
    try:
        return cls(**made)
    except BadInput:
        raise
    except (ValueError, TypeError) as error:  # what __post_init__ found
        raise BadInput(str(error)) from error


def build_part(base: type[T], values: object, where: str) -> T:
    """Build an object of one of a kind's classes, from `{name: ..., ...}` or a name."""
    if isinstance(values, str):
        values = {"name": values}
    if not isinstance(values, Mapping) or not isinstance(values.get("name"), str):
        raise BadInput(f"{where}: expected a name, or a mapping with a name, got {_shown(values)}")
    try:
        values = expand(kind_of(base) or "", values)
        chosen = lookup(kind_of(base) or "", values["name"])
    except NotTrusted:
        raise  # it says where the name stands
    except BadInput as error:
        raise BadInput(f"{where}: {error}") from error
    if not issubclass(chosen, base):
        raise BadInput(f"{where}: {values['name']} is not a {base.__name__}")
    return build(chosen, {key: value for key, value in values.items() if key != "name"}, where)


def to_plain(value: Any) -> Any:
    """The inverse of `build`: mappings, lists, numbers and strings only."""
    if isinstance(value, Span | Lengths):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        plain = {f.name: to_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        chosen_by_name = any(kind_of(base) for base in type(value).__mro__)
        return {"name": name_of(type(value)), **plain} if chosen_by_name else plain
    if isinstance(value, Mapping):
        return {key: to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    return value


def strings_in(value: Any) -> Iterator[str]:
    """Yield every string among the values of plain settings."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from strings_in(item)


def merge(base: Mapping[str, Any], changes: Mapping[str, Any]) -> Plain:
    """`base` with `changes` on top.  A change that names a part anew, or is empty, replaces that part whole."""
    merged = dict(base)
    for key, change in changes.items():
        old = merged.get(key)
        if isinstance(old, str) and isinstance(change, Mapping) and "name" not in change:
            old = {"name": old}
        if isinstance(old, Mapping) and isinstance(change, Mapping) and change and not _renames(old, change):
            merged[key] = merge(old, change)
        else:
            merged[key] = change
    return merged


def _renames(old: Mapping[str, Any], change: Mapping[str, Any]) -> bool:
    return "name" in old and "name" in change and old["name"] != change["name"]


def nested(path: str, value: Any) -> Plain:
    """`train.lr`, 1e-3  ->  {train: {lr: 1e-3}}."""
    for key in reversed(path.split(".")):
        value = {key: value}
    return value  # type: ignore[no-any-return]


def flatten(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """`{train: {steps: 5}, ids: {name: coupled}}`  ->  `{train.steps: 5, ids: coupled}`."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        # the name of a part stands for the part, as in a recipe
        path = prefix if key == "name" and prefix else f"{prefix}.{key}" if prefix else str(key)
        flat |= flatten(value, path) if isinstance(value, Mapping) else {path: value}
    return flat


@dataclasses.dataclass(frozen=True)
class FieldHelp:
    """One setting of a dataclass, for help texts."""

    name: str
    type: str
    default: str
    help: str


def field_help(cls: type) -> list[FieldHelp]:
    """Return the settings of a dataclass with the docstrings below them."""
    helps: dict[str, str] = {}
    for base in reversed(cls.__mro__[:-1]):
        helps |= field_docs(base)
    found, hints = [], get_type_hints(cls)
    for field in dataclasses.fields(cls):
        if field.default is not dataclasses.MISSING:
            default = str(to_plain(field.default))
        elif field.default_factory is not dataclasses.MISSING:
            plain = to_plain(field.default_factory())
            default = str(plain.get("name", "") if isinstance(plain, dict) else plain)
        else:
            default = "required"
        found.append(FieldHelp(field.name, _type_name(hints[field.name]), default, helps.get(field.name, "")))
    return found


def _convert_field(field: "dataclasses.Field[Any]", hint: Any, value: Any, where: str, bounds: Bounds) -> Any:
    default = field.default_factory
    if kind_of(hint) and isinstance(value, Mapping) and "name" not in value and callable(default):
        value = {"name": name_of(type(default())), **value}  # settings without a name are the default's
    return _convert(hint, value, where, bounds)


def _convert(hint: Any, value: Any, where: str, bounds: Bounds) -> Any:
    """Return a value as the type its field asks for.  Nothing is guessed: 3.5 is no int, "no" no bool.

    `bounds` are those of whole numbers whose type states no others.
    """
    if hint is int and isinstance(value, numbers.Integral) and not isinstance(value, bool):
        bounds.check(int(value), where)
        return int(value)
    if hint is float and isinstance(value, numbers.Real) and not isinstance(value, bool):
        return _finite(value, where)
    origin, options = get_origin(hint), get_args(hint)
    if origin is Annotated:
        stated = next((extra for extra in options[1:] if isinstance(extra, Bounds)), bounds)
        converted = _convert(options[0], value, where, stated)
        if type(converted) is float and stated is not bounds:
            stated.check(converted, where)
        return converted
    if kind_of(hint):
        return value if isinstance(value, hint) else build_part(hint, value, where)
    if hint in (Span, Lengths):
        try:
            return hint.parse(value)
        except ValueError as error:
            raise BadInput(f"{where}: {error}") from error
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return value if isinstance(value, hint) else build(hint, value, where)
    if hint is Any:
        return value
    if origin in (Union, types.UnionType):
        choices = [option for option in options if option is not type(None)]
        if len(choices) == 1 and value is not None:
            return _convert(choices[0], value, where, bounds)  # so that its own complaint is heard
        for option in options:
            try:
                return _convert(option, value, where, bounds)
            except NotTrusted:
                raise
            except BadInput:
                continue
    elif origin is Literal:
        if value in options:
            return value
        if isinstance(value, str):
            raise BadInput(f"{where}: unknown value {_shown(value)}{nearest(value, map(str, options))}")
    elif origin in (list, tuple) and isinstance(value, list | tuple):
        return origin(_convert(options[0], item, f"{where}[{index}]", bounds) for index, item in enumerate(value))
    elif origin in (dict, Mapping) and isinstance(value, Mapping):
        return {str(key): _convert(options[1], item, f"{where}.{key}", bounds) for key, item in value.items()}
    elif hint is type(None) and value is None:
        return None
    elif isinstance(hint, type) and origin is None and hint not in (int, float) and isinstance(value, hint):
        return value
    raise BadInput(f"{where}: expected {_type_name(hint)}, got {_shown(value)}")


def _finite(value: Any, where: str) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise BadInput(f"{where} must be a finite number, got {_shown(value)}")
    return value if type(value) is float else number


def _shown(value: object) -> str:
    """Return a value as an error message shows it: in at most 80 characters."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no number of more than 4300 digits
        text = f"a {type(value).__name__} with too many digits"
    return text if len(text) <= 80 else f"{text[:77]}..."


def _type_name(hint: Any) -> str:
    """Return a type as a user of recipes reads it: the kind of a part, `mapping`, `list of int`, `float | none`."""
    origin, options = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _type_name(options[0])
    if origin is Literal:
        return " | ".join(map(str, options))
    if origin in (Union, types.UnionType):
        return " | ".join(map(_type_name, options))
    if origin in (list, tuple):
        return f"list of {_type_name(options[0])}"
    if hint is type(None):
        return "none"
    if hint in (Span, Lengths):
        return "range" if hint is Span else "lengths"
    if origin in (dict, Mapping) or dataclasses.is_dataclass(hint):
        return kind_of(hint) or "mapping"
    return kind_of(hint) or (hint.__name__ if isinstance(hint, type) else "value")
