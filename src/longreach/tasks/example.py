"""Tasks given by one method that returns a prompt and its answer."""

import random
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from numbers import Integral
from typing import Any, ClassVar

from longreach.errors import BadInput
from longreach.tasks.base import Form, Level, Sample
from longreach.tasks.plain import FORMS, PlainTask, Row, run_foreign

Words = Sequence[str]
"""Words; a string stands for its characters."""
Ids = Sequence[int] | Sequence[Sequence[int]]
"""An ID for each word, or, with several levels, as many IDs for each word."""
Drawn = tuple[Words, Words] | tuple[Words, Words, tuple[Ids, Ids]]
"""Prompt, answer and perhaps their IDs."""
WordIds = list[tuple[int, ...]]
"""For each word its ID at every level."""

_REMEMBERED = 1 << 17
"""Prompts whose random key is kept, so that their answers and IDs can be drawn again."""


@dataclass(frozen=True, kw_only=True)
class Example(PlainTask):
    """Base of tasks that are given by examples: a subclass defines `example`.

    The library adds the sign behind the prompt, the stop token, padding, the vocabulary and, if there are IDs, both
    forms of the coupling.  `answer` and `ids` are optional: without them the library looks up prompts that were drawn
    earlier in the same process.
    """

    levels: ClassVar[Sequence[str]] = ()
    """Names of the levels of IDs.  Not needed if there are no IDs, or one level."""

    coupling_by_rule = False

    def example(self, rng: random.Random, length: int) -> Drawn:
        """Draw `(prompt, answer)` or `(prompt, answer, (prompt IDs, answer IDs))`.  All randomness comes from `rng`.

        An ID says what a word belongs to: an answer word has the ID of the prompt words that it is read from.  ID 0
        belongs to nothing.  One more answer ID than there are answer words is that of the stop token.
        """
        raise self._missing("how to draw an example: define example(self, rng, length)")

    def answer(self, prompt: list[str]) -> Words:
        """Return the answer to a prompt, without sign and stop token."""
        raise self._missing("how to answer a prompt")

    def ids(self, prompt: list[str]) -> tuple[Ids, Ids]:
        """Return the IDs of a prompt's words, and of all answer words whose IDs follow from the prompt.

        The ID of the first answer word is always needed: in the aligned form the sign carries it.
        """
        raise self._missing("which IDs the words of a prompt have")

    def signs(self) -> tuple[str, ...]:
        return (self.sign,) if self.sign else ()

    @cached_property
    def coupling_levels(self) -> tuple[Level, ...]:
        if self.levels:
            return tuple(Level(name) for name in self.levels)
        ids = self._first[2]
        count = 0 if ids is None else next((len(word) for part in ids for word in part), 1)
        if count > 1:
            raise BadInput(f"{self.name}: its IDs have {count} levels: name them in `levels`")
        return (Level("place"),) * count

    def row(self, rng: random.Random, length: int) -> Row:
        prompt, answer, ids = self._read(rng, length)
        try:
            coupled = self._coupled(prompt, answer, ids)
        except ValueError as error:
            raise self._refusal(length, error) from error
        return Row(prompt=[*prompt, *self.signs()], answer=answer, ids=coupled)

    def draw(self, key: int, length: int) -> Row:
        row = super().draw(key, length)
        self._drawn[hash(tuple(row.prompt))] = (key, length)
        if len(self._drawn) > _REMEMBERED:
            self._drawn.popitem(last=False)
        return row

    def solve(self, sample: Sample, row: int) -> list[int]:
        prompt = self.words(sample.tokens[row, : int(sample.prompt_tokens[row])].tolist())
        if _is_defined(self, "answer"):
            words = self._answer(prompt)
        else:
            drawn = [(int(sample.hidden["key"][row]), int(sample.length[row]))] if "key" in sample.hidden else []
            words = list(self._find(prompt, drawn, "answer(self, prompt)").answer)
        unknown = [word for word in words if word not in self._numbers]
        if unknown:
            raise BadInput(f"{self.name}: an answer has the word {unknown[0]!r}, which is not in its alphabet")
        return [*(self._numbers[word] for word in words), self.stop_token]

    def prompt_ids(self, prompt: Sequence[str], form: Form) -> Sequence[Sequence[int]]:
        own = _is_defined(self, "ids")
        known = self._ids(prompt)[form] if own else self._find(prompt, [], "ids(self, prompt)").ids[form]
        return known if self.coupling_by_rule else [level[: len(prompt)] for level in known]

    def _looks(self, length: int) -> list[Row]:
        """Return a few samples, after a check that `answer` and `ids` agree with them."""
        rows = super()._looks(length)
        for row in rows:
            if _is_defined(self, "answer") and self._answer(row.prompt) != list(row.answer):
                raise BadInput(
                    f"{self.name}: `answer` gives {' '.join(self._answer(row.prompt))!r} for {' '.join(row.prompt)!r},"
                    f" and `example` {' '.join(row.answer)!r} (length {length})"
                )
            if _is_defined(self, "ids") and row.ids:
                known, size = self._ids(row.prompt), len(row.prompt)
                for form in FORMS:
                    end = len(row.prompt) + len(row.answer) if self.coupling_by_rule else size
                    theirs = [list(level[:end]) for level in known[form]]
                    ours = [list(level[:end]) for level in row.ids[form]]
                    if theirs != ours:
                        raise BadInput(
                            f"{self.name}: `ids` and `example` differ on the {form} IDs of {' '.join(row.prompt)!r}:"
                            f" {theirs} and {ours} (length {length})"
                        )
        return rows

    @cached_property
    def _drawn(self) -> OrderedDict[int, tuple[int, int]]:
        """Return, by hash of a prompt, key and length of the sample that had it."""
        return OrderedDict()

    def _find(self, prompt: Sequence[str], addresses: list[tuple[int, int]], method: str) -> Row:
        """Return the sample with this prompt, drawn again."""
        earlier = self._drawn.get(hash(tuple(prompt)))
        for key, length in [*addresses, *([earlier] if earlier else [])]:
            row = self.draw(key, length)
            if list(row.prompt) == list(prompt):
                return row
        raise BadInput(f"{self.name}: no sample drawn so far has the prompt {' '.join(prompt)!r:.60}: define {method}")

    @cached_property
    def _first(self) -> tuple[list[str], list[str], tuple[WordIds, WordIds] | None]:
        """Return one example, of the first length that the task has."""
        refusal: BadInput | None = None
        for length in range(1, 41):
            try:
                self.check_length(length)
                return run_foreign(self.name, partial(self._read, random.Random(0), length))
            except BadInput as error:
                refusal = refusal or error
        assert refusal is not None
        raise refusal

    def _read(self, rng: random.Random, length: int) -> tuple[list[str], list[str], tuple[WordIds, WordIds] | None]:
        """Return a drawn example as words and IDs; raise BadInput for anything else."""
        found: Any = self.example(rng, length)
        try:
            if not isinstance(found, tuple) or len(found) not in (2, 3):
                raise ValueError(f"must return (prompt, answer) or (prompt, answer, ids), got {found!r:.60}")
            prompt, answer = read_words(found[0], "the prompt"), read_words(found[1], "the answer")
            self._check_words(prompt, answer)
            ids = None if len(found) == 2 else read_ids(found[2], len(prompt), len(answer))
        except ValueError as error:
            raise self._refusal(length, error) from error
        return prompt, answer, ids

    def _check_words(self, prompt: list[str], answer: list[str]) -> None:
        for word in (*prompt, *answer):
            if word in (self.pad, self.stop):
                raise ValueError(f"the word {word!r} is padding or the stop token: set `pad` and `stop` to others")
            if word.split() != [word]:
                raise ValueError(f"a word must not hold blanks, got {word!r}")
        if self.sign and prompt[-1:] == [self.sign]:
            raise ValueError(f"the prompt ends with {self.sign!r}, which the library adds: leave it out, or set `sign`")
        if not prompt and not self.sign:
            raise ValueError("the prompt is empty")

    def _coupled(
        self, prompt: list[str], answer: list[str], ids: tuple[WordIds, WordIds] | None
    ) -> dict[Form, list[list[int]]]:
        """Return both forms of the coupling; empty without levels."""
        levels = self.coupling_levels
        if (ids is None) != (not levels):
            raise ValueError(f"must {'always' if ids is None else 'never'} return IDs, as its other samples do")
        if ids is None:
            return {}
        for word in (*ids[0], *ids[1]):
            if len(word) != len(levels):
                raise ValueError(f"must give an ID at {len(levels)} levels for each word, got {word}")
        return couple(*ids, len(answer), bool(self.sign), levels)

    def _answer(self, prompt: Sequence[str]) -> list[str]:
        """Return what the user's `answer` says."""
        words = run_foreign(self.name, lambda: self.answer(self._without_sign(prompt)))
        try:
            return read_words(words, "it")
        except ValueError as error:
            raise BadInput(f"{self.name}: answer must return words: {error}") from error

    def _ids(self, prompt: Sequence[str]) -> dict[Form, list[list[int]]]:
        """Return what the user's `ids` says, for the prompt and the answer words that it knows of."""
        words = self._without_sign(prompt)
        found = run_foreign(self.name, lambda: self.ids(words))
        try:
            known = read_ids(found, len(words), None)
            return self._coupled(words, [""] * len(known[1]), known)
        except ValueError as error:
            raise BadInput(f"{self.name}: ids of {' '.join(words)!r:.60}: {error}") from error

    def _without_sign(self, prompt: Sequence[str]) -> list[str]:
        return list(prompt[:-1]) if self.sign and prompt[-1:] == [self.sign] else list(prompt)

    def _refusal(self, length: int, error: Exception) -> BadInput:
        return BadInput(f"{self.name}: example at length {length}: {error}")


