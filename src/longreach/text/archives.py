"""Packages of three registries, read without unpacking them: no path of theirs is ever written to."""

import lzma
import tarfile
import zipfile
from collections.abc import Iterator
from fnmatch import fnmatch
from io import BytesIO
from pathlib import Path
from typing import IO

from longreach.errors import RunFailed

_DEB_HEADER = 60


def read_members(archive: Path, pattern: str) -> Iterator[tuple[str, IO[bytes]]]:
    """Name, without folders, and content of each file inside whose path fits the pattern, in the order of paths."""
    try:
        yield from _zip_members(archive, pattern) if archive.suffix == ".whl" else _tar_members(archive, pattern)
    except (zipfile.BadZipFile, tarfile.TarError, lzma.LZMAError, EOFError) as error:
        raise RunFailed(f"{archive.name} is damaged: {error}") from error


def _zip_members(archive: Path, pattern: str) -> Iterator[tuple[str, IO[bytes]]]:
    with zipfile.ZipFile(archive) as file:
        for name in sorted(name for name in file.namelist() if fnmatch(name, pattern)):
            with file.open(name) as content:
                yield Path(name).name, content


def _tar_members(archive: Path, pattern: str) -> Iterator[tuple[str, IO[bytes]]]:
    with (
        _deb_data(archive) if archive.suffix == ".deb" else archive.open("rb") as raw,
        tarfile.open(fileobj=raw) as tar,
    ):
        fitting = [member for member in tar.getmembers() if member.isfile() and fnmatch(member.name, pattern)]
        for member in sorted(fitting, key=lambda member: member.name):
            content = tar.extractfile(member)
            if content is not None:  # it is a file, so there is
                yield Path(member.name).name, content


def _deb_data(archive: Path) -> BytesIO:
    """A Debian package is an `ar` archive with the files in its member data.tar.*."""
    with archive.open("rb") as file:
        if file.read(8) != b"!<arch>\n":
            raise RunFailed(f"{archive.name} is not a Debian package")
        while header := file.read(_DEB_HEADER):
            name, size = header[:16].decode("ascii", "replace").strip(), header[48:58].strip()
            if len(header) < _DEB_HEADER or not size.isdigit():
                break
            content = file.read(int(size) + int(size) % 2)  # members begin at even places
            if name.startswith("data.tar"):
                return BytesIO(content)
    raise RunFailed(f"{archive.name} is damaged: it has no data.tar")
