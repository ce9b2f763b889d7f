"""Tokenizers of the `tokenizers` package: byte-level BPE that we train, and those of Hugging Face models."""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longreach.errors import BadInput
from longreach.system.files import one_line, write_atomically
from longreach.system.huggingface import import_transformers
from longreach.text.hub import check_name, quiet_loading, refuse_code, where_it_lies
from longreach.text.tokenizer import END, PAD, Tokenizer, utf8

_FILE = "tokenizer.json"
_SETTINGS: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": PAD, "eos_token": END}
"""What Hugging Face's AutoTokenizer must be told of a tokenizer of ours."""
_CHUNK = 1 << 16
"""Characters that our own BPE encodes at once: the package keeps far more of each token than its number."""
_SEAM = re.compile(r"(?<=\S)(?= \S)")
"""No token of ours goes across a single blank: a text cut there has the same tokens."""


class Subwords(Tokenizer):
    """A tokenizer in the format of the `tokenizers` package."""

    def __init__(self, kind: str, end: int, files: Mapping[str, str]) -> None:
        """`files`: by name, as they lie in a folder."""
        self.kind = kind
        self.end = end
        self._files = files
        self._backend = _package().Tokenizer.from_str(files[_FILE])
        self._backend.encode_special_tokens = True  # or a text that holds "<end>" could end its own document
        self._backend.no_truncation()
        self._backend.no_padding()

    def encode_array(self, text: str) -> NDArray[np.uint32]:
        utf8(text)  # the package would answer halves of characters with an error of its own
        chunks = _chunks(text) if self.kind == "bpe" else [text]
        parts = [self._encode(chunk) for chunk in chunks]
        return np.concatenate(parts) if parts else np.empty(0, np.uint32)

    def decode(self, ids: Sequence[int]) -> str:
        if self._byte_level:
            return super().decode(ids)
        text: str = self._backend.decode(list(ids), skip_special_tokens=False)  # knows which blanks it had added
        return text

    @property
    def sha256(self) -> str:
        """Return the checksum of tokenizer.json."""
        return hashlib.sha256(self._files[_FILE].encode()).hexdigest()

    def save(self, folder: Path) -> None:
        for name, content in self._files.items():
            write_atomically(folder / name, content.encode())

    @cached_property
    def spelling(self) -> tuple[bytes, ...]:
        numbers: dict[str, int] = self._backend.get_vocab(with_added_tokens=True)
        added = self._backend.get_added_tokens_decoder()
        spelt = [f"<unused {number}>".encode() for number in range(max(numbers.values()) + 1)]
        spell = _spell_byte_level if self._byte_level else _spell
        for token, number in numbers.items():
            spelt[number] = token.encode() if number in added else spell(token)
        return tuple(spelt)

    @cached_property
    def _byte_level(self) -> bool:
        return '"ByteLevel"' in json.dumps(json.loads(self._files[_FILE]).get("decoder"))

    def _encode(self, text: str) -> NDArray[np.uint32]:
        (encoded,) = self._backend.encode_batch_fast([text], add_special_tokens=False)  # without offsets
        return np.array(encoded.ids, dtype=np.uint32)


def train_bpe(texts: Iterable[str], vocabulary: int) -> Subwords:
    """Byte-level BPE with this many tokens, or fewer where the texts have too few different words."""
    if vocabulary < 258:
        raise BadInput(f"a vocabulary must have room for 256 bytes, {PAD} and {END}: at least 258, got {vocabulary}")
    package = _package()
    backend = package.Tokenizer(package.models.BPE())
    backend.pre_tokenizer = package.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = package.decoders.ByteLevel()
    trainer = package.trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[PAD, END],
        initial_alphabet=package.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer=trainer)
    return Subwords("bpe", 1, {_FILE: backend.to_str(), "tokenizer_config.json": json.dumps(_SETTINGS, indent=1)})


