"""Recipes: plain mappings <-> frozen dataclasses.

A part that can be chosen is written `{name: rope, base: 500000}`, or just `rope`; the name is a registered one
or the import path of a class of yours.  Every complaint is one line that says where in the recipe it belongs.
"""

import dataclasses
import functools
import math
import numbers
import re
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import docstring_parser
import yaml

try:
    from yaml import CSafeLoader as SafeLoader  # ten times as fast
except ImportError:  # a PyYAML that was built without libyaml
    from yaml import SafeLoader  # type: ignore[assignment]

from longreach.errors import BadInput
from longreach.imports import NotTrusted
from longreach.registry import kind_of, lookup, name_of, nearest
from longreach.spans import LARGEST, Lengths, Span

T = TypeVar("T")
Plain = dict[str, Any]

_LARGEST = 4 << 20
"""Bytes of a YAML file."""
_DEEPEST = 64
"""Levels of nesting in YAML; the parser recurses in C, and thousands of levels overflow its stack."""
_MOST_VALUES = 100_000
"""Keys, items and scalars of a YAML file, each counted as often as an alias repeats it."""
_SCALARS = {"int": "a whole number of 64 bits", "float": "a number", "bool": "true or false"}


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


def _convert_fields(settings: Settings) -> None:
    """Convert all fields of an object in place."""
    cls: Any = type(settings)
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
    """An object of one of a kind's classes, from `{name: ..., ...}` or a name."""
    if isinstance(values, str):
        values = {"name": values}
    if not isinstance(values, Mapping) or not isinstance(values.get("name"), str):
        raise BadInput(f"{where}: expected a name, or a mapping with a name, got {_shown(values)}")
    try:
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


def read_yaml(path: Path) -> Plain:
    """Return the mapping in a YAML file; raise BadInput that names the file for anything else.

    No tag of a file can name code to run, and no content exhausts the stack or the memory.
    """
    content = _parse(path, yaml.load)
    if not isinstance(content, dict):
        raise BadInput(f"{path} must hold a mapping of settings")
    return content


def yaml_lines(path: Path) -> dict[tuple[str | int, ...], int]:
    """Return the line of each key and each item of a YAML file: (grid, ids, 1) -> 7."""
    found: dict[tuple[str | int, ...], int] = {}

    def walk(node: yaml.Node | None, place: tuple[str | int, ...]) -> None:
        children: list[tuple[str | int, yaml.Node, yaml.Node]] = []
        if isinstance(node, yaml.MappingNode):
            children = [(str(key.value), key, value) for key, value in node.value]
        elif isinstance(node, yaml.SequenceNode):
            children = [(index, item, item) for index, item in enumerate(node.value)]
        for name, mark, child in children:
            found[*place, name] = mark.start_mark.line + 1
            walk(child, (*place, name))

    walk(_parse(path, yaml.compose), ())
    return found


def read_value(text: str) -> Any:
    """Return the value of a flag, read as a recipe would; text that is not YAML is itself the value."""
    try:
        _refuse_excess(text)
        return yaml.load(text, Loader=_RecipeLoader)
    except yaml.YAMLError:
        return text


def _parse(path: Path, parse: Callable[..., Any]) -> Any:
    """Apply `yaml.load` or `yaml.compose` to a file that passes `_refuse_excess`."""
    try:
        with path.open("rb") as file:
            text = file.read(_LARGEST + 1).decode()
        _refuse_excess(text)
        return parse(text, Loader=_RecipeLoader)
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} is not valid YAML: {' '.join(str(error).split())[:300]}") from error


