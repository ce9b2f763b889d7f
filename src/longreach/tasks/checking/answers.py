"""Checks of answers against `solve`, and of prompts that a person types."""

from dataclasses import replace

from longreach.errors import BadInput
from longreach.tasks.base import NotStated, Sample
from longreach.tasks.checking.drawn import Drawn, words
from longreach.tasks.plain import PlainTask
from longreach.tasks.program import Program

_MOST_PROMPTS = 64


def check_stops(drawn: Drawn) -> None:
    """Raise BadInput unless the stop token ends every answer and stands nowhere else in it."""
    task, sample = drawn.task, drawn.sample
    stop = task.stop_token
    if stop is None:
        for row in (sample.answer.sum(1) != 1).nonzero()[:1, 0].tolist():
            raise BadInput(
                f"{task.name}: {drawn.describe(row)}: the answer {drawn.answer(row)} has several tokens: define"
                " stop_token, which ends an answer"
            )
        return
    ends = sample.tokens.gather(1, sample.num_tokens[:, None] - 1)[:, 0] == stop
    stops = ((sample.tokens == stop) & sample.answer).sum(1)
    for row in (~ends | (stops != 1)).nonzero()[:1, 0].tolist():
        raise BadInput(
            f"{task.name}: {drawn.describe(row)}: the answer {drawn.answer(row)} must end with the stop token"
            f" {task.vocabulary[stop]!r} and have it nowhere else"
        )


def check_answers(drawn: Drawn) -> None:
    """Raise BadInput if `solve`, which sees the prompt and given tokens, finds another answer."""
    task, sample = drawn.task, drawn.sample
    unseen = sample.prompt_only()
    try:
        drawn.call(task.solve, unseen, 0)
    except NotStated:
        drawn.notes.append("solve is not defined: the answers were not checked")
        return
    except BadInput:
        erased = replace(sample, tokens=unseen.tokens)
        try:
            drawn.call(task.solve, erased, 0)
        except BadInput:
            pass  # the loop below names the sample
        else:
            drawn.notes.append("solve reads `hidden`: a typed prompt cannot be solved")
            unseen = erased
    for row in range(len(drawn.numbers)):
        true = sample.tokens[row][sample.answer[row]].tolist()
        try:
            found = list(drawn.call(task.solve, unseen, row))
        except BadInput as error:
            raise BadInput(f"{task.name}: {drawn.describe(row)}: solve refuses a drawn prompt: {error}") from error
        if found == true:
            continue
        both = f"the sampler answers {drawn.answer(row)}, solve answers {words(task, found)}"
        if _solve_or_none(drawn, sample, row) == true:
            both += " from the prompt alone: it reads the answer itself"
        raise BadInput(f"{task.name}: {drawn.describe(row)}: {both}")


def _solve_or_none(drawn: Drawn, sample: Sample, row: int) -> list[int] | None:
    try:
        return list(drawn.call(drawn.task.solve, sample, row))
    except BadInput:
        return None


def check_prompts(drawn: Drawn) -> None:
    """Raise BadInput if a typed prompt gets other tokens or another length than the same prompt when drawn."""
    task, sample = drawn.task, drawn.sample
    own = type(task).prompt_length
    # a length that is found by drawing is an estimate: nothing depends on it
    estimated = own is PlainTask.prompt_length or (
        isinstance(task, Program) and own is Program.prompt_length and not task.counted
    )
    for row in range(min(_MOST_PROMPTS, len(drawn.numbers))):
        prompt = sample.tokens[row, : int(sample.prompt_tokens[row])].tolist()
        length = int(sample.length[row])
        found = length if estimated else drawn.call(task.prompt_length, prompt)
        if found != length:
            raise BadInput(
                f"{task.name}: {drawn.describe(row)}: prompt_length says {found}, the length is {length}: define"
                " prompt_length(self, tokens)"
            )
        text = drawn.call(task.spell, prompt)
        try:
            parsed = drawn.call(task.parse, text)
        except BadInput as error:
            raise BadInput(f"{task.name}: {drawn.describe(row)}: parse refuses a drawn prompt: {error}") from error
        if parsed != prompt:
            raise BadInput(f"{task.name}: {drawn.describe(row)}: parse reads it as {words(task, parsed)}")
