"""The data of the interactive page: runs, cells, training curves and settings as plain lists."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from longreach.config import flatten
from longreach.reports.curves import HEADLINE, THRESHOLDS
from longreach.reports.load import Result, RunResult, settings_of, thinned, variant_order
from longreach.reports.measures import TITLES, measures_data
from longreach.reports.style import shades, styles
from longreach.reports.tables import METRIC_NAMES

_POINTS = 12_000
"""Points of all training curves together."""
_FEWEST = 8
"""Points that each of them may have at least."""
_SHADES = 25
"""Colours for rising values of a setting."""
_CARDS = 200
"""Variants whose cards, settings and ID coverage the page holds."""

_EVERY_HEAD = 20
"""Runs up to which the page has the attention of every head; of more it has the chosen heads."""
_OF_WHOM = ("variant", "seed", "measure", "name", "length", "setting")
_MEASURE = (*_OF_WHOM, "mean", "low", "high", "samples", "best", "even", "low_quantile", "not_ahead")

_NAMES = {
    **METRIC_NAMES,
    "token_accuracy": "answer tokens right, given the true prefix",
    "id_accuracy": "predicted IDs right, given the true prefix",
    "near_tie": "samples in which rounding could decide",
    "context": "loss by context (nats)",
    "position": "loss by position (nats)",
}


def explorer_data(results: Sequence[Result], title: str, problems: Sequence[str]) -> dict[str, Any]:
    """Return all that the page draws; `problems` are lines about runs that are left out."""
    variants = list(dict.fromkeys(result.variant for result in results))
    number = {name: place for place, name in enumerate(variants)}
    look = styles(variant_order(results))
    settings = [""]
    cells, losses = _cells(results, settings)
    first = {result.variant: result for result in reversed(results)}
    described = variants[:_CARDS]
    fields = swept(results)
    return {
        "title": title,
        "problems": list(problems),
        "thresholds": list(THRESHOLDS),
        "shades": [look["color"] for look in shades([str(number) for number in range(_SHADES)]).values()],
        "measureTitles": TITLES,
        "metrics": _metrics(results),
        "names": {name: _NAMES.get(name, name.replace("_", " ")) for name in _metrics(results)},
        "variants": [
            {"name": name, "colour": look[name]["color"], "dash": look[name]["linestyle"], "mark": look[name]["marker"]}
            for name in variants
        ],
        "runs": [
            {
                "variant": number[result.variant],
                "seed": result.seed,
                "source": result.source,
                "trained": result.trained_lengths,
                "chance": None if result.card is None else result.card.chance,
                "asked": "" if result.card is None else result.card.questions,
                "fields": {name: fields[name][place] for name in fields},
                "command": result.command,
                **_provenance(result),
            }
            for place, result in enumerate(results)
        ],
        "settings": [dict(json.loads(text)) if text else {} for text in settings],
        "cells": cells,
        "losses": losses,
        "training": _training(results),
        "cards": {name: _card(first[name]) for name in described},
        "coverage": {name: card.id_coverage for name in described if (card := first[name].card) is not None},
        "measures": _measures(results),
    }


def _cells(results: Sequence[Result], settings: list[str]) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
    """Return scores and losses column by column; new settings of the task are appended to `settings`."""
    cells: dict[str, list[Any]] = {name: [] for name in ("run", "setting", "metric", "length", "hits", "samples")}
    losses: dict[str, list[Any]] = {name: [] for name in ("run", "by", "size", "nats", "low", "high", "documents")}
    known = {text: place for place, text in enumerate(settings)}
    metrics = _metrics(results)
    place_of = {name: place for place, name in enumerate(metrics)}
    for run, result in enumerate(results):
        for score in result.scores:
            text = json.dumps(dict(score.overrides)) if score.overrides else ""
            if text not in known:
                known[text] = len(settings)
                settings.append(text)
            row = (run, known[text], place_of[score.metric], score.length, score.hits, score.samples)
            for column, value in zip(cells.values(), row, strict=True):
                column.append(value)
        for loss in result.losses:
            figures = [_short(figure) for figure in (loss.nats, loss.low, loss.high)]
            for column, entry in zip(losses.values(), [run, loss.by, loss.size, *figures, loss.documents], strict=True):
                column.append(entry)
    return cells, losses


def _metrics(results: Iterable[Result]) -> list[str]:
    """Return the metrics that exist: first those that headlines use, then the others as they come."""
    found: dict[str, None] = dict.fromkeys(score.metric for result in results for score in result.scores)
    losses: dict[str, None] = dict.fromkeys(loss.by for result in results for loss in result.losses)
    # the accuracy of single tokens says little of text, whose losses come first
    first = [*losses, *HEADLINE] if losses else [*HEADLINE]
    return sorted({**found, **losses}, key=lambda name: first.index(name) if name in first else len(first))


def swept(results: Sequence[Result]) -> dict[str, list[str | None]]:
    """Return the settings in which runs differ, each with a value for every result."""
    flat = [
        {path: value for path, value in flatten(settings_of(result)).items() if not path.startswith("execution.")}
        for result in results
    ]
    paths = dict.fromkeys(path for settings in flat for path in settings)
    found = {}
    for path in paths:
        values = [None if path not in settings else _text(settings[path]) for settings in flat]
        if len(set(values)) > 1:
            found[path] = values
    return found


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _provenance(result: Result) -> dict[str, Any]:
    if not isinstance(result, RunResult):
        return {}
    info = result.info
    return {
        "recipe": info.recipe,
        "device": ", resumed on ".join(dict.fromkeys([info.device, *(str(one.get("device")) for one in info.resumed)])),
        "commit": ", ".join(dict.fromkeys([info.commit or "-", *(str(one.get("commit")) for one in info.resumed)])),
        "versions": " ".join(f"{name} {value}" for name, value in info.versions.items()),
    }


def _training(results: Sequence[Result]) -> list[dict[str, list[Any]] | None]:
    """Return the training loss of every run, thinned where there are many runs."""
    most = max(_FEWEST, _POINTS // max(1, len(results)))
    return [_curve(result, most) if isinstance(result, RunResult) else None for result in results]


def _curve(result: RunResult, most: int) -> dict[str, list[Any]] | None:
    points = thinned(result.training, most)
    return {"step": [step for step, _ in points], "loss": [_short(loss) for _, loss in points]} if points else None


def _measures(results: Sequence[Result]) -> list[dict[str, Any]]:
    """Return rows about attention and margins; of many runs, of the chosen heads only."""
    rows = [row for row in measures_data(results) if row["dependency"] is None]
    every_head = len({(row["variant"], row["seed"]) for row in rows}) <= _EVERY_HEAD
    kept = [row for row in rows if row["measure"] != "mass" or row["best"] or every_head]
    return [{name: _rounded(row[name]) for name in _MEASURE} for row in kept]


def _rounded(value: Any) -> Any:
    return _short(value) if isinstance(value, float) else value


def _card(result: Result) -> dict[str, str]:
    """Return the information card, without the coverage of IDs, which is drawn."""
    if result.card is None:
        return {}
    facts = {name: value for name, value in asdict(result.card).items() if name != "id_coverage" and value is not None}
    return {name.replace("_", " "): str(value) for name, value in facts.items()}


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")


def as_script(data: Any) -> str:
    """Return JSON that may stand inside a `<script>` element: no text in it can end the element."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return re.sub("[<>&\u2028\u2029]", lambda found: f"\\u{ord(found[0]):04x}", text)
