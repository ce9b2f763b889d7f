"""Tasks whose samples are the rows of a file: JSON lines, Parquet or a saved dataset."""

import bisect
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

from longreach.config import Natural
from longreach.config.registry import nearest, register
from longreach.errors import BadInput
from longreach.tasks.base import Form, Level, Sample
from longreach.tasks.plain import PlainTask, Row
from longreach.tasks.row_file import Entry, RowFile, file_state, load_file
from longreach.text import SplitName
from longreach.text.tokenizer import END, PAD


@register("task", "jsonl")
@dataclass(frozen=True, kw_only=True)
class Jsonl(PlainTask):
    """Rows of a file with the columns prompt and answer, for example {"prompt": "12+7=", "answer": "19"}.

    The file is JSON lines (.jsonl), Parquet (.parquet) or a folder that `Dataset.save_to_disk` wrote.  Prompts and
    answers are strings or lists of tokens.  The optional column `length` is the length of a row; without it the length
    is the number of prompt tokens.  The optional column `ids` holds two lists: an ID for each prompt token, and for
    each answer token.  A prompt is used as it stands: no sign is added.  Of equal rows one is kept.
    """

    pad = PAD
    stop = END
    sign = ""
    coupling_by_rule = False

    path: str = ""
    """The file, or the folder of a saved dataset."""
    tokens: str = "auto"
    """How strings are cut: `character`, `word` (at blanks), or the path or name of a tokenizer.json.  `auto`: by
    characters, unless the file holds lists of tokens."""
    held_out_share: float = 0.1
    """Share of the rows that training never shows, chosen by a hash of the prompt.  Validation and tests use them."""
    test_beyond: Natural = 0
    """Training shows no row that is longer than this, and tests use all of them; 0: the longest training length."""
    split: Literal["train", "test"] = "train"
    """Which rows `show` draws from.  A run trains on `train` and is validated and tested on `test`."""

    def __post_init__(self) -> None:
        if not 0 < self.held_out_share < 1:
            raise ValueError(f"jsonl.held_out_share must be above 0 and below 1, got {self.held_out_share}")
        if not self.tokens:
            raise ValueError("jsonl.tokens is empty: character, word, auto or a tokenizer")

    @property
    def reads_files(self) -> bool:
        return True

    @property
    def fingerprint(self) -> str:
        return self.file.fingerprint

    @cached_property
    def file(self) -> RowFile:
        """Return the whole file, read once per process while it does not change."""
        if not self.path:
            raise BadInput("task.path is missing: a .jsonl or .parquet file, or the folder of a saved dataset")
        path = Path(self.path)
        if not path.exists():
            raise BadInput(f"there is no file {self.path}")
        return load_file(path, file_state(path), self.tokens)

    def held_out(self, split: SplitName, longest: int = 0) -> "Jsonl":
        if self.split != "train":
            raise BadInput("task.split is for `show`: a run trains on train and is tested on test")
        part: Literal["train", "test"] = "train" if split == "train" else "test"
        other = replace(self, split=part, test_beyond=self.test_beyond or longest)
        other.__dict__["file"] = self.file  # what changes on the disk during a run does not change the run
        return other

    def __getstate__(self) -> dict[str, object]:
        """Return the settings only: another process reads the file itself."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def num_rows(self, length: int) -> int:
        return len(self._by_length.get(length, ()))

    @cached_property
    def _by_length(self) -> dict[int, list[Row]]:
        """Return the rows of the split, by length, in an order that the file's order does not change."""
        found: dict[int, list[Row]] = {}
        for entry in self.file.entries:
            beyond = self.test_beyond and entry.length > self.test_beyond
            if bool(beyond or entry.place < self.held_out_share) == (self.split == "test"):
                found.setdefault(entry.length, []).append(entry.row)
        return found

    @cached_property
    def _lengths(self) -> list[int]:
        return sorted(self._by_length)

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        return (self.pad, self.stop, *self.file.words)

    @property
    def coupling_levels(self) -> tuple[Level, ...]:
        return self.file.levels if self.path else ()

    def check_length(self, length: int) -> None:
        if length in self._by_length:
            return
        at = bisect.bisect(self._lengths, length)
        near = sorted(sorted(self._lengths[max(0, at - 3) : at + 3], key=lambda known: abs(known - length))[:3])
        kind = "rows for training" if self.split == "train" else "held-out rows"
        others = f"the nearest lengths with some: {', '.join(map(str, near))}" if near else "nor of any other length"
        raise BadInput(f"jsonl: {self.path} has no {kind} of length {length}; {others}")

    def max_tokens(self, length: int) -> int:
        return self._largest(length)[0]

    def max_answer(self, length: int) -> int:
        return self._largest(length)[1]

    def _largest(self, length: int) -> tuple[int, int]:
        known = self.file.largest
        at = bisect.bisect_right(known, length, key=lambda entry: entry[0]) - 1
        return known[max(0, at)][1:]

    def draw(self, key: int, length: int) -> Row:
        if length not in self._by_length:
            self.check_length(length)
        rows = self._by_length[length]
        return rows[key % len(rows)]

    def solve(self, sample: Sample, row: int) -> list[int]:
        found = self._find(self.words(sample.tokens[row, : int(sample.prompt_tokens[row])].tolist()))
        return [*(self._numbers[word] for word in found.row.answer), self.stop_token]

    def prompt_ids(self, prompt: Sequence[str], form: Form) -> Sequence[Sequence[int]]:
        return [level[: len(prompt)] for level in self._find(prompt).row.ids[form]]

    def prompt_length(self, tokens: Sequence[int]) -> int:
        """Return the length of the row with this prompt, or of one whose prompt is nearest in size."""
        words = tuple(self.words(tokens))
        entry = self.file.by_prompt.get(words)
        return (entry or min(self.file.entries, key=lambda one: abs(len(one.row.prompt) - len(words)))).length

    def _find(self, prompt: Sequence[str]) -> Entry:
        entry = self.file.by_prompt.get(tuple(prompt))
        if entry is None:
            shown = self.file.cut.join(prompt)
            raise BadInput(f"jsonl: {self.path} has no row with the prompt {shown!r:.60}: answer and IDs are not known")
        return entry

    def parse(self, text: str) -> list[int]:
        cut = self.file.cut
        # `show` writes blanks between characters
        words = cut.split("".join(text.split()) if cut.name == "character" and " " not in self._numbers else text)
        for word in words:
            if word not in self._numbers:
                raise BadInput(f"jsonl: {word!r} is not a token of {self.path}{nearest(word, self.file.words)}")
        if not words:
            raise BadInput("jsonl: the prompt is empty")
        return [self._numbers[word] for word in words]

    def spell(self, tokens: Sequence[int]) -> str:
        words = self.words(tokens)
        end = [self.stop] * (words[-1:] == [self.stop])
        return " ".join(filter(None, [self.file.cut.join(words[: len(words) - len(end)]), *end]))