def read_words(value: object, name: str) -> list[str]:
    """Return words as a list; raise ValueError for anything else."""
    if isinstance(value, str):
        return list(value)
    if isinstance(value, list | tuple) and all(isinstance(word, str) and word for word in value):
        return list(value)
    raise ValueError(f"{name} must be a list of words or a string, got {value!r:.60}")


def read_ids(value: object, prompt: int, answer: int | None) -> tuple[WordIds, WordIds]:
    """Return the IDs of so many words of a prompt and of an answer; raise ValueError for anything else.

    The answer may have one ID more, that of the stop token.  If `answer` is None, it may have any number of IDs.
    """
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise ValueError(f"IDs must be (IDs of the prompt, IDs of the answer), got {value!r:.60}")
    first, second = _word_ids(value[0]), _word_ids(value[1])
    if len(first) != prompt:
        raise ValueError(f"the prompt has {prompt} words and {len(first)} IDs")
    if answer is not None and len(second) not in (answer, answer + 1):
        raise ValueError(f"the answer has {answer} words and {len(second)} IDs")
    return first, second


def _word_ids(value: object) -> WordIds:
    if not isinstance(value, list | tuple):
        raise ValueError(f"IDs must be a list, got {value!r:.60}")
    found = [tuple(word) if isinstance(word, list | tuple) else (word,) for word in value]
    for word in found:
        for one in word:
            if not isinstance(one, Integral) or isinstance(one, bool) or one < 0:
                raise ValueError(f"an ID must be a whole number from 0, got {one!r:.60}")
    return [tuple(int(one) for one in word) for word in found]


