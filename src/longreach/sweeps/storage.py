"""Shared storage behind a URL such as s3://bucket/path, through fsspec.

An object in such storage appears whole or not at all, so nothing is written under another name and renamed, as files
are.  It has no locks either: `courier` says how two processes keep out of each other's way all the same.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from longreach.errors import BadInput, RunFailed
from longreach.system.files import write_atomically


def is_url(out: str) -> bool:
    return "://" in out


@dataclass(frozen=True)
class Storage:
    """Files below a URL, by their paths relative to it."""

    url: str
    files: Any
    """The file system of fsspec's that the URL belongs to."""
    root: str
    """The URL as that file system writes it."""

    def list(self, below: str = "") -> list[str]:
        """Every file there is now."""
        top = f"{self.root}/{below}".rstrip("/")
        with self._telling("list"):
            self.files.invalidate_cache()  # others write as well
            return [str(path).removeprefix(f"{self.root}/") for path in self.files.find(top)]

    def read(self, paths: Sequence[str]) -> dict[str, bytes]:
        """Many small files at once; those that have gone in the meantime are left out."""
        if not paths:
            return {}
        with self._telling("read"):
            found = self.files.cat([f"{self.root}/{path}" for path in paths], on_error="return")
            contents = {}
            for path, content in found.items():
                if isinstance(content, bytes):
                    contents[str(path).removeprefix(f"{self.root}/")] = content
                elif not isinstance(content, FileNotFoundError):
                    raise content
        return contents

    def fetch(self, path: str, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        with self._telling(f"fetch {path} from"):
            self.files.get_file(f"{self.root}/{path}", str(target))

    def put(self, source: Path, path: str) -> None:
        with self._telling(f"copy {path} to"):
            if isinstance(self.files, LocalFileSystem):
                # a folder is the one storage in which half a file can be seen
                target = Path(self.root) / path
                target.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(target, source.read_bytes())
            else:
                self.files.put_file(str(source), f"{self.root}/{path}")

    def remove(self, path: str) -> None:
        """It may be gone already."""
        with self._telling(f"remove {path} from"):
            try:
                self.files.rm_file(f"{self.root}/{path}")
            except FileNotFoundError:
                return

    @contextmanager
    def _telling(self, what: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # each file system has exceptions of its own
            lines = str(error).strip().splitlines() or [type(error).__name__]
            raise RunFailed(f"cannot {what} {self.url}: {lines[0]}") from error


def open_storage(url: str) -> Storage:
    """Nothing is asked of the storage yet."""
    if url.startswith("memory:"):
        raise BadInput(f"{url} is memory of one process, and a sweep is many: give storage that all machines reach")
    try:
        files, root = fsspec.url_to_fs(url)
    except (ImportError, ValueError) as error:  # its package is missing, or nobody knows the protocol
        raise BadInput(f"{url} cannot be used: {str(error).splitlines()[0]}") from error
    except Exception as error:  # some connect at once, and have exceptions of their own
        raise RunFailed(f"cannot reach {url}: {(str(error).splitlines() or [type(error).__name__])[0]}") from error
    return Storage(url.rstrip("/"), files, str(root).rstrip("/"))
