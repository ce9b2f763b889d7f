"""Predict the next token of a text, at every place of a window."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from longreach.config.registry import register
from longreach.errors import BadInput
from longreach.seeding import Draws
from longreach.tasks.base import Form, Level, Sample, Task, build_sample
from longreach.tasks.structure import Structure, Traits
from longreach.text import Corpus, Split, SplitName

_ON_DEVICE = 8 << 30
"""Bytes of text that are copied to a GPU; of a larger text every batch is read from the disk."""


@register("task", "text")
@dataclass(frozen=True, kw_only=True)
class Text(Task):
    """A window of a prepared corpus; every token but the first is to be predicted.

    `length` is the number of tokens in a window.  Windows begin anywhere, also within a document, and may hold the end
    of one and the beginning of the next, with an end mark between them.  There is no right answer, only a more or less
    likely one: what counts is the loss.
    """

    corpus: str = ""
    """A folder that `longreach text prepare` made."""
    split: SplitName = "train"
    """Which of its documents.  Training is validated on `valid` and tested on `test`, whatever this says."""

    structure: Structure = field(default_factory=Structure)
    """Which coupled IDs the text has, for ID policies that take them; none, unless it names what ends a segment."""

    @property
    def vocabulary(self) -> tuple[str, ...]:
        return self.opened.tokenizer.vocabulary

    @property
    def stop_token(self) -> int:
        return self.opened.tokenizer.end

    @property
    def open_ended(self) -> bool:
        return True

    @property
    def reads_files(self) -> bool:
        return True

    @property
    def fingerprint(self) -> str:
        return self.opened.fingerprint

    def held_out(self, split: SplitName, longest: int = 0) -> "Text":
        return replace(self, split=split)

    @property
    def _folder(self) -> Path:
        if not self.corpus:
            raise BadInput("task.corpus is missing: a folder that `longreach text prepare` made")
        return Path(self.corpus).resolve()

    @property
    def opened(self) -> Corpus:
        return _open(self._folder)

    @property
    def documents(self) -> Split:
        return _split(self._folder, self.split)

    def check_length(self, length: int) -> None:
        have = len(self.documents.tokens)
        if not 2 <= length <= have:
            raise BadInput(f"text: a window must have 2..{have} tokens, which is all {self.split} text, got {length}")

    def max_tokens(self, length: int) -> int:
        return length

    def sample(self, length: Int[Tensor, "b"], draws: Draws, max_length: int) -> Sample:
        places = len(self.documents.tokens) - max_length + 1
        start = (draws.uniform("start", 1) * places).long()
        tokens = self.read(start + torch.arange(max_length, device=length.device))
        return build_sample(tokens, length, torch.ones_like(length), length)

    def read(self, places: Int[Tensor, "b t"]) -> Int[Tensor, "b t"]:
        """The tokens at some places of the split."""
        if places.is_cuda:
            stored = _on_device(self._folder, self.split, str(places.device))
            if stored is not None:
                return stored[places].long() & _ALL_BITS[stored.dtype]
            if torch.cuda.is_current_stream_capturing():
                raise BadInput(
                    "this corpus is read from the disk, which no CUDA graph can do: set train.graph to false"
                )
        found = self.documents.tokens[places.cpu().numpy()]
        return torch.from_numpy(found.astype(np.int64)).to(places.device)

    @property
    def coupling_levels(self) -> tuple[Level, ...]:
        return self.structure.levels

    @property
    def coupling_by_rule(self) -> bool:
        return False

    @property
    def coupling_by_tokens(self) -> bool:
        return bool(self.structure.levels)

    def coupling(self, sample: Sample, form: Form) -> Int[Tensor, "b g t"]:
        """Both forms are the same."""
        if not self.structure.levels:
            return super().coupling(sample, form)
        return self.structure.ids(self._traits(sample.tokens))

    def follow_coupling(self, token: Int[Tensor, "b"], before: Int[Tensor, "b g"]) -> Int[Tensor, "b g"]:
        return self.structure.follow(self._traits(token), before)

    def _traits(self, tokens: Int[Tensor, "*n"]) -> Traits:
        return _vocabulary_traits(self._folder, self.structure, str(tokens.device)).of(tokens)

    def parse(self, text: str) -> list[int]:
        tokens = self.opened.tokenizer.encode(text)
        if not tokens:
            raise BadInput("text: the prompt is empty")
        return tokens

    def spell(self, tokens: Sequence[int]) -> str:
        return self.opened.tokenizer.decode(list(tokens))


_ALL_BITS = {torch.int16: 0xFFFF, torch.int32: 0xFFFFFFFF}
"""Tokens are stored without a sign, which few of torch's operations know."""


@lru_cache(maxsize=8)
def _open(folder: Path) -> Corpus:
    return Corpus.open(folder)


@lru_cache(maxsize=8)
def _split(folder: Path, split: SplitName) -> Split:
    return _open(folder).split(split)


@lru_cache(maxsize=8)
def _on_device(folder: Path, split: SplitName, device: str) -> Tensor | None:
    tokens = _split(folder, split).tokens
    if tokens.nbytes > _ON_DEVICE:
        return None
    signed = np.asarray(tokens).view(np.int16 if tokens.itemsize == 2 else np.int32)
    return torch.from_numpy(signed.copy()).to(device)


@lru_cache(maxsize=8)
def _vocabulary_traits(folder: Path, structure: Structure, device: str) -> Traits:
    tokenizer = _open(folder).tokenizer
    return Traits(*(trait.to(device) for trait in structure.traits(tokenizer.spelling, tokenizer.end)))