def _refuse_excess(text: str) -> None:
    """Raise YAMLError for a text that is too large, too deep, or too long once its aliases are written out.

    The parser yields one event at a time, so the check needs no recursion.
    """
    if len(text) > _LARGEST:
        raise yaml.YAMLError(f"it has more than {_LARGEST >> 20} MiB")
    inside: list[_Size] = [_Size(None)]
    anchored: dict[str, _Size] = {}
    for event in yaml.parse(text, Loader=_RecipeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            inside.append(_Size(event.anchor))
            part = _Size(None, values=0)
        elif isinstance(event, yaml.CollectionEndEvent):
            part = inside.pop()
            anchored |= {part.anchor: part} if part.anchor else {}
        elif isinstance(event, yaml.ScalarEvent):
            part = _Size(event.anchor)
            anchored |= {event.anchor: part} if event.anchor else {}
        elif isinstance(event, yaml.AliasEvent):
            if any(around.anchor == event.anchor for around in inside):
                raise yaml.YAMLError(f"line {_line(event)}: this part contains itself")
            part = anchored.get(str(event.anchor), _Size(None))  # the loader refuses an alias without an anchor
        else:
            continue
        around = inside[-1]
        around.values += part.values
        around.depth = max(around.depth, part.depth + 1)
        if len(inside) + around.depth > _DEEPEST:
            raise yaml.YAMLError(f"line {_line(event)}: more than {_DEEPEST} levels of nesting")
        if around.values > _MOST_VALUES:
            raise yaml.YAMLError(f"line {_line(event)}: more than {_MOST_VALUES} values, aliases included")


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 1


@dataclasses.dataclass
class _Size:
    """Values and levels of a part of a YAML file, with every alias replaced by the part that it names."""

    anchor: str | None
    values: int = 1
    depth: int = 0


def dump_yaml(values: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(values), sort_keys=False, width=120)


@dataclasses.dataclass(frozen=True)
class FieldHelp:
    """One setting of a dataclass, for help texts."""

    name: str
    type: str
    default: str
    help: str


def field_help(cls: type) -> list[FieldHelp]:
    """The settings of a dataclass with the docstrings below them."""
    helps: dict[str, str] = {}
    for base in reversed(cls.__mro__[:-1]):
        for parameter in docstring_parser.parse_from_object(base).params:
            helps[parameter.arg_name] = parameter.description or ""
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


class _RecipeLoader(SafeLoader):
    """YAML in which 1e-4 is a number, 1:8 is not a sexagesimal one, and no key stands twice."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Construct any value; raise YAMLError for a scalar that its tag does not fit."""
        kind = node.tag.rpartition(":")[2]
        try:
            value = super().construct_object(node, deep)
            if kind == "int" and not -(1 << 63) <= value < 1 << 63:
                raise OverflowError
        except (ValueError, ArithmeticError, LookupError) as error:
            line = node.start_mark.line + 1
            raise yaml.YAMLError(f"line {line}: {node.value!r:.40} is not {_SCALARS.get(kind, kind)}") from error
        return value

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for part, _ in node.value:
            key, line = self.construct_object(part, deep=True), part.start_mark.line + 1
            if isinstance(key, list | dict):
                raise yaml.YAMLError(f"line {line}: a list or a mapping cannot be a key")
            if key in seen:
                raise yaml.YAMLError(f"line {line}: the key {key!r:.80} stands twice")
            seen.add(key)
        return super().construct_mapping(node, deep)


_PLAIN = (":null", ":bool", ":int", ":float", ":str", ":seq", ":map")
_RecipeLoader.yaml_constructors = {
    tag: construct
    for tag, construct in SafeLoader.yaml_constructors.items()
    if tag is None or tag.endswith(_PLAIN)  # dates, bytes and sets are no settings
}
_RecipeLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith((":int", ":float", ":timestamp"))]
    for first, resolvers in SafeLoader.yaml_implicit_resolvers.items()
}
_RecipeLoader.add_implicit_resolver(
    "tag:yaml.org,2002:int", re.compile(r"[-+]?(?:0|[1-9][0-9_]*)$"), list("-+0123456789")
)
_RecipeLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(
        r"[-+]?(?:(?:0|[1-9][0-9_]*)(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?|\.[0-9]+(?:[eE][-+]?[0-9]+)?|\.inf|\.nan)$"
    ),
    list("-+.0123456789"),
)


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
