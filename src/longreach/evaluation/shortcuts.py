"""Shortcuts: how often trivial predictors guess an answer token, by length."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from longreach.evaluation.scores import wilson
from longreach.seeding import stream
from longreach.tasks import Sample, Task

_MOST_OFFSETS = 64
_MOST_CELLS = 1 << 22
"""Tokens, and counts of words, of the largest batch."""
_RANKS = (1, 2, 3)


@dataclass(frozen=True)
class Shortcut:
    """The best trivial predictor at one length."""

    length: int
    predictor: str
    accuracy: float
    """Share of right answer tokens, without given tokens and the stop."""
    low: float
    high: float
    """Wilson's interval; the tokens of one sample count as one observation."""
    chance: float
    """1 / the number of different answer tokens."""
    samples: int

    def __str__(self) -> str:
        return f"length {self.length}: {self.predictor} is right in {self.accuracy:.0%} (chance {self.chance:.1%})"


def find_shortcuts(task: Task, lengths: Sequence[int], samples: int, seed: int = 0) -> list[Shortcut]:
    """Return the best trivial predictor of each length.

    One draw chooses the predictor and its offset, another one measures it: the best of many is not better by chance.
    """
    found = []
    for length in lengths:
        rows = max(16, min(samples, _MOST_CELLS // max(task.max_tokens(length), len(task.vocabulary))))
        chosen, measured = (_draw(task, length, rows, seed, name) for name in ("choose", "measure"))
        answers = torch.tensor(sorted(set(chosen.tokens[_targets(task, chosen)].tolist())))
        if not len(answers):
            continue
        rates = {name: float(right.mean()) for name, right in _guesses(task, chosen, chosen, answers)}
        best = max(rates, key=lambda name: rates[name])
        right = dict(_guesses(task, measured, chosen, answers))[best]
        count = len(right)
        rate = float(right.mean())
        low, high = wilson(round(rate * count), count)
        found.append(Shortcut(length, best, rate, min(low, rate), max(high, rate), 1 / len(answers), count))
    return found


def growing_shortcut(found: Sequence[Shortcut]) -> str | None:
    """Return a warning if answers are easier to guess at the longest length than at a shorter one."""
    if len(found) < 2:
        return None
    *shorter, last = found
    first = min(shorter, key=lambda shortcut: shortcut.high)
    if last.low <= first.high:
        return None
    return (
        f"answers become easier to guess with length: {last.predictor} is right in {last.accuracy:.0%} at length"
        f" {last.length}, the best guess at length {first.length} in {first.accuracy:.0%}"
    )


def _draw(task: Task, length: int, rows: int, seed: int, name: str) -> Sample:
    numbers = torch.arange(rows)
    return task.sample(torch.full_like(numbers, length), stream(seed, f"shortcuts {name}", numbers), length)


def _targets(task: Task, sample: Sample) -> Bool[Tensor, "b t"]:
    """Return a mask of the tokens to guess: predicted ones, without the stop."""
    predicted = sample.answer & ~sample.given
    return predicted if task.stop_token is None else predicted & (sample.tokens != task.stop_token)


def _guesses(task: Task, sample: Sample, known: Sample, answers: Int[Tensor, "n"]) -> Iterator[tuple[str, Tensor]]:
    """Yield each predictor with its share of right tokens for each sample that has tokens to guess."""
    tokens, targets = sample.tokens, _targets(task, sample)
    count = targets.sum(1)

    def right(guess: Tensor) -> Tensor:
        share = ((tokens == guess) & targets).sum(1) / count.clamp(min=1)
        return share[count > 0].double()

    yield "the most frequent answer token", right(known.tokens[_targets(task, known)].mode().values)
    yield "the token before", right(torch.roll(tokens, 1, 1))
    end = sample.prompt_tokens[:, None]
    for offset in range(1, min(_MOST_OFFSETS, int(known.prompt_tokens.min())) + 1):
        name = "the last prompt token" if offset == 1 else f"prompt token {offset} from the end"
        yield name, right(tokens.gather(1, end - offset))
        yield f"prompt token {offset}", right(tokens[:, offset - 1, None])
    frequent = _frequent(sample, answers)
    for rank in _RANKS[: frequent.shape[1]]:
        name = "the most frequent prompt token" if rank == 1 else f"prompt token of frequency rank {rank}"
        yield name, right(frequent[:, rank - 1, None])


def _frequent(sample: Sample, answers: Int[Tensor, "n"]) -> Int[Tensor, "b r"]:
    """Return the tokens of each prompt that come most often, of those that can be answers."""
    b, t = sample.tokens.shape
    place = torch.full((int(max(sample.tokens.max(), answers.max())) + 1,), len(answers))
    place[answers] = torch.arange(len(answers))
    in_prompt = torch.arange(t) < sample.prompt_tokens[:, None]
    word = torch.where(in_prompt, place[sample.tokens], len(answers))
    counts = torch.zeros(b, len(answers) + 1, dtype=torch.long)
    counts.scatter_add_(1, word, torch.ones_like(word))
    ranks = min(len(_RANKS), len(answers))
    return answers[counts[:, :-1].topk(ranks, dim=1).indices]