def couple(
    prompt: WordIds, answer: WordIds, answer_words: int, has_sign: bool, levels: Sequence[Level]
) -> dict[Form, list[list[int]]]:
    """Return the IDs of prompt, sign and answer in both forms, for each level.

    Published: each word has its own ID, and the sign has none.  Aligned: the token before an answer word carries that
    word's ID.  IDs of a level that grows are numbered from 1 without gaps.
    """
    forms: dict[Form, list[list[int]]] = {"published": [], "aligned": []}
    for number, level in enumerate(levels):
        own = [word[number] for word in prompt] + [0] * has_sign + [word[number] for word in answer]
        size, last = len(prompt) + has_sign + answer_words, len(prompt) + has_sign - 1
        if not level.grows and max(own, default=0) > level.size:
            raise ValueError(f"an ID of level {level.name} is {max(own)}, which is more than {level.size}")
        shifted = [*own[:last], *own[last + 1 :], 0][:size]
        forms["published"].append(_numbered(own[:size], level))
        forms["aligned"].append(_numbered(shifted, level))
    return forms


def _numbered(ids: list[int], level: Level) -> list[int]:
    """Number the IDs of a level that grows from 1 without gaps; 0 stays."""
    if not level.grows:
        return ids
    ranks = {one: rank for rank, one in enumerate(sorted({0, *ids}))}
    return [ranks[one] for one in ids]


def _is_defined(task: Example, method: str) -> bool:
    return getattr(type(task), method) is not getattr(Example, method)