def as_subwords(tokenizer: Tokenizer) -> Subwords:
    """The same tokens as Hugging Face reads them: bytes, which need no files, get some."""
    if isinstance(tokenizer, Subwords):
        return tokenizer
    package = _package()
    numbers = {PAD: 0, END: 1} | {letter: byte + 2 for letter, byte in _BYTES.items()}
    backend = package.Tokenizer(package.models.BPE(vocab=numbers, merges=[]))
    backend.pre_tokenizer = package.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = package.decoders.ByteLevel()
    backend.add_special_tokens([PAD, END])
    settings = _SETTINGS | {"split_special_tokens": True}  # as here, "<end>" in a text is five bytes
    files = {_FILE: backend.to_str(), "tokenizer_config.json": json.dumps(settings, indent=1)}
    return Subwords(tokenizer.kind, tokenizer.end, files)


def from_hugging_face(name: str) -> Subwords:
    """Return the tokenizer of a model: by name on the hub, of a local folder or of a .gguf file."""
    transformers = import_transformers("a Hugging Face tokenizer")
    where, options = where_it_lies(name)
    if not options:
        check_name(name, "tokenizer")
    try:
        with quiet_loading():
            found = transformers.AutoTokenizer.from_pretrained(where, **options, trust_remote_code=False)
    except Exception as error:  # the package raises errors of every kind for a damaged folder
        refuse_code(name, error)
        raise BadInput(f"cannot load the tokenizer {name!r}: {one_line(error)}") from error
    if not found.is_fast:
        raise BadInput(f"tokenizer {name!r} has no {_FILE}, which is needed")
    if found.eos_token_id is None:
        raise BadInput(f"tokenizer {name!r} has no end token to put between documents")
    with TemporaryDirectory() as folder:
        found.save_pretrained(folder)
        files = {path.name: path.read_text() for path in sorted(Path(folder).iterdir())}
    return Subwords("hf", found.eos_token_id, files)


def open_subwords(name: str) -> Subwords:
    """Return the tokenizer in a tokenizer.json, a folder that holds one, a .gguf file or a model on the hub."""
    path = Path(name) / _FILE if Path(name).is_dir() else Path(name)
    if not path.is_file() or path.suffix == ".gguf":
        if path.suffix == ".json":
            raise BadInput(f"there is no tokenizer {path}")
        return from_hugging_face(name)
    try:
        return Subwords("hf", 0, {_FILE: path.read_text()})
    except BadInput:
        raise
    except Exception as error:  # the package raises bare Exception for a damaged file
        raise BadInput(f"cannot read the tokenizer {path}: {one_line(error)}") from error


def load_subwords(kind: str, end: int, folder: Path) -> Subwords:
    """As it was saved."""
    try:
        files = {path.name: path.read_text() for path in sorted(folder.iterdir()) if not path.name.startswith(".")}
        return Subwords(kind, end, files)
    except BadInput:
        raise
    except Exception as error:  # the package raises bare Exception for a damaged file
        raise BadInput(f"cannot read the tokenizer in {folder}: {one_line(error)}") from error


def _package() -> Any:
    try:
        import tokenizers
        import tokenizers.decoders
        import tokenizers.models
        import tokenizers.pre_tokenizers
        import tokenizers.trainers
    except ImportError as error:
        raise BadInput("this tokenizer needs the tokenizers package: pip install 'longreach[text]'") from error
    return tokenizers


def _chunks(text: str) -> Iterator[str]:
    start = 0
    while start < len(text):
        seam = _SEAM.search(text, start + _CHUNK)
        stop = seam.start() if seam else len(text)
        yield text[start:stop]
        start = stop


def _byte_letters() -> dict[str, int]:
    """Byte-level vocabularies write printable bytes as themselves, and the others as letters from number 256 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}


_BYTES = _byte_letters()


def _spell_byte_level(token: str) -> bytes:
    return bytes(_BYTES[letter] for letter in token) if all(letter in _BYTES for letter in token) else token.encode()


def _spell(token: str) -> bytes:
    """SentencePiece writes blanks as a low line block and bytes that it has no word for as <0x0A>."""
    byte = re.fullmatch(r"<0x([0-9A-F]{2})>", token)
    return bytes([int(byte[1], 16)]) if byte else token.replace("\u2581", " ").encode()
