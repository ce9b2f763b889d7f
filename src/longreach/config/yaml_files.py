"""YAML files as plain mappings: no tag runs code, and no content exhausts the stack or the memory."""

import dataclasses
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

try:
    from yaml import CSafeLoader as SafeLoader  # ten times as fast
except ImportError:  # a PyYAML that was built without libyaml
    from yaml import SafeLoader  # type: ignore[assignment]

from longreach.config.settings import Plain
from longreach.errors import BadInput

_LARGEST = 4 << 20
"""Bytes of a YAML file."""
_DEEPEST = 64
"""Levels of nesting in YAML; the parser recurses in C, and thousands of levels overflow its stack."""
_MOST_VALUES = 100_000
"""Keys, items and scalars of a YAML file, each counted as often as an alias repeats it."""
_SCALARS = {"int": "a whole number of 64 bits", "float": "a number", "bool": "true or false"}


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
