"""Tasks written in plain Python, one sample at a time: rows of words become a batch."""

import math
import random
import sysconfig
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Int
from numpy.typing import NDArray
from torch import Tensor

from longreach.errors import BadInput, lacks_memory
from longreach.seeding import Draws, stream
from longreach.tasks.base import Form, Sample, Task

T = TypeVar("T")

FORMS: tuple[Form, ...] = ("published", "aligned")
_PACKAGE = Path(__file__).parents[1]


@dataclass(frozen=True)
class Row:
    """One sample in words.  The batch adds padding and, behind the answer, the stop token."""

    prompt: Sequence[str]
    answer: Sequence[str]
    """Without the stop token."""
    ids: Mapping[Form, Sequence[Sequence[int]]] = field(default_factory=dict)
    """By form: for each level an ID of every token of prompt and answer.  The stop token has the reserved ID."""
    reads: Sequence[Sequence[int]] | None = None
    """For each answer token, the stop included: indices of the tokens that it depends on."""
    given: Sequence[int] = ()
    """Indices of answer tokens, from the beginning of the answer, that are drawn and not predicted."""


@dataclass(frozen=True, kw_only=True)
class PlainTask(Task):
    """Base of tasks whose samples are drawn one at a time by plain Python code.

    A subclass gives `row`.  The vocabulary is `alphabet`, or all words of a few hundred samples.
    """

    pad: ClassVar[str] = "_"
    stop: ClassVar[str] = "."
    """The word that ends every answer."""
    sign: ClassVar[str] = "="
    """The word between prompt and answer."""

    @property
    def alphabet(self) -> Sequence[str]:
        """Return all words of prompts and answers but the signs.  Empty: they are collected from samples."""
        return ()

    @property
    def draws_on_host(self) -> bool:
        return True

    def row(self, rng: random.Random, length: int) -> Row:
        """Draw one sample.  All its randomness comes from `rng`."""
        raise self._missing("how to draw a sample")

    def signs(self) -> tuple[str, ...]:
        """Return the words that the library adds to those of samples."""
        return (self.sign,)

    def draw(self, key: int, length: int) -> Row:
        """Return the row at an address of the random numbers; an error in a subclass names its line."""
        return run_foreign(self.name, lambda: self.row(random.Random(key), length))

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        words = list(dict.fromkeys(self.alphabet)) or self._collected
        own = [self.pad, self.stop, *self.signs()]
        twice = sorted(set(own) & set(words) - {*self.signs()})
        if twice:
            raise BadInput(
                f"{self.name}: {' '.join(twice)} is padding or the stop token; set `pad` and `stop` to others"
            )
        return tuple(dict.fromkeys([*own, *words]))

    @property
    def _collected(self) -> list[str]:
        """Return every word of a few hundred samples, sorted."""
        found: set[str] = set()
        failures = []
        for length in range(1, 41):
            try:
                self.check_length(length)
                rows = self._looks(length)
            except BadInput as error:  # the task need not have every length
                failures.append(error)
                continue
            for row in rows:
                found.update(row.prompt, row.answer)
        if len(failures) == 40:
            raise failures[0]
        return sorted(found - {self.pad, self.stop, *self.signs()}, key=lambda word: (len(word), word))

    @cached_property
    def stop_token(self) -> int:
        return 1

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.vocabulary)}

    def max_tokens(self, length: int) -> int:
        """Return a bound taken from a few samples, with a margin if their sizes differ."""
        return self._most(length)[0]

    def max_answer(self, length: int) -> int:
        return min(self.max_tokens(length) - 1, self._most(length)[1])

    def _most(self, length: int) -> tuple[int, int]:
        known: dict[int, tuple[int, int]] = self._cache("most")
        if length not in known:
            rows = self._looks(length)
            sizes = [len(row.prompt) + len(row.answer) + 1 for row in rows]
            answers = [len(row.answer) + 1 for row in rows]
            known[length] = (_bound(sizes), _bound(answers))
        return known[length]

    def _looks(self, length: int) -> list[Row]:
        """Return a few samples of a length, the same each time."""
        count = 64 if length <= 64 else 16 if length <= 1024 else 4
        keys = stream(0, "look", torch.arange(count)).key.tolist()
        return [self.draw(key, length) for key in keys]

    def sample(self, length: Int[Tensor, "b"], draws: Draws, max_length: int) -> Sample:
        arrays = self.encode(draws.key.tolist(), length.tolist(), self.max_tokens(max_length))
        return self.from_arrays(arrays, length)

    def encode(self, keys: Sequence[int], lengths: Sequence[int], width: int) -> dict[str, NDArray[Any]]:
        """Draw rows and return them as arrays.  Worker processes call it."""
        rows = [self.draw(key, length) for key, length in zip(keys, lengths, strict=True)]
        levels = len(self.coupling_levels)
        arrays: dict[str, Any] = {
            "tokens": np.zeros((len(rows), width), dtype=np.int64),
            "given": np.zeros((len(rows), width), dtype=bool),
            "num_tokens": np.zeros(len(rows), dtype=np.int64),
            "prompt_tokens": np.zeros(len(rows), dtype=np.int64),
        }
        for form in FORMS if levels else ():
            arrays[form] = np.zeros((len(rows), levels, width), dtype=np.int64)
        for number, (row, length) in enumerate(zip(rows, lengths, strict=True)):
            tokens = self._tokens(row, length)
            if len(tokens) > width:
                raise BadInput(
                    f"{self.name}: a sample of length {length} has {len(tokens)} tokens, more than the {width} that"
                    " max_tokens allows: define max_tokens(self, length)"
                )
            arrays["tokens"][number, : len(tokens)] = tokens
            arrays["num_tokens"][number], arrays["prompt_tokens"][number] = len(tokens), len(row.prompt)
            for index in row.given:
                arrays["given"][number, len(row.prompt) + index] = True
            for form in FORMS if levels else ():
                for level, ids in enumerate(row.ids[form]):
                    arrays[form][number, level, : len(ids)] = ids
        arrays["key"] = np.array(keys, dtype=np.int64)
        return arrays

    def from_arrays(self, arrays: Mapping[str, NDArray[Any]], length: Int[Tensor, "b"]) -> Sample:
        """Return the batch of encoded rows, on the device of their lengths."""
        made = {name: torch.from_numpy(array).to(length.device, non_blocking=True) for name, array in arrays.items()}
        index = torch.arange(made["tokens"].shape[1], device=length.device)
        answer = (index < made["num_tokens"][:, None]) & (index >= made["prompt_tokens"][:, None])
        return Sample(
            tokens=made["tokens"],
            answer=answer,
            given=made["given"],
            length=length,
            num_tokens=made["num_tokens"],
            prompt_tokens=made["prompt_tokens"],
            hidden={name: made[name] for name in (*FORMS, "key") if name in made},
        )

    def _tokens(self, row: Row, length: int) -> list[int]:
        numbers = self._numbers
        try:
            return [*(numbers[word] for word in row.prompt), *(numbers[word] for word in row.answer), self.stop_token]
        except KeyError as error:
            raise BadInput(
                f"{self.name}: a sample of length {length} has the word {error.args[0]!r}, which is not in its alphabet"
            ) from error

    def rows_of(self, sample: Sample) -> list[Row]:
        """Return the rows of a drawn batch."""
        if "key" not in sample.hidden:
            raise BadInput(f"{self.name}: a typed prompt does not say what its answer depends on")
        pairs = zip(sample.hidden["key"].tolist(), sample.length.tolist(), strict=True)
        return [self.draw(key, length) for key, length in pairs]

    def depends_on(self, sample: Sample) -> Bool[Tensor, "b t t"]:
        b, t = sample.tokens.shape
        needs = torch.zeros(b, t, t, dtype=torch.bool)
        for number, row in enumerate(self.rows_of(sample)):
            if row.reads is None:
                raise self._missing("what its answers depend on")
            for index, reads in enumerate(row.reads, start=len(row.prompt)):
                needs[number, index, list(reads)] = True
        return needs.to(sample.tokens.device) & (sample.answer & ~sample.given)[:, :, None]

    def sparsity(self, length: int) -> int:
        """Return the most tokens that an answer token of a few samples depends on."""
        known: dict[int, int] = self._cache("sparsity")
        if length not in known:
            counts = [len(set(reads)) for row in self._looks(length) for reads in row.reads or ()]
            if not counts:
                raise self._missing("how many tokens an answer depends on")
            known[length] = max(counts)
        return known[length]

    def coupling(self, sample: Sample, form: Form) -> Int[Tensor, "b g t"]:
        if not self.coupling_levels:
            return super().coupling(sample, form)
        if form in sample.hidden:
            return sample.hidden[form]
        ids = torch.zeros(len(sample.tokens), len(self.coupling_levels), sample.tokens.shape[1], dtype=torch.long)
        for number, (tokens, end) in enumerate(zip(sample.tokens.tolist(), sample.prompt_tokens.tolist(), strict=True)):
            for level, known in enumerate(self.prompt_ids(self.words(tokens[:end]), form)):
                ids[number, level, : len(known)] = torch.tensor(known)
        return ids.to(sample.tokens.device)

    def prompt_ids(self, prompt: Sequence[str], form: Form) -> Sequence[Sequence[int]]:
        """Return the IDs of a prompt's words, the sign included, for each level."""
        raise self._missing("which IDs the words of a prompt have")

    def parse(self, text: str) -> list[int]:
        """Return the tokens of a prompt, as words or, if a word is none, its characters; the sign need not be typed."""
        words: list[str] = []
        for word in text.split():
            spelled = word not in self._numbers and all(character in self._numbers for character in word)
            words.extend(word if spelled else [word])
        if self.sign and words[-1:] != [self.sign]:
            words.append(self.sign)
        return super().parse(" ".join(words))

    def prompt_length(self, tokens: Sequence[int]) -> int:
        """Return the length whose prompts are nearest in size, found by drawing prompts."""
        sizes: dict[int, float] = self._cache("sizes")
        (key,) = stream(0, "look", torch.arange(1)).key.tolist()

        def size(length: int) -> float:
            if length not in sizes:
                try:
                    self.check_length(length)
                    sizes[length] = float(len(self.draw(key, length).prompt))
                except BadInput:
                    too_long = length > 64 or any(math.isfinite(sizes[other]) for other in sizes if other < length)
                    sizes[length] = math.inf if too_long else -math.inf
            return sizes[length]

        low, high = 0, 1
        while size(high) < len(tokens) and high < 1 << 20:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if size(middle) < len(tokens) else (low, middle)
        return high if low == 0 or size(high) - len(tokens) <= len(tokens) - size(low) else low

    def _cache(self, name: str) -> Any:
        """Return a dictionary that lives as long as the task."""
        return self.__dict__.setdefault(f"_{name}_cache", {})


def _bound(sizes: Sequence[int]) -> int:
    """Return the largest size, and more if sizes differ: other samples may be larger."""
    most = max(sizes)
    return most if min(sizes) == most else most + max(4, most // 4)


def run_foreign(name: str, call: Callable[[], T]) -> T:
    """Run a user's code.  An error is raised again in one line that names the user's file and line."""
    try:
        return call()
    except BadInput:
        raise
    except Exception as error:
        if lacks_memory(error):
            raise
        frames = traceback.extract_tb(error.__traceback__)
        libraries = (sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
        installed = (
            str(_PACKAGE),
            "<",
            *libraries,
        )  # code without a file, such as a dataclass's __init__, has <string>
        own = [frame for frame in frames if not frame.filename.startswith(installed)]
        frame = own[-1] if own else frames[-1]
        where = f"{frame.filename}:{frame.lineno}"
        raise BadInput(f"{name}: {type(error).__name__} in {where} ({frame.line}): {error}") from error
