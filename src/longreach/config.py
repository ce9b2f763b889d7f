"""Recipes: plain mappings <-> frozen dataclasses.

A part that can be chosen is written `{name: rope, base: 500000}`, or just `rope`; the name is a registered one
or the import path of a class of yours.  Every complaint is one line that says where in the recipe it belongs.
"""

import dataclasses
import re
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import docstring_parser
import yaml

try:
    from yaml import CSafeLoader as SafeLoader  # ten times as fast
except ImportError:  # a PyYAML that was built without libyaml
    from yaml import SafeLoader  # type: ignore[assignment]

from longreach.errors import BadInput
from longreach.imports import NotTrusted
from longreach.registry import kind_of, lookup, name_of, nearest
from longreach.spans import Lengths, Span

T = TypeVar("T")
Plain = dict[str, Any]


def build(cls: type[T], values: object, where: str = "") -> T:
    """An object of a dataclass from a plain mapping; what is not given takes its default."""
    if not isinstance(values, Mapping):
        raise BadInput(f"{where or cls.__name__}: expected a mapping of settings, got {values!r}")
    hints = get_type_hints(cls)
    fields = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    made = {}
    for key, value in values.items():
        place = f"{where}.{key}" if where else str(key)
        if key not in fields:
            raise BadInput(f"{place}: unknown key{nearest(str(key), fields)}")
        default = fields[key].default_factory
        if kind_of(hints[key]) and isinstance(value, Mapping) and "name" not in value and callable(default):
            value = {"name": name_of(type(default())), **value}  # settings without a name are the default's
        made[key] = _convert(hints[key], value, place)
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
        raise BadInput(f"{where}: expected a name, or a mapping with a name, got {values!r}")
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
    """A recipe file.  Tags are refused: nothing in a file can name code to run while it is read."""
    try:
        content = yaml.load(path.read_text(), Loader=_RecipeLoader)
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} is not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise BadInput(f"{path} must hold a mapping of settings")
    return content


def yaml_lines(path: Path) -> dict[tuple[str | int, ...], int]:
    """In which line each key and each item of a file that `read_yaml` accepts stands: (grid, ids, 1) -> 7."""
    found: dict[tuple[str | int, ...], int] = {}

    def walk(node: yaml.Node, place: tuple[str | int, ...], around: tuple[yaml.Node, ...] = ()) -> None:
        if node in around:
            raise BadInput(f"{path}:{node.start_mark.line + 1}: this part contains itself")
        children: list[tuple[str | int, yaml.Node, yaml.Node]] = []
        if isinstance(node, yaml.MappingNode):
            children = [(str(key.value), key, value) for key, value in node.value]
        elif isinstance(node, yaml.SequenceNode):
            children = [(index, item, item) for index, item in enumerate(node.value)]
        for name, mark, child in children:
            found[*place, name] = mark.start_mark.line + 1
            walk(child, (*place, name), (*around, node))

    walk(yaml.compose(path.read_text(), Loader=_RecipeLoader), ())
    return found


def read_value(text: str) -> Any:
    """The value of a flag, read as a recipe would."""
    try:
        return yaml.load(text, Loader=_RecipeLoader)
    except yaml.YAMLError:
        return text


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

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.YAMLError(f"the key {key!r} stands twice in line {node.start_mark.line + 1} and below")
        return super().construct_mapping(node, deep)


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


def _convert(hint: Any, value: Any, where: str) -> Any:
    """A value of a recipe as the type its field asks for.  Nothing is guessed: 3.5 is no int, "no" no bool."""
    origin, options = get_origin(hint), get_args(hint)
    if kind_of(hint):
        return build_part(hint, value, where)
    if hint in (Span, Lengths):
        try:
            return hint.parse(value)
        except ValueError as error:
            raise BadInput(f"{where}: {error}") from error
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return build(hint, value, where)
    if hint is Any:
        return value
    if origin in (Union, types.UnionType):
        choices = [option for option in options if option is not type(None)]
        if len(choices) == 1 and value is not None:
            return _convert(choices[0], value, where)  # so that its own complaint is heard
        for option in options:
            try:
                return _convert(option, value, where)
            except NotTrusted:
                raise
            except BadInput:
                continue
    elif origin is Literal:
        if value in options:
            return value
        if isinstance(value, str):
            raise BadInput(f"{where}: unknown value {value!r}{nearest(value, map(str, options))}")
    elif origin in (list, tuple) and isinstance(value, list | tuple):
        return origin(_convert(options[0], item, f"{where}[{index}]") for index, item in enumerate(value))
    elif origin in (dict, Mapping) and isinstance(value, Mapping):
        return {str(key): _convert(options[1], item, f"{where}.{key}") for key, item in value.items()}
    elif hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    elif hint is type(None) and value is None:
        return None
    elif isinstance(hint, type) and origin is None and type(value) is hint:
        return value
    raise BadInput(f"{where}: expected {_type_name(hint)}, got {value!r}")


def _type_name(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return " | ".join(map(str, get_args(hint)))
    return hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint).replace("typing.", "")
