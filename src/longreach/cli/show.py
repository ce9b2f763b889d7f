"""`longreach show TASK --length N`: one sample, with its coupled IDs and what each answer token depends on."""

import argparse
import json
from dataclasses import asdict

from rich.table import Table

from longreach.cli.flags import task_settings
from longreach.terminal.console import out
from longreach.verbs.showing import MOST_DEPENDENCIES, show

_MOST_ROWS = 500
"""Tokens that a table shows; of longer samples it shows the parts around the ends of the prompt and the answer."""


def run(args: argparse.Namespace, settings: list[str]) -> int:
    sample = show(task_settings(args.task, settings), args.length, seed=args.seed)
    words, prompt, needs = sample.tokens, sample.prompt_tokens, sample.depends_on
    if args.json:
        facts = asdict(sample)
        del facts["is_predicted"]
        print(json.dumps(facts))
        return 0
    out.print(f"{_line(words[:prompt])}  ->  {_line(words[prompt:])}", markup=False, highlight=False, soft_wrap=True)
    if needs is not None:
        caption = f"an answer token depends on at most {sample.sparsity} earlier tokens"
    elif len(words) > MOST_DEPENDENCIES:
        caption = f"dependencies are shown of samples of up to {MOST_DEPENDENCIES} tokens"
    else:
        caption = "the task does not say what its answers depend on"
    ids = sample.coupled_ids
    table = Table(caption=caption)
    for column in ("index", "token", "role", *ids, "depends on"):
        table.add_column(column, justify="right" if column == "index" or column in ids else "left")
    before = -1
    for index in _rows(len(words), prompt):
        if index > before + 1:
            table.add_row("...", f"({index - before - 1} more)")
        before = index
        on = ", ".join(f"{words[j]}@{j}" for j in (needs or {}).get(index, []))
        role = "answer" if sample.is_predicted[index] else "prompt"
        table.add_row(str(index), words[index], role, *(str(row[index]) for row in ids.values()), on)
    out.print(table)
    return 0


def _rows(size: int, prompt: int) -> list[int]:
    """Return the indices of the tokens in the table: all, or those near the ends of the prompt and the answer."""
    if size <= _MOST_ROWS:
        return list(range(size))
    near = _MOST_ROWS // 4
    parts = (range(near), range(prompt - near, prompt + near), range(size - near, size))
    return sorted({index for part in parts for index in part if 0 <= index < size})


def _line(words: list[str]) -> str:
    """Return words in a row, without the middle of very many."""
    if len(words) <= _MOST_ROWS:
        return " ".join(words)
    end = _MOST_ROWS // 10
    return " ".join([*words[:end], f"... ({len(words) - 2 * end} more) ...", *words[-end:]])
