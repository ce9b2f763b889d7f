"""Files of scores: the CSV and JSON files that `report` and `eval --out` write, and those kept in `results/`."""

import csv
import io
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, get_args

from longreach.config import build
from longreach.errors import BadInput
from longreach.evaluation import By, Card, Loss, Measure, Score, from_json, losses_from_json
from longreach.system.files import naming_damage, parse_json

_COUNTS = {"length", "metric", "samples"}
_LOSS = {"by", "size", "nats"}
_LOSS_NUMBERS = {"low", "high", "tokens", "documents"}
_MEASURE = {"measure", "length", "mean"}
_DERIVED = {"rate", "low", "high", "exact_match", "run", "commit", "device", "date", "command", "recipe", "title"}
"""Columns that follow from others, or that say where a row came from."""
_TRAINED = {"trained_to", "trained_from"}
_MEASURE_FIELDS = {one.name for one in fields(Measure)}

Model = tuple[str, int]
"""Variant and seed."""


@dataclass(frozen=True)
class FileRows:
    """Rows of a file that share a card."""

    card: Card | None
    scores: dict[Model, list[Score]] = field(default_factory=dict)
    losses: dict[Model, list[Loss]] = field(default_factory=dict)
    measures: dict[Model, list[Measure]] = field(default_factory=dict)
    best: dict[Model, list[Measure]] = field(default_factory=dict)
    """Measures of the chosen heads."""
    trained: dict[Model, tuple[int, int]] = field(default_factory=dict)
    commands: dict[Model, dict[str, None]] = field(default_factory=dict)
    """All commands of a model, in order."""

    def models(self) -> list[Model]:
        return list(dict.fromkeys([*self.scores, *self.losses, *self.measures]))


def is_results_file(path: Path) -> bool:
    """Return whether a path names a file of scores and not a folder."""
    return path.is_file() and path.suffix in (".csv", ".json")


def read_results_file(path: Path) -> list[FileRows]:
    """Read a file of scores, losses or measures; raise BadInput if it has none."""
    with naming_damage(path, ""):
        if path.suffix == ".csv":
            parts = [_rows("", None, "", _csv_rows(path.read_text()))]
        else:
            parts = [_rows(*part) for part in _lists(parse_json(path.read_bytes()), "", None, "")]
    parts = [part for part in parts if part.models()]
    if not parts:
        raise BadInput(f"{path} has no scores, losses or measures: no rows with length, metric and samples")
    return parts


def _csv_rows(text: str) -> list[dict[str, Any]]:
    rows = list(csv.DictReader(io.StringIO(text), strict=True))
    if any(None in row.values() for row in rows):
        raise ValueError("a row has fewer cells than the header")
    return rows


def _lists(
    content: Any, name: str, card: Card | None, command: str
) -> Iterator[tuple[str, Card | None, str, list[dict[str, Any]]]]:
    """Yield every list of rows of a JSON file with the name, the card and the command that stand above it."""
    if isinstance(content, Mapping):
        if isinstance(content.get("card"), Mapping):
            card = build(Card, content["card"])
        command = content["command"] if isinstance(content.get("command"), str) else command
        for key, value in content.items():
            yield from _lists(value, name if key in ("scores", "losses", "series", "rows") else key, card, command)
    elif isinstance(content, list) and all(isinstance(row, Mapping) for row in content):
        if content and any(set(content[0]) >= columns for columns in (_COUNTS, _LOSS, _MEASURE)):
            yield name, card, command, [dict(row) for row in content]
        else:
            for part in content:
                yield from _lists(part, name, card, command)


