"""From texts to a prepared corpus, in steps that survive a kill: tokenizer, shards, files, `meta.json`."""

import json
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from longreach.errors import BadInput
from longreach.system.files import read_json, write_atomically
from longreach.system.lock import hold
from longreach.text.config import PrepareConfig
from longreach.text.corpus import SCHEMA, Corpus, Meta, load_tokenizer, sha256_of
from longreach.text.documents import Document, TextSource, find_source, read_documents
from longreach.text.encoding import encode_all
from longreach.text.pack import pack_shards
from longreach.text.sample import draw_sample
from longreach.text.shards import EncodedShard, Shard, make_shards, shard_path
from longreach.text.subwords import from_hugging_face, train_bpe
from longreach.text.tokenizer import Bytes, Tokenizer

Phase = Callable[[str, int], Callable[[int, str], None]]
"""Begin a phase of so many bytes, 0 where that is not known; the answer is told the bytes done and a note."""

_LOCK = "prepare.lock"
"""Held in the working folder by the process that prepares."""
_OF_A_START = re.compile(r"\.work|plan\.json|prepare\.(lock|holder)|\.(plan\.json|prepare\.holder)\.\d+\.part")
"""Names that a start leaves which made nothing else, also if it was killed."""


def prepare(
    sources: Sequence[str],
    out: Path | str,
    config: PrepareConfig = PrepareConfig(),  # noqa: B008  (it is frozen)
    *,
    workers: int = 1,
    resume: bool = False,
    phase: Phase = lambda title, total: lambda done, note: None,
) -> Corpus:
    """Texts to tokens on disk.  The same texts and settings give the same bytes, whatever `workers` is and
    however often it was stopped: `resume` goes on where an earlier call stopped.  Raises BadInput while another process
    prepares in the folder."""
    if workers < 1:
        raise BadInput(f"workers must be at least 1, got {workers}")
    found = [find_source(name) for name in sources]
    if not found:
        raise BadInput("name a text to prepare")
    if config.field is not None and not any(source.has_fields for source in found):
        raise BadInput(f"field {config.field!r} concerns JSONL, Parquet and datasets, and there are text files only")
    if next(read_documents(found, config.text_field, 1), None) is None:
        raise BadInput(f"no text in {', '.join(sources)}")
    job = _Job(found, Path(out), config.settled(), phase)
    if job.may_write:
        with hold(job.work / _LOCK, str(job.out)):
            if job.begin(resume):
                job.make_tokenizer()
                job.encode(workers)
                job.pack()
        shutil.rmtree(job.work, ignore_errors=True)  # another process that held the lock by now would find a corpus
    else:
        job.begin(resume)
    return Corpus.open(out)


