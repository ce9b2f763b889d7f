"""`longreach show TASK --length N`: one sample, with its coupled IDs and what each answer token depends on."""

import argparse
import json

import torch
from rich.table import Table
from torch import Tensor

from longreach.cli.console import out
from longreach.cli.flags import task_settings
from longreach.cli.prompt import check_sample
from longreach.config import build_part
from longreach.errors import BadInput
from longreach.seeding import stream
from longreach.tasks import Sample, Task

_MOST_ROWS = 500
"""Tokens that a table shows; of longer samples it shows the parts around the ends of the prompt and the answer."""
_MOST_DEPENDENCIES = 4096
"""Tokens of the longest sample whose dependencies are computed: they are a matrix of all pairs of tokens."""


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = verbs.add_parser(
        "show",
        help="one sample of a task",
        description="One sample: tokens, answer, coupled IDs, dependencies.  Settings as --task.FIELD VALUE.",
    )
    parser.add_argument("task", help="a name from `longreach list task`, or the import path of a class of yours")
    parser.add_argument("--length", type=int, required=True, help="the task's length")
    parser.add_argument("--seed", type=int, default=0, help="another seed, another sample")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(verb=run, takes_settings=True)


def run(args: argparse.Namespace, settings: list[str]) -> int:
    task = build_part(Task, task_settings(args.task, settings), "task")
    task.check_length(args.length)
    check_sample(task, args.length)
    sample = task.sample(torch.tensor([args.length]), stream(args.seed, "show", torch.arange(1)), args.length)
    size = int(sample.num_tokens[0])
    words = task.words(sample.tokens[0, :size].tolist())
    needs, sparsity = _dependencies(task, sample, args.length)
    ids = {}
    if task.coupling_levels:
        for form in ("published", "aligned"):
            levels = task.coupling(sample, form)[0, :, :size]
            for level, row in zip(task.coupling_levels, levels.tolist(), strict=True):
                ids[f"{form} {level.name}"] = row
    prompt = int(sample.prompt_tokens[0])
    if args.json:
        result = {
            "task": task.name,
            "length": args.length,
            "tokens": words,
            "prompt_tokens": prompt,
            "answer": words[prompt:],
            "coupled_ids": ids,
            "depends_on": None if needs is None else {str(i): _places(needs, i) for i in range(prompt, size)},
            "sparsity": sparsity,
        }
        print(json.dumps(result))
        return 0
    out.print(f"{_line(words[:prompt])}  ->  {_line(words[prompt:])}", markup=False, highlight=False, soft_wrap=True)
    if needs is not None:
        caption = f"an answer token depends on at most {sparsity} earlier tokens"
    elif size > _MOST_DEPENDENCIES:
        caption = f"dependencies are shown of samples of up to {_MOST_DEPENDENCIES} tokens"
    else:
        caption = "the task does not say what its answers depend on"
    table = Table(caption=caption)
    for column in ("index", "token", "role", *ids, "depends on"):
        table.add_column(column, justify="right" if column == "index" or column in ids else "left")
    before = -1
    for index in _rows(size, prompt):
        if index > before + 1:
            table.add_row("...", f"({index - before - 1} more)")
        before, word = index, words[index]
        on = "" if needs is None else ", ".join(f"{words[j]}@{j}" for j in _places(needs, index))
        role = "answer" if bool(sample.answer[0, index]) else "prompt"
        table.add_row(str(index), word, role, *(str(row[index]) for row in ids.values()), on)
    out.print(table)
    return 0


def _dependencies(task: Task, sample: Sample, length: int) -> tuple[Tensor | None, int | None]:
    """Return what each token depends on, and at most how many; nothing if the task does not say or it is too long."""
    size = int(sample.num_tokens[0])
    if size > _MOST_DEPENDENCIES:
        return None, None
    try:
        return task.depends_on(sample)[0, :size, :size], task.sparsity(length)
    except BadInput:
        return None, None


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


def _places(needs: Tensor, index: int) -> list[int]:
    return [int(place) for place in needs[index].nonzero()[:, 0]]
