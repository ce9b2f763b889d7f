"""Models and texts that `longreach probe` names."""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from longreach.config.spans import Lengths
from longreach.errors import BadInput
from longreach.extension.texts import check_reads
from longreach.hf.load import check_weights
from longreach.probe import HuggingFace, LanguageModel, OwnModel, Passage, load_hugging_face
from longreach.probe.fingerprint import fingerprint_of_text
from longreach.runs import RunConfig, RunFolder, choose_device, load_model
from longreach.seeding import stream
from longreach.tasks import Task, Text
from longreach.terminal.console import say
from longreach.text import Corpus, SplitName
from longreach.training import legal_lengths

_LENGTH = 256


@dataclass(frozen=True)
class Opened:
    """A model, and the configuration of its run where it is one of ours."""

    model: LanguageModel
    config: RunConfig | None = None

    def task(self) -> tuple[Task, int]:
        """What a run was trained to do, and the longest length at which it was."""
        if self.config is None:
            raise BadInput(f"{self.model.name} is not a run folder: it has no task to calibrate the probe on")
        return self.config.task, legal_lengths(self.config.task, self.config.train.lengths)[-1]

    def check_reads(self, corpus: Corpus, tokens: int) -> None:
        """Refuse a corpus with other tokens than the model's own, and more of them than the model has positions for."""
        if isinstance(self.model, HuggingFace):
            self.model.check_positions(tokens)
            check_reads(self.model, corpus)
        if self.config is not None:
            own = self.config.task.opened.meta if isinstance(self.config.task, Text) else None
            theirs = corpus.meta
            if own is None or (own.tokenizer, own.tokenizer_sha256) != (theirs.tokenizer, theirs.tokenizer_sha256):
                raise BadInput(
                    f"{corpus.folder} has other tokens than {self.model.name}: prepare it with its tokenizer"
                )

    def read(self, title: str, text: str, chat: bool) -> Passage:
        if isinstance(self.model, HuggingFace):
            return self.model.read(title, text, chat)
        if chat or self.config is None:
            raise BadInput(f"{self.model.name} has no chat template: leave out --chat")
        task = self.config.task
        tokens = task.parse(text)
        pieces = task.opened.tokenizer.pieces(tokens) if isinstance(task, Text) else task.words(tokens)
        return Passage(title, torch.tensor(tokens), tuple(pieces), text_fingerprint=fingerprint_of_text(text))


def open_model(name: str, device: str, precision: str, memory: float, trust: bool = False) -> Opened:
    device, room = choose_device(device), int(memory * 2**30)
    if not (Path(name) / "config.yaml").is_file():
        check_weights(name, device, warn)
        return Opened(load_hugging_face(name, device, precision, room))
    if precision != "fp32":
        raise BadInput(f"{name} is a run folder, which is probed in fp32: leave out --precision")
    config, model = load_model(RunFolder(Path(name)), device, trust)
    length = legal_lengths(config.task, config.train.lengths)[-1]
    some = config.task.sample(torch.tensor([length]), stream(0, "probe", torch.arange(1)), length)
    ids = config.ids.assign(config.task, some)
    if ids.shape[1] > 1 or not torch.equal(ids[0, 0], torch.arange(ids.shape[2])):
        raise BadInput(f"{name} was trained with ids {config.ids.name}: only IDs that count 0, 1, 2, ... can be probed")
    # a probe reads IDs that count, also where tests of the run draw them: the name says so in every result
    dense = ", dense IDs" if config.ids.draws_test_ids else ""
    return Opened(OwnModel(model, "/".join(Path(name).resolve().parts[-3:]) + dense, room), config)


def read_contexts(text: str) -> list[int]:
    """Sizes of context, in order."""
    try:
        return sorted(Lengths.parse(text))
    except ValueError as error:
        raise BadInput(f"--contexts: {error}") from error


def warn(line: str) -> None:
    """Print a warning."""
    say.print(line, markup=False, highlight=False, soft_wrap=True)


def open_texts(opened: Opened, args: argparse.Namespace) -> Iterator[Passage]:
    """Passages to probe."""
    length, count = args.length or _LENGTH, args.passages or 1
    if args.text != "-" and Path(args.text).is_dir():
        yield from _of_corpus(opened, Corpus.open(args.text), args.split or "test", length, count)
        return
    if args.split is not None:
        raise BadInput(f"--split concerns a prepared corpus, and {args.text} is none")
    title = "standard input" if args.text == "-" else Path(args.text).name
    whole = opened.read(title, _read(args.text), bool(args.chat))
    if args.chat and (count > 1 or len(whole.tokens) > length):
        raise BadInput(f"a chat is probed whole: it has {len(whole.tokens)} tokens, so say --length and no --passages")
    yield from whole.cut(length, count)


def _of_corpus(opened: Opened, corpus: Corpus, split: SplitName, length: int, count: int) -> Iterator[Passage]:
    """The beginnings of documents, spread over the split."""
    documents = corpus.split(split)
    if count > documents.documents:
        raise BadInput(f"{corpus.folder}: split {split} has {documents.documents} documents, not {count}")
    for passage in range(count):
        number = passage * documents.documents // count
        text = corpus.tokenizer.decode(documents.document(number)[:-1].tolist())
        try:
            yield opened.read(f"{corpus.folder.name}, {split} document {number}", text, False).cut(length, 1)[0]
        except BadInput as error:
            say.print(f"left out: {error}", markup=False, highlight=False, soft_wrap=True)


def _read(text: str) -> str:
    try:
        content = sys.stdin.buffer.read() if text == "-" else Path(text).read_bytes()
        return content.decode("utf-8-sig")
    except OSError as error:
        raise BadInput(f"cannot read {text}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{text} is not text in UTF-8") from error
