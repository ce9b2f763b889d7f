"""Checks of a batch: shapes, padding, vocabulary, and that a sample is the same in every batch."""

from functools import partial

import torch
from jaxtyping import Int
from torch import Tensor

from longreach.errors import BadInput
from longreach.tasks.base import PAD, Sample, Task
from longreach.tasks.checking.drawn import Drawn, alike, describe, spread, words
from longreach.tasks.plain import run_foreign

_MOST_GROUPS = 4


def check_vocabulary(task: Task) -> None:
    """Raise BadInput for tokens that cannot be told apart or written in a line, and for a stop outside of them."""
    vocabulary = task.vocabulary
    known: set[str] = set()
    for number, word in enumerate(vocabulary):
        if not isinstance(word, str) or not word or word.split() != [word]:
            raise BadInput(f"{task.name}: token {number} of the vocabulary must be a word without blanks, got {word!r}")
        if word in known:
            raise BadInput(f"{task.name}: the vocabulary has {word!r} twice")
        known.add(word)
    stop = task.stop_token
    if stop is not None and not 0 < stop < len(vocabulary):
        raise BadInput(f"{task.name}: stop_token must be in 1..{len(vocabulary) - 1}, got {stop}")


def check_structure(task: Task, sample: Sample, length: Int[Tensor, "b"], max_length: int) -> None:
    """Raise BadInput for wrong shapes, sizes, padding or masks."""
    b, t = len(length), task.max_tokens(max_length)
    whole, flags = torch.int64, torch.bool
    for name, shape, dtype in (
        ("tokens", (b, t), whole),
        ("answer", (b, t), flags),
        ("given", (b, t), flags),
        ("length", (b,), whole),
        ("num_tokens", (b,), whole),
        ("prompt_tokens", (b,), whole),
    ):
        tensor = getattr(sample, name)
        if not isinstance(tensor, Tensor) or tuple(tensor.shape) != shape or tensor.dtype != dtype:
            got = f"{tuple(tensor.shape)} of {tensor.dtype}" if isinstance(tensor, Tensor) else type(tensor).__name__
            raise BadInput(
                f"{task.name}: `{name}` of a batch of {b} samples up to length {max_length} must have the shape"
                f" {shape} of {dtype}, got {got}: max_tokens({max_length}) = {t} fixes the width"
            )
    index = torch.arange(t)
    size, prompt = sample.num_tokens[:, None], sample.prompt_tokens[:, None]
    inside = index < size
    answers = sample.answer.sum(1)
    most = {n: (task.max_tokens(n), task.max_answer(n)) for n in sorted(set(length.tolist()))}
    most_tokens = torch.tensor([most[n][0] for n in length.tolist()])
    most_answer = torch.tensor([most[n][1] for n in length.tolist()])
    last = len(task.vocabulary) - 1
    for wrong, complaint in (
        (sample.length != length, "`length` must be the length that was asked for"),
        ((prompt < 1)[:, 0], "prompt_tokens must be at least 1"),
        ((size <= prompt)[:, 0], "num_tokens must be above prompt_tokens: the answer has no token"),
        ((size > t)[:, 0] | (sample.num_tokens > most_tokens), "num_tokens must be at most max_tokens(length)"),
        (((sample.tokens < 0) | (sample.tokens > last)).any(1), f"tokens must be in 0..{last}, the vocabulary"),
        (((sample.tokens == PAD) & inside).any(1), "padding (token 0) stands before num_tokens"),
        (((sample.tokens != PAD) & ~inside).any(1), "tokens stand behind num_tokens, where padding (0) must be"),
        (
            (sample.answer != (inside & (index >= prompt))).any(1),
            "`answer` must be true from prompt_tokens to num_tokens and nowhere else",
        ),
        ((sample.given & ~sample.answer).any(1), "`given` must lie inside `answer`"),
        (sample.given.any(1) & (not task.has_given), "tokens are given, but has_given is False"),
        (answers > most_answer, "the answer has more tokens than max_answer(length)"),
    ):
        for row in wrong.nonzero()[:1, 0].tolist():
            sizes = f"prompt_tokens={int(prompt[row])}, num_tokens={int(size[row])}, {int(answers[row])} answer tokens"
            bounds = f"max_tokens={int(most_tokens[row])}, max_answer={int(most_answer[row])}"
            raise BadInput(
                f"{task.name}: {describe(task, sample, row, row)}: {complaint} ({sizes}, {bounds}, tokens"
                f" {words(task, sample.tokens[row].tolist())})"
            )


def check_batches(drawn: Drawn) -> None:
    """Raise BadInput if a sample differs in another batch, in another order or at another width."""
    task, longest = drawn.task, max(drawn.lengths)
    rows = torch.arange(len(drawn.numbers))
    _compare(drawn, rows.flip(0), longest, "drawn in reverse order")
    wider = _longer(task, longest)
    if wider is not None:
        _compare(drawn, rows, wider, f"drawn with max_length={wider}")
    for length in spread(drawn.lengths, _MOST_GROUPS):
        mine = (drawn.sample.length == length).nonzero()[:, 0]
        _compare(drawn, mine, length, f"drawn with samples of its length only, with max_length={length}")
    _compare(drawn, rows[:1], int(drawn.sample.length[0]), "drawn alone")


def _compare(drawn: Drawn, rows: Int[Tensor, "n"], max_length: int, how: str) -> None:
    task = drawn.task
    again = drawn.draw(rows, max_length)
    check_structure(task, again, drawn.sample.length[rows], max_length)
    before = drawn.sample.map(lambda tensor: tensor[rows])
    for place in (~alike(before, again)).nonzero()[:1, 0].tolist():
        row = int(rows[place])
        old, new = (
            words(task, sample.tokens[at, : int(sample.num_tokens[at])].tolist())
            for sample, at in ((drawn.sample, row), (again, place))
        )
        raise BadInput(
            f"{task.name}: {drawn.describe(row)}: in a batch of lengths up to {max(drawn.lengths)} it is {old}, {how}"
            f" it is {new}: a sample must not depend on its batch or on max_length"
        )


def _longer(task: Task, length: int) -> int | None:
    """Return a somewhat greater length that the task has."""
    for longer in (length + 3, length + 4, length + 1, length + 2):
        try:
            run_foreign(task.name, partial(task.check_length, longer))
        except BadInput:
            continue
        return longer
    return None
