"""The result of an extension: figures of every arm, comparisons, tables and the card of the model."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from longreach.config import build
from longreach.errors import BadInput
from longreach.evaluation import ContextLoss, Loss, over_documents
from longreach.extension.measure import MeasuredReach
from longreach.extension.result import pooled, verdict

SCHEMA = 1
_CHOICE = "The last checkpoint is the result: none is chosen by its loss."
_FIELDS = ("name", "rope_parameters", "position_ids", "tokens", "training_seconds", "training_losses")
Table = dict[str, list[str]]
"""Columns by name."""


@dataclass(frozen=True)
class ArmResult:
    """Settings and figures of one arm."""

    name: str
    rope_parameters: Mapping[str, Any]
    position_ids: str | None
    """Position IDs of the training; None where nothing was trained."""
    tokens: int
    """Tokens that the training read."""
    training_seconds: float
    """Seconds since the last resume."""
    training_losses: list[dict[str, int | float]]
    """Loss of each step."""
    measured: MeasuredReach

    @property
    def losses(self) -> list[Loss]:
        """Return the losses by context."""
        return [loss for loss in self.measured.losses if loss.by == "context"]

    def retrieved(self, context: int, needles: int) -> tuple[int, int]:
        """Return right answers and questions of all depths."""
        scores = {score.context: score for score in pooled(self.measured.retrieval, needles)}
        return (scores[context].right, scores[context].questions) if context in scores else (0, 0)


@dataclass(frozen=True)
class Comparison:
    """Paired difference in loss between a control and the result, on the same tokens."""

    control: str
    context: int
    nats: float
    """Loss of the control less that of the result."""
    low: float | None
    """95% interval over documents (bootstrap); None where there is one document."""
    high: float | None

    @property
    def gains(self) -> bool:
        """Return whether the interval lies above 0."""
        return self.low is not None and self.low > 0


@dataclass(frozen=True)
class Extension:
    """A model that reads longer texts, and the figures of all arms.  `str(extension)` has the tables."""

    path: str
    """The folder."""
    settings: Mapping[str, Any]
    command: str
    versions: Mapping[str, str]
    device: str
    texts: Mapping[str, Any]
    """Counts of documents and tokens."""
    notes: list[str]
    """Warnings."""
    arms: list[ArmResult]
    """The last one is the model in the folder."""
    comparisons: list[Comparison]
    """The result and each control at each context."""

    @property
    def result(self) -> ArmResult:
        return self.arms[-1]

    @property
    def contexts(self) -> list[int]:
        """Return the sizes of context that were measured."""
        return [loss.size for loss in self.result.losses]

    def tables(self) -> dict[str, Table]:
        """Return tables by title, each with a row for each context and a column for each arm."""
        documents = self.result.losses[0].documents
        interval = f"95% interval over {documents} documents" if documents > 1 else "one document: no interval"
        found = {
            f"Loss in nats per token ({interval})": {
                arm.name: [_with_interval(loss.nats, loss.low, loss.high) for loss in arm.losses] for arm in self.arms
            },
            "Gain of the last doubling of the context, in nats on the same tokens": {
                arm.name: self._gains(arm) for arm in self.arms
            },
        }
        for needles in sorted({row.needles for row in self.result.measured.retrieval}):
            what = {0: "no needle (guessing)", 1: "one needle"}.get(needles, f"{needles} needles")
            found[f"Right answers with {what}, all depths"] = {
                arm.name: [self._retrieved(arm, context, needles) for context in self.contexts] for arm in self.arms
            }
        return {title: self._with_contexts(columns) for title, columns in found.items()}

    def _with_contexts(self, columns: Table) -> Table:
        """Return a table with a column of contexts, without rows that have no figures."""
        kept = [row for row, cells in enumerate(zip(*columns.values(), strict=True)) if any(cells)]
        whole = {"context": list(map(str, self.contexts)), **columns}
        return {name: [column[row] for row in kept] for name, column in whole.items()}

    def lines(self) -> list[str]:
        """Return the tables in words: the result beside controls, its price at short contexts, how far arms hold."""
        result, trained, found, prices = self.result.name, int(self.settings["trained"]), [], []
        for row in self.comparisons:
            gain, price = f"{row.nats:.3f} nats", f"{-row.nats:+.3f} nats"
            if row.low is not None and row.high is not None:
                gain += f" ({row.low:.3f} to {row.high:.3f})"
                price += f" ({-row.high:+.3f} to {-row.low:+.3f})"
            if row.context == self.contexts[-1]:
                if row.low is None or row.high is None:
                    words = f"changes the loss by {price}, in one document and so without an interval"
                elif row.high < 0:
                    words = f"raises the loss: by {price}"
                else:
                    words = ("lowers the loss by " if row.gains else "gains nothing: it lowers the loss by ") + gain
                found.append(f"At {row.context} tokens, {result} beside {row.control} {words}.")
            if row.control == "as it is" and row.context <= trained:
                prices.append(f"At {row.context} tokens, {result} changes the loss of the model as it is by {price}.")
        if not self.comparisons:
            found.append("No controls were measured, so nothing shows what helped.")
        return [*found, *prices, *(f"{arm.name}: {verdict(arm.measured)}" for arm in self.arms), *self.notes]

    def to_plain(self) -> dict[str, Any]:
        """Return the content of `extend.json`."""
        return {
            "schema": SCHEMA,
            "command": self.command,
            "settings": dict(self.settings),
            "versions": dict(self.versions),
            "device": self.device,
            "texts": dict(self.texts),
            "checkpoint": _CHOICE,
            "notes": self.notes,
            "arms": [
                {**{name: getattr(arm, name) for name in _FIELDS}, "measured": arm.measured.to_plain()}
                for arm in self.arms
            ],
            "comparisons": [asdict(row) for row in self.comparisons],
            "lines": self.lines(),
        }

    @classmethod
    def from_plain(cls, plain: Any, path: str) -> "Extension":
        """Return what `to_plain` wrote; raise an error of any kind for other content."""
        if plain["schema"] != SCHEMA:
            raise BadInput(f"schema {plain['schema']!r:.20} is not {SCHEMA}: extend the model again")
        arms = [
            ArmResult(**{name: row[name] for name in _FIELDS}, measured=MeasuredReach.from_plain(row["measured"]))
            for row in plain["arms"]
        ]
        same = {name: plain[name] for name in ("settings", "command", "versions", "device", "texts", "notes")}
        return cls(path, **same, arms=arms, comparisons=[build(Comparison, row) for row in plain["comparisons"]])

    def __str__(self) -> str:
        parts = [f"{title}\n{_aligned(table)}" for title, table in self.tables().items()]
        return "\n\n".join([*parts, "\n".join(self.lines())])

    def _gains(self, arm: ArmResult) -> list[str]:
        gains = {gain.context: gain for gain in arm.measured.gains}
        return [
            _with_interval(gains[context].nats, gains[context].low, gains[context].high, "+.3f")
            if context in gains
            else ""
            for context in self.contexts
        ]

    @staticmethod
    def _retrieved(arm: ArmResult, context: int, needles: int) -> str:
        right, questions = arm.retrieved(context, needles)
        return f"{right} of {questions}" if questions else ""


def compare_arms(nats: Mapping[str, ContextLoss]) -> list[Comparison]:
    """Return the loss of every control less that of the last arm, at every context."""
    *controls, result = nats
    found = []
    for control in controls:
        one, other = nats[control], nats[result]
        mean, low, high = over_documents(one.nats.double() - other.nats.double(), other.document)
        for row, context in enumerate(other.contexts):
            known = None if math.isnan(float(low[row])) else (float(low[row]), float(high[row]))
            found.append(Comparison(control, context, float(mean[row]), *(known or (None, None))))
    return found


def model_card(found: Extension) -> str:
    """Return the README.md of an extended model."""
    settings, texts, result = found.settings, found.texts, found.result
    name = Path(settings["model"]).name
    what = f"low-rank adapters of rank {settings['lora']}, merged" if settings["lora"] else "all weights"
    # of a folder or file, the hub knows nothing
    base = "" if Path(settings["model"]).exists() else f"base_model: {settings['model']}\n"
    facts = {
        "RoPE": f"`{dict(result.rope_parameters)}` (`--rope {settings['rope']}`)",
        "position IDs in training": result.position_ids,
        "trained": f"{what}; {settings['precision']}",
        "training": f"{settings['steps']} steps of {settings['batch_size']} rows of {settings['window']} tokens,"
        f" learning rate {settings['lr']}, seed {settings['seed']}",
        "training texts": f"{texts['training_documents']} documents, {texts['training_tokens']:,} tokens,"
        f" read {texts['epochs']:.2f} times",
        "held-out texts": f"{texts['held_out_documents']} documents, {texts['held_out_tokens']:,} tokens",
        "checkpoint": _CHOICE,
        "controls": _controls(found),
    }
    parts = [
        f"---\nlibrary_name: transformers\npipeline_tag: text-generation\n{base}---",
        f"# {name}, extended to {settings['to']} tokens",
        f"Made by `longreach extend` from `{settings['model']}`, which was trained for {settings['trained']} tokens."
        f"  Method: {result.name}.",
        "\n".join(["| | |", "|---|---|", *(f"| {key} | {value} |" for key, value in facts.items())]),
        "## Measured",
        "All arms predict the same tokens of the held-out documents.  A needle is a sentence with a code word that is"
        " hidden in the text; the answer is right if the code word is the likeliest of 16 at the end.",
        *(f"{title}:\n\n{_markdown(table)}" for title, table in found.tables().items()),
        "\n".join(f"- {line}" for line in found.lines()),
        "All figures, settings, versions and training losses are in `extend.json`.",
        f"```\n{found.command}\n```",
    ]
    return "\n\n".join(parts) + "\n"


def _controls(found: Extension) -> str:
    if found.settings["controls"] == "none":
        return "none (`--controls none`)"
    return "; ".join(arm.name for arm in found.arms[:-1]) + ". Trained arms read the same tokens"


def _with_interval(nats: float, low: float | None, high: float | None, form: str = ".3f") -> str:
    return f"{nats:{form}}" + ("" if low is None else f" ({low:{form}} to {high:{form}})")


def _rows(table: Table) -> list[Sequence[str]]:
    return [list(table), *zip(*table.values(), strict=True)]


def _aligned(table: Table) -> str:
    widths = [max(map(len, (name, *column))) for name, column in table.items()]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in _rows(table))
    return "\n".join(line.rstrip() for line in lines)


def _markdown(table: Table) -> str:
    head, *rows = (f"| {' | '.join(row)} |" for row in _rows(table))
    return "\n".join([head, "|---" * len(table) + "|", *rows])
