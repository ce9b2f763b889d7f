"""Programs with cursors: a user writes the algorithm, and scratchpad, dependencies and position IDs follow from it."""

import inspect
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from longreach.errors import BadInput
from longreach.seeding import Draws
from longreach.tasks.base import Form, Level, Sample
from longreach.tasks.cursors import Trace
from longreach.tasks.plain import PlainTask, Row, run_foreign
from longreach.tasks.regions import Layout, Region

Regions = Mapping[str, Sequence[str]]
"""The words of each region; a string stands for its characters."""

_PLAIN = Region()


@dataclass(frozen=True, kw_only=True)
class Program(PlainTask):
    """Base of tasks that are written as an algorithm with cursors.

    A subclass gives `prompt`, which draws the words of each region, and `run`, whose parameters name the cursors.
    `write(word)` writes a token of the answer.  A written token must be a function of the tokens that were read since
    the last write, and so must be the moves of the cursors that follow it: nothing may be carried in Python variables.

    Each cursor is one level of IDs.  The words of a region have their places as IDs.  A written token carries the
    places of all cursors: those at which the next step starts to read (aligned), or those it was read at (published).
    """

    regions: ClassVar[Mapping[str, Region]] = {}
    """Regions that differ from the usual one, which is closed by `;`, in the order of the prompt."""
    cursors: ClassVar[Mapping[str, str]] = {}
    """Region of each cursor that does not have the name of its region."""
    levels: ClassVar[Mapping[str, str]] = {}
    """Level of each cursor that does not have a level of its own.  Cursors on one level move together."""
    counted: ClassVar[Sequence[str]] = ()
    """Regions whose places `length` counts.  Empty: the length of a typed prompt is found by drawing others."""

    most_reads: ClassVar[int] = 0
    """The most tokens that an answer token depends on, if it is known.  0: it is counted in a few samples."""

    coupling_by_rule = False

    def prompt(self, rng: random.Random, length: int) -> Regions:
        """Draw the words of every region.  All randomness comes from `rng`."""
        raise self._missing("how to draw a prompt")

    def longest(self, length: int) -> Regions | None:
        """Return a prompt whose sample has as many tokens as any of this length.  None: a few samples give a bound."""
        return None

    run: ClassVar[Callable[..., None]]
    """`run(self, CURSOR, ..., write)`: the algorithm."""

    # what follows from the class

    @cached_property
    def layout(self) -> Layout:
        """Return the regions, cursors and levels of the program."""
        run = getattr(type(self), "run", None)
        if run is None:
            raise self._missing("how to work out an answer: define run(self, ..., write)")
        names = [name for name in inspect.signature(run).parameters if name != "self"]
        if "write" not in names:
            raise BadInput(f"{self.name}: run must have a parameter `write`")
        names.remove("write")
        of_cursor = {name: self.cursors.get(name, name) for name in names}
        order = list(dict.fromkeys([*self.regions, *of_cursor.values()]))
        specs = {name: self.regions.get(name, _PLAIN) for name in order}
        unused = [name for name in (*self.cursors, *self.levels) if name not in names]
        if unused:
            raise BadInput(f"{self.name}: run has no parameter {unused[0]!r}")
        return Layout(specs, of_cursor, {name: self.levels.get(name, name) for name in names})

    @cached_property
    def coupling_levels(self) -> tuple[Level, ...]:
        return self.layout.coupling_levels

    @property
    def has_given(self) -> bool:
        return any(spec.given for spec in self.layout.specs.values())

    def signs(self) -> tuple[str, ...]:
        own = [word for spec in self.layout.specs.values() for word in (spec.opening, spec.close, spec.mark) if word]
        return tuple(dict.fromkeys([self.sign, *own]))

    # one sample

    def row(self, rng: random.Random, length: int) -> Row:
        return self.trace(self.prompt(rng, length)).row()

    def sparsity(self, length: int) -> int:
        return self.most_reads or super().sparsity(length)

    def _most(self, length: int) -> tuple[int, int]:
        longest = self.longest(length)
        if longest is None:
            return super()._most(length)
        row = run_foreign(self.name, lambda: self.trace(longest)).row()
        return len(row.prompt) + len(row.answer) + 1, len(row.answer) + 1

    def trace(self, regions: Regions) -> Trace:
        """Run the program and return what it read and wrote."""
        missing = [name for name in self.layout.specs if name not in regions and not self.layout.specs[name].written]
        unknown = [name for name in regions if name not in self.layout.specs]
        if missing or unknown:
            raise BadInput(
                f"{self.name}: prompt gives the regions {', '.join(regions)}, but run and `regions` name"
                f" {', '.join(self.layout.specs)}"
            )
        trace = self._begin(regions)
        self.run(**trace.arguments)
        trace.finish()
        return trace

    def _begin(self, regions: Regions) -> Trace:
        words = {name: list(words) for name, words in regions.items()}
        return Trace(self.name, self.sign, self.stop, self.layout, words)

    def solve(self, sample: Sample, row: int) -> list[int]:
        end, size = int(sample.prompt_tokens[row]), int(sample.num_tokens[row])
        tokens = sample.tokens[row].tolist()
        given = sample.given[row].nonzero()[:, 0].tolist()
        drawn = [self.vocabulary[tokens[i]] for i in given if i < size and tokens[i] != self.stop_token]
        regions = self.read_prompt(self.words(tokens[:end]), drawn)
        answer = run_foreign(self.name, lambda: self.trace(regions)).answer
        return [*(self._numbers[word] for word in answer), self.stop_token]

    def prompt_ids(self, prompt: Sequence[str], form: Form) -> Sequence[Sequence[int]]:
        regions = self.read_prompt(prompt)
        if self.coupling_by_rule:
            return run_foreign(self.name, lambda: self.trace(regions)).row().ids[form]
        return self._begin(regions).prompt_ids(form)

    def read_prompt(self, prompt: Sequence[str], given: Sequence[str] = ()) -> dict[str, list[str]]:
        """Return the words of each region, found in a whole prompt by its signs."""
        words, at = list(prompt), 0
        if not words or words[-1] != self.sign:
            raise BadInput(f"{self.name}: a prompt ends with {self.sign}, got {' '.join(words)!r}")
        shown = [(name, spec) for name, spec in self.layout.specs.items() if not (spec.written or spec.given)]
        found: dict[str, list[str]] = {name: [*given] for name, spec in self.layout.specs.items() if spec.given}
        for number, (name, spec) in enumerate(shown):
            in_front = [spec.opening] * bool(spec.opening) + [spec.close] * (bool(spec.close) and spec.backward)
            if words[at : at + len(in_front)] != in_front:
                self._refuse_prompt(words, f"{' '.join(in_front)} is missing before {name}")
            at += len(in_front)
            ending = spec.close if spec.close and not spec.backward else ""
            if spec.size and not ending:
                found[name], at = words[at : at + spec.size], at + spec.size
                continue
            if not ending:
                following = shown[number + 1][1] if number + 1 < len(shown) else None
                ending = self.sign if following is None else following.opening
                if following is not None and not ending:
                    ending = following.close if following.backward else ""
            if not ending:
                raise BadInput(
                    f"{self.name}: region {name} needs `close` or `size`, or the next one `opening`, to be read back"
                )
            if ending not in words[at:]:
                self._refuse_prompt(words, f"{ending} is missing behind {name}")
            end = words.index(ending, at)
            found[name] = words[at:end]
            if (end - at) % spec.record:
                self._refuse_prompt(words, f"{name} has records of {spec.record} words")
            at = end + (ending == spec.close and not spec.backward)
        if words[at:] != [self.sign]:
            self._refuse_prompt(words, f"{' '.join(words[at:])} stands behind the last region")
        return found

    def prompt_length(self, tokens: Sequence[int]) -> int:
        if not self.counted:
            return super().prompt_length(tokens)
        found = self.read_prompt(self.words(tokens))
        return sum(len(found[name]) // self.layout.specs[name].record for name in self.counted)

    def redraw(self, sample: Sample, draws: Draws) -> Sample:
        """Shuffle the words of the prompt that no answer depends on, within each field of each region.

        This keeps the law of prompts whose words are exchangeable.  Other programs must define their own.
        """
        tokens = sample.tokens.clone()
        for number, (row, key) in enumerate(zip(self.rows_of(sample), draws.key.tolist(), strict=True)):
            rng, needed = random.Random(key), {index for reads in row.reads or () for index in reads}
            for column in self._begin(self.read_prompt(row.prompt)).columns():
                unread = [index for index in column if index not in needed]
                tokens[number, unread] = sample.tokens[number, rng.sample(unread, len(unread))]
        return replace(sample, tokens=tokens)

    def _refuse_prompt(self, words: Sequence[str], reason: str) -> None:
        raise BadInput(f"{self.name}: {' '.join(words)!r} is no prompt: {reason}")

    def parse(self, text: str) -> list[int]:
        tokens = super().parse(text)
        self.read_prompt(self.words(tokens))
        return tokens
