"""Texts in the tokens of a model, and the sizes of context that they allow."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from longreach.config import Lengths
from longreach.errors import BadInput, argument
from longreach.evaluation.context import BLOCK
from longreach.probe import HuggingFace, Passage
from longreach.runs import Observer
from longreach.text import Corpus, Split, SplitName
from longreach.text.documents import TextSource, find_source, read_documents

_PARTS = 32
"""Most parts of a single document.  Each counts as a document in intervals."""
_COMPARED = 64
"""Tokens of a corpus that the tokenizer of a model encodes again."""
MOST_TOKENS = 1 << 26
"""Tokens of texts after which no further document is read."""
_SMALLEST = 128
_UNKNOWN = 2048
"""Trained length of models whose configuration states none."""
_BLANKS = str.maketrans({"\u0120": " ", "\u2581": " ", "\u010a": "\n"})
"""Letters that byte-level and SentencePiece tokenizers write for blanks and new lines."""


@dataclass(frozen=True)
class ReachTexts:
    """Documents as tokens of a model, and the functions that encode further text."""

    documents: Split
    encode: Callable[[str], list[int]]
    """Return the tokens of a text, without special tokens."""
    piece: Callable[[int], str]
    """Return the text that a token stands for, with the blank in front of a word."""
    sources: tuple[str, ...]
    fingerprint: str
    """SHA-256 of all tokens."""

    @property
    def unit(self) -> str:
        return "documents" if self.documents.documents > 1 else "parts of the text"

    def cut(self, context: int) -> Split:
        """Return the documents; a single one in at most 32 equal parts that hold the context and a block to predict."""
        if self.documents.documents > 1:
            return self.documents
        tokens = self.documents.tokens
        parts = min(_PARTS, len(tokens) // (context + BLOCK))
        if not parts:
            raise BadInput(
                f"{', '.join(self.sources)} has {len(tokens)} tokens, and a context of {context} needs"
                f" {context + BLOCK}: use a longer text or smaller {argument('contexts')}"
            )
        return Split(self.documents.name, tokens, np.linspace(0, len(tokens), parts + 1).astype(np.int64))

    @property
    def longest(self) -> int:
        """Return the largest context that two documents, or two parts of a single one, have room for."""
        sizes: list[int] = sorted(np.diff(self.documents.starts).tolist())
        return (sizes[0] // 2 if len(sizes) == 1 else sizes[-2]) - BLOCK


def texts_of(model: HuggingFace, documents: Iterable[str], sources: Sequence[str] = ("the texts",)) -> ReachTexts:
    """Return documents in the tokens of a model; reading ends after the document that fills the limit of memory."""
    if model.tokenizer is None:
        raise BadInput(f"{model.name} has no tokenizer: it needs a prepared corpus instead of {', '.join(sources)}")
    rows, starts = [], [0]
    for text in documents:
        if tokens := model.encode(text):
            rows.append(np.array(tokens, dtype=np.int64))
            starts.append(starts[-1] + len(tokens))
        if starts[-1] > MOST_TOKENS:
            break
    if not rows:
        raise BadInput(f"{', '.join(sources)}: there is no text to read")
    split = Split("test", np.concatenate(rows), np.array(starts, dtype=np.int64))
    fingerprint = hashlib.sha256(split.tokens.tobytes() + split.starts.tobytes()).hexdigest()
    return ReachTexts(split, model.encode, _piece(model), tuple(sources), fingerprint)


def find_texts(
    names: Sequence[str | Path], split: SplitName | None = None, field: str | None = None
) -> Corpus | list[TextSource]:
    """Return the corpus or the files of that name; raise BadInput if there are none, or a setting does not fit."""
    if not names:
        raise BadInput("there is no text: name at least one text file, .jsonl or .parquet file, or prepared corpus")
    for name in names:
        if (Path(name) / "meta.json").is_file():
            if len(names) > 1:
                raise BadInput(f"{name} is a prepared corpus, which is measured alone: name no other text")
            if field is not None:
                raise BadInput(f"{argument('field')} concerns .jsonl and .parquet files, and {name} is a corpus")
            return Corpus.open(name)
    if split is not None:
        raise BadInput(f"{argument('split')} concerns a prepared corpus, and {names[0]} is none")
    sources = [find_source(str(name)) for name in names]
    if field is not None and not any(source.has_fields for source in sources):
        raise BadInput(f"{argument('field')} concerns .jsonl and .parquet files, and {names[0]} is neither")
    return sources


def read_texts(
    model: HuggingFace,
    names: Sequence[str | Path],
    split: SplitName | None = None,
    field: str | None = None,
    observer: Observer | None = None,
) -> ReachTexts:
    """Return the documents of text files, of tables with a text in `field`, or a split of a prepared corpus."""
    found = find_texts(names, split, field)
    if isinstance(found, Corpus):
        check_reads(model, found)
        return texts_of_corpus(found, split or "test")
    report = (observer or Observer()).phase("read texts", sum(source.size for source in found))

    def texts() -> Iterator[str]:
        for document in read_documents(found, field or "text"):
            report(document.read, "")
            yield document.text

    return texts_of(model, texts(), [str(name) for name in names])


def texts_of_corpus(corpus: Corpus, name: SplitName) -> ReachTexts:
    """Return a split of a corpus that has the tokens of the model."""
    spelling = corpus.tokenizer.spelling
    documents = corpus.split(name)
    if not documents.documents:
        raise BadInput(f"{corpus.folder}: split {name} has no documents")
    return ReachTexts(
        documents,
        corpus.tokenizer.encode,
        lambda token: spelling[token].decode(errors="replace"),
        (f"{corpus.folder}, {name}",),
        corpus.fingerprint,
    )


def check_reads(model: HuggingFace, corpus: Corpus) -> None:
    """Raise BadInput if a corpus has other tokens than the model's own."""
    other = BadInput(f"{corpus.folder} has other tokens than {model.name}: prepare it with its tokenizer")
    # transformers adds an unknown token to tokenizers of .gguf files that have none; no text holds it
    if max(model.vocabulary_size, len(model.tokenizer or ())) < corpus.meta.vocabulary:
        raise other
    if model.tokenizer is not None:
        some = corpus.split("train").document(0)[:_COMPARED].tolist()
        again = model.encode(corpus.tokenizer.decode(some))
        if again[: len(some) // 2] != some[: len(some) // 2]:  # tokens may differ at the cut
            raise other


def passages(model: HuggingFace, texts: ReachTexts, length: int, count: int) -> list[Passage]:
    """Return the beginnings of at most `count` documents, spread over those that are long enough, or of the longest."""
    split = texts.cut(length) if texts.longest >= length else texts.documents
    sizes = np.diff(split.starts)
    able = np.flatnonzero(sizes >= min(length, sizes.max())).tolist()
    chosen = sorted({able[number * len(able) // count] for number in range(count)})
    found = []
    for number in chosen:
        tokens = [*model.opening, *split.document(number).tolist()][:length]
        pieces = tuple(texts.piece(token) for token in tokens)
        found.append(Passage(f"{texts.unit}, number {number}", torch.tensor(tokens), pieces, len(model.opening)))
    return found


def _piece(model: HuggingFace) -> Callable[[int], str]:
    return lambda token: str(model.tokenizer.convert_ids_to_tokens(token)).translate(_BLANKS)


def settle_contexts(model: HuggingFace, texts: ReachTexts) -> tuple[Lengths, list[str]]:
    """Return the default sizes of context, and a line for each reason that leaves some of them out.

    The sizes are powers of two up to twice the trained length.  They begin at an eighth of the trained length, but not
    above 128.  Texts and learned positions may leave out the largest.
    """
    trained = model.trained_to or _UNKNOWN
    size = min(_SMALLEST, max(16, 1 << max(0, (trained // 8).bit_length() - 1)))
    sizes = []
    while size <= 2 * trained:
        sizes.append(size)
        size *= 2
    notes = []
    if model.trained_to is None:
        notes.append(f"the configuration of {model.name} states no trained length: {_UNKNOWN} is assumed")
    positions = model.most_positions
    if positions is not None and sizes[-1] + BLOCK > positions:
        beyond = [size for size in sizes if size + BLOCK > positions]
        if positions <= BLOCK:
            raise BadInput(f"{model.name} has {positions} learned positions, and {BLOCK} tokens are predicted in a row")
        sizes = sorted({*(size for size in sizes if size not in beyond), positions - BLOCK})
        notes.append(
            f"contexts {_listed(beyond)} are left out: {model.name} has {positions} learned positions, and {BLOCK} of"
            " them are for predicted tokens"
        )
    longest = texts.longest
    if beyond := [size for size in sizes if size > longest]:
        sizes = [size for size in sizes if size <= longest]
        notes.append(
            f"contexts {_listed(beyond)} are left out: no two {texts.unit} have so many tokens and {BLOCK} to predict"
        )
    if not sizes:
        raise BadInput(
            f"{', '.join(texts.sources)}: two {texts.unit} have at most {longest + BLOCK} tokens each, and a context of"
            f" {beyond[0]} needs {beyond[0] + BLOCK}: use a longer text or smaller {argument('contexts')}"
        )
    return Lengths(tuple(sizes)), notes


def _listed(sizes: Sequence[int]) -> str:
    return ", ".join(map(str, sizes))
