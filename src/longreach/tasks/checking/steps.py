"""Checks of programs: what a step writes follows from what it reads."""

import itertools
import random
from typing import Any

from longreach.errors import BadInput
from longreach.seeding import stream
from longreach.tasks.checking.drawn import Drawn
from longreach.tasks.cursors import Trace
from longreach.tasks.program import Program


def check_program(drawn: Drawn) -> None:
    """Raise BadInput for state in Python variables, and for prompts whose regions cannot be read back.

    Two steps that read the same words, or could read the same, must write the same word and move the cursors alike.
    """
    task = drawn.task
    assert isinstance(task, Program)
    known: dict[Any, tuple[Any, Trace]] = {}
    strays: dict[str, str] = {}
    keys = stream(drawn.seed, "check", drawn.numbers).key.tolist()
    for key, length in zip(keys, drawn.sample.length.tolist(), strict=True):
        regions = drawn.call(task.prompt, random.Random(key), length)
        trace = drawn.call(task.trace, regions)
        _check_regions(task, regions, trace)
        read = ((f"after reading {_reads(reads)}", outcome) for reads, outcome in trace.steps())
        seen = ((f"with {_view(view)} before it", outcome) for view, outcome in trace.views())
        for words, outcome in itertools.chain(read, seen):
            before, other = known.setdefault(words, (outcome, trace))
            if before != outcome:
                raise BadInput(
                    f"{task.name}: {words} the program once {_outcome(before)} (in {_line(other)}) and once"
                    f" {_outcome(outcome)} (in {_line(trace)}): what it does must follow from the words read since the"
                    " last write, not from Python variables"
                )
        for number, cursor in trace.strays:
            strays.setdefault(cursor, f"token {number + 1} of the answer in {_line(trace)}")
    for cursor, where in strays.items():
        drawn.notes.append(
            f"{cursor} reads at a place that no token before carries ({where}), so aligned IDs do not lead there:"
            " write what is looked for first, then find it"
        )


def _check_regions(task: Program, regions: Any, trace: Trace) -> None:
    specs = task.layout.specs
    given = [word for name, words in regions.items() if specs[name].given for word in words]
    found = task.read_prompt(trace.words[: trace.end], given)
    for name, words in regions.items():
        if not specs[name].written and found.get(name) != [*words]:
            raise BadInput(
                f"{task.name}: region {name} of {_line(trace)} is {' '.join(words)!r}, but is read back as"
                f" {' '.join(found.get(name, []))!r}: its words must not be the signs that end it"
            )


def _reads(reads: Any) -> str:
    seen, nowhere = reads
    parts = [f"{word!r} ({cursor}{f' word {at}' if at > 1 else ''})" for cursor, at, word in seen]
    parts += [f"nothing ({level} stands nowhere)" for level in nowhere]
    return ", ".join(parts) or "nothing"


def _view(view: Any) -> str:
    last, *seen = view
    return ", ".join([f"{last!r} written", *(f"{' '.join(map(repr, words))} ({level})" for level, *words in seen)])


def _outcome(outcome: Any) -> str:
    word, moves = outcome
    moved = ", ".join(f"{cursor} {how}" for cursor, how in moves)
    return f"writes {word!r}" + (f" and moves {moved}" if moved else "")


def _line(trace: Trace) -> str:
    words = trace.words if len(trace.words) <= 40 else [*trace.words[:20], "...", *trace.words[-20:]]
    return f"'{' '.join(words)}'"
