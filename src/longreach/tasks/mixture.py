"""Several tasks at once, each sample of one of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import accumulate, groupby

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from longreach.config.registry import nearest, register
from longreach.errors import BadInput
from longreach.seeding import Draws
from longreach.tasks.base import PAD, Form, Level, Sample, Task
from longreach.tasks.copying import Copy
from longreach.tasks.odds_first import OddsFirst
from longreach.text import SplitName

_PLAIN = tuple(field.name for field in fields(Sample) if field.name != "hidden")


@register("task", "mixture")
@dataclass(frozen=True, kw_only=True)
class Mixture(Task):
    """Samples of several tasks, each with the task's name in front.  <odds_first> c a b ; =  ->  c b a .

    `length` is that of the task; lengths that one of them does not have are refused.  The tasks share their words, and
    the stop.  Where a task's answers are one token and another's are not, a stop is written behind those too.  Every
    answer token needs the name in front besides what it needs in its own task.  Coupling as in the tasks, where
    all have the same number of levels and agree on which of them grow; the name is reserved.

    Every task draws every sample, and one is taken: nothing then depends on how the choice falls, and n tasks cost
    as much as all n together.
    """

    of: tuple[Task, ...] = field(default_factory=lambda: (Copy(), OddsFirst()))
    """The tasks."""
    weights: tuple[float, ...] = ()
    """How often each of them comes, in proportion; none: equally often."""

    def __post_init__(self) -> None:
        if not self.of:
            raise ValueError("mixture.of must name a task")
        if self.weights and (len(self.weights) != len(self.of) or min(self.weights) <= 0):
            raise ValueError(f"mixture.weights must be {len(self.of)} positive numbers, got {list(self.weights)}")
        stops = {task.vocabulary[task.stop_token] for task in self.of if task.stop_token is not None}
        if len(stops) > 1:
            raise ValueError(f"mixture.of must end all answers with the same word, got {' and '.join(sorted(stops))}")

    @cached_property
    def _names(self) -> tuple[str, ...]:
        """<addition>; a task that is there twice is <addition:2> the second time."""
        names = [task.name for task in self.of]
        times = [names[: number + 1].count(name) for number, name in enumerate(names)]
        return tuple(f"<{name}>" if n == 1 else f"<{name}:{n}>" for name, n in zip(names, times, strict=True))

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        words = dict.fromkeys(word for task in self.of for word in task.vocabulary[PAD + 1 :])
        return (self.of[0].vocabulary[PAD], *self._names, *words)

    @property
    def stop_token(self) -> int | None:
        ends = [task.vocabulary[task.stop_token] for task in self.of if task.stop_token is not None]
        return self.vocabulary.index(ends[0]) if ends else None

    @property
    def has_given(self) -> bool:
        return any(task.has_given for task in self.of)

    @property
    def draws_on_host(self) -> bool:
        return any(task.draws_on_host for task in self.of)

    @property
    def reads_files(self) -> bool:
        return any(task.reads_files for task in self.of)

    @property
    def fingerprint(self) -> str:
        return " ".join(task.fingerprint for task in self.of if task.reads_files)

    def held_out(self, split: SplitName, longest: int = 0) -> "Mixture":
        return replace(self, of=tuple(task.held_out(split, longest) for task in self.of))

    @property
    def coupling_levels(self) -> tuple[Level, ...]:
        shapes = {tuple(level.grows for level in task.coupling_levels) for task in self.of}
        if len(shapes) > 1:
            return ()
        levels = zip(*(task.coupling_levels for task in self.of), strict=True)
        return tuple(
            Level(" or ".join(dict.fromkeys(level.name for level in same)), max(level.size for level in same))
            for same in levels
        )

    @property
    def coupling_by_rule(self) -> bool:
        return all(task.coupling_by_rule for task in self.of)

    def check_length(self, length: int) -> None:
        for task in self.of:
            task.check_length(length)

    def max_tokens(self, length: int) -> int:
        return 1 + max(task.max_tokens(length) + self._stop_added(task) for task in self.of)

    def max_answer(self, length: int) -> int:
        return max(task.max_answer(length) + self._stop_added(task) for task in self.of)

    def sample(self, length: Int[Tensor, "b"], draws: Draws, max_length: int) -> Sample:
        drawn = [task.sample(length, draws.child(f"task {number}"), max_length) for number, task in enumerate(self.of)]
        weights = self.weights or (1.0,) * len(self.of)
        bounds = [bound / sum(weights) for bound in accumulate(weights)][:-1]
        share = draws.uniform("choice", 1)[:, 0]
        choice = sum(((share >= bound).long() for bound in bounds), torch.zeros_like(length))
        return self._merge(choice, drawn, self.max_tokens(max_length))

    def redraw(self, sample: Sample, draws: Draws) -> Sample:
        inner = [self._inner(sample, number) for number in range(len(self.of))]
        again = [
            task.redraw(one, draws.child(f"task {number}"))
            for number, (task, one) in enumerate(zip(self.of, inner, strict=True))
        ]
        return self._merge(self._choice(sample), again, sample.tokens.shape[1])

    def solve(self, sample: Sample, row: int) -> list[int]:
        one = sample.rows(row, row + 1)
        number = self._of_prompt(one.tokens[0].tolist())
        task, start = self.of[number], int(one.prompt_tokens[0])
        self._own_tokens(number, one.tokens[0, 1:start].tolist())  # refuses words of another task
        answer = [self._outer_tokens[number][token] for token in task.solve(self._inner(one, number), 0)]
        return answer + [self.stop_token or PAD] * self._stop_added(task)

    def sparsity(self, length: int) -> int:
        return 1 + max(task.sparsity(length) for task in self.of)

    def depends_on(self, sample: Sample) -> Bool[Tensor, "b t t"]:
        b, t = sample.tokens.shape
        choice = self._choice(sample)
        found = torch.zeros(b, t, t, dtype=torch.bool, device=sample.tokens.device)
        for number, task in enumerate(self.of):
            needs = task.depends_on(self._inner(sample, number)) & (choice == number)[:, None, None]
            end = needs.shape[1] + 1
            found[:, 1:end, 1:end] |= needs
        found[:, :, 0] = sample.answer & ~sample.given
        return found

    def coupling(self, sample: Sample, form: Form) -> Int[Tensor, "b g t"]:
        if not self.coupling_levels:
            return super().coupling(sample, form)
        return self._ids(sample, lambda task, inner: task.coupling(inner, form))

    def hint_ids(self, sample: Sample) -> Int[Tensor, "b g t"]:
        return self._ids(sample, lambda task, inner: task.hint_ids(inner))

    def _ids(self, sample: Sample, ids_of: Callable[[Task, Sample], Int[Tensor, "b g t"]]) -> Int[Tensor, "b g t"]:
        """Return the IDs that each row's own task gives it; the name in front has 0."""
        choice = self._choice(sample)
        ids = torch.zeros_like(sample.tokens)[:, None].repeat(1, len(self.coupling_levels), 1)
        for number, task in enumerate(self.of):
            own = ids_of(task, self._inner(sample, number))
            ids[:, :, 1 : own.shape[2] + 1] += own * (choice == number)[:, None, None]
        return ids

    def parse(self, text: str) -> list[int]:
        """The name of a task, as <copy> or copy, and a prompt of it."""
        name, _, prompt = text.strip().partition(" ")
        tag = name if name.startswith("<") else f"<{name}>"
        if tag not in self._names:
            raise BadInput(f"mixture: a prompt begins with the name of its task{nearest(tag, self._names)}")
        number = self._names.index(tag)
        return [number + 1, *(self._outer_tokens[number][token] for token in self.of[number].parse(prompt))]

    def prompt_length(self, tokens: Sequence[int]) -> int:
        number = self._of_prompt(tokens)
        return self.of[number].prompt_length(self._own_tokens(number, tokens[1:]))

    def _choice(self, sample: Sample) -> Int[Tensor, "b"]:
        """The task of each row, as its name says."""
        return (sample.tokens[:, 0] - 1).clamp(0, len(self.of) - 1)

    def _of_prompt(self, tokens: Sequence[int]) -> int:
        if not 1 <= tokens[0] <= len(self.of):
            raise BadInput(f"mixture: a prompt begins with the name of its task, got {self.vocabulary[tokens[0]]}")
        return tokens[0] - 1

    def _own_tokens(self, number: int, tokens: Sequence[int]) -> list[int]:
        """Tokens as the task itself numbers them."""
        numbers = {outer: inner for inner, outer in enumerate(self._outer_tokens[number])}
        for token in tokens:
            if numbers.get(token, PAD) == PAD:
                raise BadInput(f"mixture: {self.vocabulary[token]!r} is not a token of {self.of[number].name}")
        return [numbers[token] for token in tokens]

    @cached_property
    def _outer_tokens(self) -> list[list[int]]:
        """For each task, its tokens as the mixture numbers them."""
        place = {word: number for number, word in enumerate(self.vocabulary)}
        return [[PAD, *(place[word] for word in task.vocabulary[PAD + 1 :])] for task in self.of]

    @cached_property
    def _inner_tokens(self) -> list[list[int]]:
        """For each task, the mixture's tokens as the task numbers them; padding for words that it does not have."""
        known = [{outer: inner for inner, outer in enumerate(tokens)} for tokens in self._outer_tokens]
        return [[numbers.get(token, PAD) for token in range(len(self.vocabulary))] for numbers in known]

    def _stop_added(self, task: Task) -> int:
        """1 where the mixture writes a stop behind the answers of a task that has none."""
        return int(task.stop_token is None and self.stop_token is not None)

    def _merge(self, choice: Int[Tensor, "b"], drawn: Sequence[Sample], width: int) -> Sample:
        """The chosen rows with their names in front.  What is not chosen is kept out of sight: so that every task can
        later be asked about a whole batch of its own samples."""
        hidden: dict[str, Tensor] = {}
        rows: dict[str, Tensor] = {}
        for number, one in enumerate(drawn):
            hidden |= {f"{number} {name}": getattr(one, name) for name in _PLAIN}
            hidden |= {f"{number} hidden {name}": tensor for name, tensor in one.hidden.items()}
            for name, theirs in self._named(one, number, width).items():
                rows[name] = theirs if number == 0 else _pick(choice == number, theirs, rows[name])
        return Sample(**rows, hidden=hidden)

    def _named(self, one: Sample, number: int, width: int) -> dict[str, Tensor]:
        """A task's samples as the mixture writes them."""
        added = self._stop_added(self.of[number])
        wide = (1, width - 1 - one.tokens.shape[1])
        tokens = _table(self._outer_tokens[number], one.tokens.device)[one.tokens]
        is_stop = torch.arange(width, device=tokens.device) == one.num_tokens[:, None] + 1
        tokens = torch.nn.functional.pad(tokens, wide)
        tokens[:, 0] = number + 1
        answer = torch.nn.functional.pad(one.answer, wide)
        if added:
            tokens = tokens.masked_fill(is_stop, self.stop_token or PAD)
            answer = answer | is_stop
        return {
            "tokens": tokens,
            "answer": answer,
            "given": torch.nn.functional.pad(one.given, wide),
            "length": one.length,
            "num_tokens": one.num_tokens + 1 + added,
            "prompt_tokens": one.prompt_tokens + 1,
        }

    def _inner(self, sample: Sample, number: int) -> Sample:
        """The samples of one task without their names; the rows of other tasks are what it drew for them itself, where
        that is known."""
        prefix = f"{number} hidden "
        hidden = {key.removeprefix(prefix): sample.hidden[key] for key in sample.hidden if key.startswith(prefix)}
        drawn = {name: sample.hidden[f"{number} {name}"] for name in _PLAIN if f"{number} {name}" in sample.hidden}
        width = drawn["tokens"].shape[1] if drawn else sample.tokens.shape[1] - 1
        num_tokens = sample.num_tokens - 1 - self._stop_added(self.of[number])
        inside = torch.arange(width, device=num_tokens.device) < num_tokens[:, None]
        tokens = _table(self._inner_tokens[number], inside.device)[sample.tokens[:, 1 : width + 1]]
        own = {
            "tokens": tokens.masked_fill(~inside, PAD),
            "answer": sample.answer[:, 1 : width + 1] & inside,
            "given": sample.given[:, 1 : width + 1],
            "length": sample.length,
            "num_tokens": num_tokens,
            "prompt_tokens": sample.prompt_tokens - 1,
        }
        mine = self._choice(sample) == number
        return Sample(**{name: _pick(mine, own[name], drawn.get(name, own[name])) for name in _PLAIN}, hidden=hidden)


def _pick(rows: Bool[Tensor, "b"], these: Tensor, others: Tensor) -> Tensor:
    return torch.where(rows if these.dim() == 1 else rows[:, None], these, others)


def _table(numbers: Sequence[int], device: torch.device) -> Int[Tensor, "n"]:
    """A table of numbers, made on the device from its rising parts: nothing is copied from the host."""
    parts = []
    for rises, part in groupby(enumerate(numbers), lambda item: item[1] - item[0] if item[1] != PAD else None):
        run = [number for _, number in part]
        if rises is None:
            parts.append(torch.zeros(len(run), dtype=torch.long, device=device))
        else:
            parts.append(torch.arange(run[0], run[-1] + 1, device=device))
    return torch.cat(parts)
