"""`longreach text` as a person uses it."""

import json

import pytest
from stories import stories, write_jsonl

from longreach.cli.main import main
from longreach.text import FETCHABLE


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LONGREACH_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def put_in_cache(folder, name, texts):
    place = folder / "cache" / "text" / name
    place.mkdir(parents=True)
    for number, text in enumerate(texts):
        (place / f"{number}.txt").write_text(text)
    size = sum(len(text.encode()) for text in texts)
    note = {"version": FETCHABLE[name].version, "file": "", "documents": len(texts), "bytes": size}
    (place / ".fetched.json").write_text(json.dumps(note))


def test_from_a_fetched_text_to_tokens_on_a_screen(tmp_path, capsys):
    put_in_cache(tmp_path, "kjv", stories(80))
    assert main(["text", "prepare", "kjv", "--vocabulary", "300", "--out", "out"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["split", "documents", "bytes", "tokens", "bytes/token"]
    assert sum(int(line.split()[1]) for line in lines[1:]) == 80
    assert main(["text", "show", "out", "--tokens", "30"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("|") >= 29
    assert "Story" in shown.replace("|", "")
    assert main(["text", "show", "out", "--split", "valid", "--tokens", "100000", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[-1] == [1, "<end>"]
    assert main(["text", "check", "out"]) == 0
    assert "all checksums agree" in capsys.readouterr().err
    with open("out/train.bin", "r+b") as file:
        file.write(b"\x09")
    assert main(["text", "check", "out"]) == 2
    assert "train.bin is not what was written" in capsys.readouterr().err


def test_the_list_says_what_is_there(tmp_path, capsys):
    put_in_cache(tmp_path, "sotu", ["One speech."])
    assert main(["text", "list", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert set(rows) == set(FETCHABLE)
    assert rows["sotu"]["documents"] == 1
    assert rows["kjv"]["there"] is None
    assert all(row["licence"] and row["summary"] and row["download_mb"] > 1 for row in rows.values())
    assert main(["text", "list"]) == 0
    assert "anarchism" in capsys.readouterr().out
    assert main(["text", "fetch", "sotu"]) == 0
    assert capsys.readouterr().out.strip().endswith("sotu")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["prepare", "kjv", "--out", "out"], "kjv has not been fetched yet: longreach text fetch kjv"),
        (["prepare", "nothing.txt", "--out", "out"], "there is no file or folder nothing.txt"),
        (
            ["prepare", "a.jsonl", "--out", "out", "--field", "body"],
            "line 1 has no text in a field 'body'; it has text",
        ),
        (["prepare", "a.jsonl", "--out", "out", "--valid", "1.5"], "valid must be at least 0 and below 1, got 1.5"),
        (["prepare", "a.jsonl", "--out", "full"], "full is not empty: add --resume"),
        (
            ["prepare", "a.jsonl", "--out", "out", "--tokenizer", "bytes", "--vocabulary", "9"],
            "concerns the tokenizer bpe",
        ),
        (["prepare", "a.jsonl", "--out", "out", "--vocab", "300", "--sample", "4", "--x"], "unknown argument '--x'"),
        (["fetch", "bible"], "nothing named 'bible' can be fetched"),
        (["fetch", "kjv", "--any-version"], "--any-version concerns anarchism"),
        (["show", "full"], "full is not a prepared corpus, or not finished"),
        (["check", "nowhere"], "nowhere is no folder"),
    ],
)
def test_mistakes_are_one_line(tmp_path, capsys, arguments, message):
    write_jsonl(tmp_path / "a.jsonl", stories(5))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("mine")
    assert main(["text", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert "Traceback" not in error


def test_show_refuses_what_is_not_there(tmp_path, capsys):
    write_jsonl(tmp_path / "a.jsonl", stories(5))
    common = ["--out", "out", "--tokenizer", "bytes", "--valid", "0", "--test", "0"]
    assert main(["text", "prepare", "a.jsonl", *common]) == 0
    assert main(["text", "show", "out", "--document", "5"]) == 2
    assert "--document must be from 0 to 4, got 5" in capsys.readouterr().err
    assert main(["text", "show", "out", "--split", "test"]) == 2
    assert "split test is empty" in capsys.readouterr().err


def test_a_split_that_stays_empty_is_pointed_out(tmp_path, capsys):
    (tmp_path / "one.txt").write_text("one text")
    assert main(["text", "prepare", "one.txt", "--out", "out", "--tokenizer", "bytes"]) == 0
    assert "valid is empty" in capsys.readouterr().err


def test_an_interrupted_preparation_says_how_to_go_on(tmp_path, capsys, monkeypatch):
    write_jsonl(tmp_path / "a.jsonl", stories(30))
    with monkeypatch.context() as patch:
        patch.setattr("longreach.text.encoding.encode_shard", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert main(["text", "prepare", "a.jsonl", "--out", "out", "--tokenizer", "bytes"]) == 130
    assert "--resume" in capsys.readouterr().err
    assert main(["text", "prepare", "a.jsonl", "--out", "out", "--tokenizer", "bytes", "--resume"]) == 0