def _rows(name: str, card: Card | None, command: str, rows: list[dict[str, Any]]) -> FileRows:
    trained = None if card is None else tuple(map(int, card.trained_lengths.split("..")))
    part = FileRows(card)
    found: set[tuple[Model, str, int]] = set()
    for number, (row, variant) in enumerate(zip(rows, _variants(name, rows), strict=True), start=1):
        row = {key: value for key, value in row.items() if value not in ("", None)}
        if None in row:
            raise ValueError("a row has more cells than the header")
        key = (variant, _whole(row.pop("seed", 0)))
        row.pop("variant", row.pop("scheme", None))
        if "trained_to" in row:
            part.trained[key] = (_whole(row.get("trained_from", 1)), _whole(row["trained_to"]))
        elif trained is not None:
            part.trained[key] = (trained[0], trained[1])
        if given := str(row.get("command", command)):
            part.commands.setdefault(key, {})[given] = None
        if _is_loss(row):
            loss = _loss(key[1], row)
            if (key, loss.by, loss.size) in found:
                of = f"{key[0]}, seed {key[1]}" if key[0] else f"seed {key[1]}"
                raise ValueError(f"row {number} repeats the loss of {of} by {loss.by} at {loss.size}")
            found.add((key, loss.by, loss.size))
            part.losses.setdefault(key, []).append(loss)
        elif row.keys() >= _MEASURE:
            measure = build(Measure, {name: row[name] for name in _MEASURE_FIELDS & row.keys()}, "")
            part.measures.setdefault(key, []).append(measure)
            if row.get("best") is True:
                part.best.setdefault(key, []).append(measure)
        elif row.keys() >= _COUNTS:
            part.scores.setdefault(key, []).append(_score(key[1], row))
    return part


def _variants(name: str, rows: list[dict[str, Any]]) -> list[str]:
    """Return the variant of each row.

    Rows of several tasks or recipes are told apart by these.  Losses of one variant, seed, kind and size are told
    apart by other columns in which they differ, at last by those that say where a row came from.
    """
    heads = [column for column in ("task", "recipe") if len({row.get(column) for row in rows}) > 1]
    names = []
    for row in rows:
        variant = str(row.get("variant") or row.get("scheme") or name)
        names.append("/".join(filter(None, [*(str(row.get(column) or "-") for column in heads), variant])))
    losses = [number for number, row in enumerate(rows) if _is_loss(row)]
    used = _LOSS | _LOSS_NUMBERS | _TRAINED | {"variant", "scheme", "seed", None, *heads}
    columns = dict.fromkeys(column for number in losses for column in rows[number] if column not in used)
    for column in sorted(columns, key=lambda column: column in _DERIVED):
        values: dict[tuple[str, ...], set[str]] = {}
        for number in losses:
            place = (names[number], *(str(rows[number].get(part)) for part in ("seed", "by", "size")))
            values.setdefault(place, set()).add(str(rows[number].get(column)))
        mixed = {place[0] for place, found in values.items() if len(found) > 1}
        for number in losses:
            if names[number] in mixed:
                own = _named(column, rows[number].get(column))
                names[number] = "/".join(filter(None, [names[number], own]))
    return names


def _is_loss(row: Mapping[str, Any]) -> bool:
    return row.keys() >= _LOSS and row["by"] in get_args(By)


def _named(column: str, value: Any) -> str:
    """Return a value as a part of a variant's name; a number says of which column it is."""
    if value in ("", None):
        return f"no {column}"
    return f"{column}={value}" if re.fullmatch(r"[\d.e+-]*\d", str(value)) else str(value)


def _score(seed: int, row: Mapping[str, Any]) -> Score:
    samples = _whole(row["samples"])
    given = row.get("overrides") or {}
    overrides = dict(json.loads(given) if isinstance(given, str) else given)
    others = {*row} - _COUNTS - _DERIVED - _TRAINED - {"hits", "overrides"}
    overrides |= {key: str(row[key]) for key in row if key in others and key not in ("task", "ids_from")}
    plain = {"seed": seed, "length": _whole(row["length"]), "metric": str(row["metric"]), "samples": samples}
    return from_json([{**plain, "hits": _hits(row, samples), "overrides": overrides}])[0]


def _hits(row: Mapping[str, Any], samples: int) -> int:
    if "hits" in row:
        return _whole(row["hits"])
    hits = float(row["exact_match"] if "exact_match" in row else row["rate"]) * samples
    if not math.isfinite(hits) or abs(hits - round(hits)) > 1e-3:
        raise ValueError(f"a rate of {hits / samples} is no whole number of {samples} samples")
    return round(hits)


def _loss(seed: int, row: Mapping[str, Any]) -> Loss:
    names = (_LOSS | _LOSS_NUMBERS) & row.keys()
    numbers = {key: row[key] if key == "by" else float(row[key]) for key in names}
    whole = {key: _whole(row[key]) for key in ("size", "tokens", "documents") if key in row}
    return losses_from_json([{"seed": seed, "low": None, "high": None, **numbers, **whole}])[0]


def _whole(value: Any) -> int:
    number = float(value)
    if not number.is_integer():
        raise ValueError(f"{value!r} is not a whole number")
    return int(number)