@dataclass(frozen=True)
class _Job:
    sources: list[TextSource]
    out: Path
    config: PrepareConfig
    phase: Phase

    @property
    def work(self) -> Path:
        """Holds what is needed until `meta.json` is there."""
        return self.out / ".work"

    @property
    def plan(self) -> dict[str, Any]:
        return {"schema": SCHEMA, "sources": [source.name for source in self.sources], **asdict(self.config)}

    @property
    def settings(self) -> dict[str, Any]:
        """Those that decide the result."""
        return {name: value for name, value in asdict(self.config).items() if name != "shard_bytes"}

    @property
    def may_write(self) -> bool:
        """False for what `begin` leaves alone: a corpus, a folder of something else, a file."""
        return not self.out.exists() or self.work.is_dir() or (self.out.is_dir() and self._untouched)

    def begin(self, resume: bool) -> bool:
        """False if there is nothing left to do."""
        if self.out.exists() and not self.out.is_dir():
            raise BadInput(f"{self.out} is not a folder")
        if not self._untouched:
            if not resume:
                raise BadInput(f"{self.out} is not empty: add --resume to go on with it, or choose another folder")
            return self._go_on()
        self.work.mkdir(parents=True, exist_ok=True)
        _remove_cut_off(self.work)
        write_atomically(self.work / "plan.json", json.dumps(self.plan).encode())
        return True

    @property
    def _untouched(self) -> bool:
        """Return whether nothing is there but perhaps a plan, also half of one, of a start that made nothing else."""
        names = {path.name for path in self.out.rglob("*")} if self.out.exists() else set()
        return all(_OF_A_START.fullmatch(name) for name in names)

    def _go_on(self) -> bool:
        if (self.out / "meta.json").exists():
            meta = Meta.read(self.out)
            self._compare({"sources": meta.sources, **meta.settings}, {**self.plan, **self.settings})
            return False
        try:
            earlier = read_json(self.work / "plan.json", dict)
        except BadInput as error:
            raise BadInput(f"{self.out} is not a preparation that could go on: {error}") from error
        self._compare(earlier, self.plan)
        _remove_cut_off(self.out)
        _remove_cut_off(self.work)
        return True

    def _compare(self, earlier: dict[str, Any], now: dict[str, Any]) -> None:
        for name, value in earlier.items():
            if now.get(name) != value:
                raise BadInput(
                    f"{self.out} was begun with {name} {value!r}, not {now.get(name)!r}: choose another folder"
                )

    def make_tokenizer(self) -> None:
        """Its files are kept, and a note that they are whole: a resumed preparation uses the same."""
        note = self.work / "tokenizer.json"
        if not note.exists():
            tokenizer = self._new_tokenizer()
            folder = self.out / "tokenizer"
            shutil.rmtree(folder, ignore_errors=True)  # what a kill may have left
            folder.mkdir()
            tokenizer.save(folder)
            write_atomically(note, json.dumps([tokenizer.kind, tokenizer.end]).encode())

    @property
    def tokenizer(self) -> Tokenizer:
        kind, end = read_json(self.work / "tokenizer.json", lambda plain: (str(plain[0]), int(plain[1])))
        return load_tokenizer(kind, end, self.out / "tokenizer")

    def _new_tokenizer(self) -> Tokenizer:
        config = self.config
        if config.tokenizer == "bytes":
            return Bytes()
        if config.vocabulary is None or config.sample_bytes is None:
            return from_hugging_face(config.tokenizer)
        texts = draw_sample(self._documents("sample"), config.shares, config.sample_bytes)
        if not texts:
            raise BadInput(f"no document for training in {self._names}{self._few}")
        return train_bpe(texts, config.vocabulary)

    def encode(self, workers: int) -> None:
        shards = make_shards(self._documents("encode"), self.config.shard_bytes)
        missing = self._missing(shards)
        encode_all(missing, self.config.shares, self.tokenizer, self.out / "tokenizer", self.work, workers)

    def pack(self) -> None:
        shards = sorted(self.work.glob("shard-*.npz"))
        total, done = sum(path.stat().st_size for path in shards), 0
        report = self.phase("pack", total)

        def tell(size: int) -> None:
            nonlocal done
            done += size
            report(done, "")

        splits = pack_shards(shards, self.out, tell)
        if not splits["train"].documents:
            raise BadInput(f"no document for training in {self._names}{self._few}")
        tokenizer = self.tokenizer
        files = sorted((self.out / "tokenizer").iterdir())
        Meta(
            schema=SCHEMA,
            sources=[source.name for source in self.sources],
            settings=self.settings,
            tokenizer=tokenizer.kind,
            vocabulary=len(tokenizer.vocabulary),
            end=tokenizer.end,
            tokenizer_sha256={path.name: sha256_of(path) for path in files},
            splits=splits,
        ).write(self.out)

    def _documents(self, title: str) -> Iterator[Document]:
        """As they are read, those who watch are told."""
        total = 0 if any(not source.files for source in self.sources) else sum(source.size for source in self.sources)
        report = self.phase(title, total)
        documents = read_documents(self.sources, self.config.text_field, self.config.documents)
        for number, document in enumerate(documents):
            report(document.read, f"{number + 1} documents")
            yield document
        if total:
            report(total, "")

    def _missing(self, shards: Iterable[Shard]) -> Iterator[Shard]:
        """Those without a file; the others must still hold the same texts."""
        number = -1
        for number, shard in enumerate(shards):
            path = shard_path(self.work, number)
            if not path.exists():
                yield shard
                continue
            with EncodedShard(path) as encoded:
                if encoded.digest != shard.digest:
                    raise BadInput(f"the texts of {self._names} are not those that {self.out} was begun with")
        for path in self.work.glob("shard-*.npz"):
            if path > shard_path(self.work, number):
                raise BadInput(f"{self._names} has fewer texts than {self.out} was begun with")

    @property
    def _names(self) -> str:
        return ", ".join(source.name for source in self.sources)

    @property
    def _few(self) -> str:
        return ": with few documents, hold out less (valid, test)"


def _remove_cut_off(folder: Path) -> None:
    """Remove the temporary files of a preparation that was killed."""
    for path in folder.glob(".*.part"):
        path.unlink()
