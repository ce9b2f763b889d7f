"""From texts to a corpus: sources, splits, several processes, kills, memory."""

import gzip
import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from stories import contents, stories, write_jsonl

import longreach.text.encoding as encoding
from longreach.errors import BadInput, RunFailed
from longreach.text import SPLITS, Corpus, PrepareConfig, prepare
from longreach.text.documents import Document, find_source, read_documents
from longreach.text.sample import draw_sample
from longreach.text.shards import Shares, make_shards

SMALL = PrepareConfig(tokenizer="bytes", valid=0.2, test=0.2, shard_bytes=2000)


def texts_of(*sources, field="text", limit=None):
    return [document.text for document in read_documents([find_source(str(s)) for s in sources], field, limit)]


def test_the_same_texts_come_out_of_every_form(tmp_path):
    texts = stories(70)
    folder = tmp_path / "folder"
    (folder / "deeper").mkdir(parents=True)
    (folder / ".hidden").write_text("not this")
    for number, text in enumerate(texts):
        (folder / "deeper" / f"{number:02d}.txt").write_text(text)
    lines = write_jsonl(tmp_path / "a.jsonl", texts)
    zipped = tmp_path / "a.jsonl.gz"
    zipped.write_bytes(gzip.compress(lines.read_bytes()))
    pq.write_table(pa.table({"number": range(70), "text": texts}), tmp_path / "a.parquet")
    for source in (folder, lines, zipped, tmp_path / "a.parquet"):
        assert texts_of(source) == texts
    assert texts_of(lines, folder, limit=75) == [*texts, *texts[:5]]
    assert texts_of(write_jsonl(tmp_path / "b.jsonl", texts, "body"), field="body") == texts


def test_how_much_was_read_grows_to_the_size_of_all_files(tmp_path):
    lines = write_jsonl(tmp_path / "a.jsonl", stories(30))
    pq.write_table(pa.table({"text": stories(30)}), tmp_path / "a.parquet")
    sources = [find_source(str(lines)), find_source(str(tmp_path / "a.parquet"))]
    read = [document.read for document in read_documents(sources, "text")]
    assert read == sorted(read)
    assert read[-1] == sum(source.size for source in sources)


def test_a_file_of_windows_is_read_as_text_and_empty_documents_are_left_out(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n")
    write_jsonl(tmp_path / "b.jsonl", ["", " \n", "three"])
    assert texts_of(tmp_path) == ["one\ntwo\n", "three"]


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("a.jsonl", b'{"text": "x"}\n\n{"text": \n', "a.jsonl, line 3 is not JSON"),
        ("a.jsonl", b'{"text": "x"}\n{"body": "x"}\n', "line 2 has no text in a field 'text'; it has body"),
        ("a.jsonl", b'{"text": 5}\n', "line 1 has no text"),
        ("a.jsonl", b"[1]\n", "line 1 has no text"),
        ("a.jsonl", b'{"text": "\xff"}\n', "line 1 is not UTF-8"),
        ("a.jsonl", b'{"text": "a\\ud800"}\n', "half a character"),
        # a time in it would give the test another name in every worker
        ("a.jsonl.gz", gzip.compress(b'{"text": "x"}\n' * 9, mtime=0)[:-9], "is damaged"),
        ("a.txt", b"caf\xe9", "a.txt is not UTF-8 text: byte 0xe9 at 3"),
        ("a.txt", b" \n", "no text in"),
        ("a.parquet", b"PAR1 and so on", "cannot read"),
    ],
)
def test_a_bad_source_is_named_with_the_place(tmp_path, file, content, message):
    (tmp_path / file).write_bytes(content)
    with pytest.raises(BadInput, match=message):
        prepare([str(tmp_path / file)], tmp_path / "out", SMALL)


def test_a_column_that_is_missing_or_no_text(tmp_path):
    pq.write_table(pa.table({"number": [1], "body": ["x"]}), tmp_path / "a.parquet")
    with pytest.raises(BadInput, match="no column 'text'; it has number, body"):
        texts_of(tmp_path / "a.parquet")
    with pytest.raises(BadInput, match="column 'number' is not text but int64"):
        texts_of(tmp_path / "a.parquet", field="number")


def test_sources_that_are_not_there(tmp_path):
    with pytest.raises(BadInput, match="there is no file or folder"):
        prepare([str(tmp_path / "nothing")], tmp_path / "out")
    with pytest.raises(BadInput, match="holds no files"):
        prepare([str(tmp_path)], tmp_path / "out")
    with pytest.raises(BadInput, match="name a text"):
        prepare([], tmp_path / "out")


def test_a_document_that_memory_might_not_hold_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("longreach.text.documents.LARGEST", 100)
    (tmp_path / "a.txt").write_text("x" * 101)
    with pytest.raises(BadInput, match="would be one document of 101 bytes, and the limit is 100"):
        texts_of(tmp_path / "a.txt")
    with pytest.raises(BadInput, match="has a document of 101 bytes"):
        texts_of(write_jsonl(tmp_path / "a.jsonl", ["x" * 101]))


def test_a_dataset_is_streamed_and_only_as_far_as_needed(monkeypatch):
    taken = []

    def load_dataset(*arguments, **settings):
        assert arguments == ("allenai/c4", "en")
        assert settings == {"split": "train", "streaming": True}
        for text in stories(1000):
            taken.append(text)
            yield {"text": text}
        raise ConnectionError("gone")

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    assert texts_of("hf:allenai/c4:en", limit=3) == taken == stories(3)
    with pytest.raises(BadInput, match="row 1 has no text in a field 'body'; it has text"):
        texts_of("hf:allenai/c4:en", field="body")
    with pytest.raises(RunFailed, match="broke off after 1000 rows"):
        texts_of("hf:allenai/c4:en")
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(BadInput, match="needs the datasets package"):
        texts_of("hf:allenai/c4:en")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"valid": -0.1}, "valid must be at least 0 and below 1, got -0.1"),
        ({"valid": 0.5, "test": 0.5}, "nothing is left for training"),
        ({"tokenizer": "bytes", "vocabulary": 300}, "vocabulary concerns the tokenizer bpe, not bytes"),
        ({"documents": 0}, "documents must be at least 1, got 0"),
    ],
)
def test_settings_that_cannot_be(changes, message):
    with pytest.raises(BadInput, match=message):
        PrepareConfig(**changes)


def test_settings_that_would_be_ignored_are_refused(tmp_path):
    (tmp_path / "a.txt").write_text("a text")
    with pytest.raises(BadInput, match="field 'body' concerns"):
        prepare([str(tmp_path / "a.txt")], tmp_path / "out", PrepareConfig(field="body"))
    with pytest.raises(BadInput, match="at least 258, got 257"):
        prepare([str(tmp_path / "a.txt")], tmp_path / "out", PrepareConfig(vocabulary=257, valid=0.0, test=0.0))
    with pytest.raises(BadInput, match="workers must be at least 1, got 0"):
        prepare([str(tmp_path / "a.txt")], tmp_path / "out", workers=0)


@given(st.lists(st.text(min_size=1, max_size=5), min_size=1, max_size=30), st.randoms())
def test_a_text_falls_into_the_same_split_in_any_order_and_company(texts, random):
    shares = Shares(0.3, 0.3)
    digests = {text: hashlib.sha256(text.encode()).digest() for text in texts}
    before = {text: shares.split_of(digests[text]) for text in texts}
    random.shuffle(texts)
    assert {text: shares.split_of(digests[text]) for text in texts} == before


def test_shares_are_what_was_asked_and_twins_stay_together(tmp_path):
    texts = stories(1500)
    lines = write_jsonl(tmp_path / "a.jsonl", [*texts, *texts[::-1]])
    corpus = prepare([str(lines)], tmp_path / "out", PrepareConfig(tokenizer="bytes", valid=0.1, test=0.2))
    seen = {}
    for name in SPLITS:
        split = corpus.split(name)
        seen[name] = Counter(split.document(number).tobytes() for number in range(split.documents))
        assert all(count % 2 == 0 for count in seen[name].values())
    sizes = {name: len(counter) for name, counter in seen.items()}
    assert len(set().union(*seen.values())) == sum(sizes.values()) == len(set(texts))
    assert sizes["valid"] == pytest.approx(150, abs=40)
    assert sizes["test"] == pytest.approx(300, abs=50)


def test_no_document_for_training(tmp_path):
    (tmp_path / "a.txt").write_text(next(text for text in stories(50) if split_of(text) == "test"))
    for tokenizer in ("bytes", "bpe"):
        config = PrepareConfig(tokenizer=tokenizer, valid=0.2, test=0.2)
        with pytest.raises(BadInput, match="no document for training"):
            prepare([str(tmp_path / "a.txt")], tmp_path / tokenizer, config)


def split_of(text):
    return SMALL.shares.split_of(hashlib.sha256(text.encode()).digest())


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    return write_jsonl(tmp_path_factory.mktemp("lines") / "a.jsonl", stories(200))


BPE = PrepareConfig(vocabulary=300, valid=0.2, test=0.2, shard_bytes=4000)


@pytest.fixture(scope="module")
def undisturbed(lines, tmp_path_factory):
    out = tmp_path_factory.mktemp("undisturbed") / "out"
    prepare([str(lines)], out, BPE)
    return contents(out)


def test_several_processes_write_the_same_bytes(lines, undisturbed, tmp_path):
    prepare([str(lines)], tmp_path / "out", BPE, workers=2)
    assert contents(tmp_path / "out") == undisturbed


def test_the_size_of_a_shard_changes_no_byte(lines, undisturbed, tmp_path):
    prepare([str(lines)], tmp_path / "out", replace(BPE, shard_bytes=1 << 20))
    assert contents(tmp_path / "out") == undisturbed


class Stop(Exception):
    pass


@pytest.mark.parametrize("after", [0, 1, 5])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_stopped_preparation_goes_on_and_ends_with_the_same_bytes(
    lines, undisturbed, tmp_path, monkeypatch, after, workers
):
    out = tmp_path / "out"
    written = []

    def encode_some(shard, *rest, original=encoding.encode_shard):
        if len(written) == after:
            raise Stop
        original(shard, *rest)
        written.append(shard.number)

    with monkeypatch.context() as patch:
        patch.setattr(encoding, "encode_shard", encode_some)
        with pytest.raises(Stop):
            prepare([str(lines)], out, BPE)
    with pytest.raises(BadInput, match="not finished"):
        Corpus.open(out)
    with pytest.raises(BadInput, match="add --resume"):
        prepare([str(lines)], out, BPE)
    again = []

    def encode(shard, *rest, original=encoding.encode_shard):
        again.append(shard.number)
        original(shard, *rest)

    monkeypatch.setattr(encoding, "encode_shard", encode)
    prepare([str(lines)], out, BPE, workers=workers, resume=True)
    assert contents(out) == undisturbed
    assert not set(again) & set(written)


KILLED = """
import os, signal, sys
import longreach.text.encoding as encoding
from longreach.text import PrepareConfig, prepare

original, left = encoding.encode_shard, [3]

def encode(*arguments):
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    left[0] -= 1
    original(*arguments)

encoding.encode_shard = encode
prepare([sys.argv[1]], sys.argv[2], PrepareConfig(vocabulary=300, valid=0.2, test=0.2, shard_bytes=4000))
"""


def test_a_killed_preparation_goes_on_and_ends_with_the_same_bytes(lines, undisturbed, tmp_path):
    out = tmp_path / "out"
    killed = subprocess.run([sys.executable, "-c", KILLED, str(lines), str(out)], capture_output=True, check=False)
    assert killed.returncode == -9, killed.stderr
    assert len(list((out / ".work").glob("shard-*.npz"))) == 3
    (out / ".meta.json.1.part").write_text("{")  # as a kill while it is written would leave it
    prepare([str(lines)], out, BPE, resume=True)
    assert contents(out) == undisturbed


@pytest.mark.parametrize("resume", [False, True])
def test_a_second_preparation_of_the_same_folder_is_refused(lines, undisturbed, tmp_path, monkeypatch, resume):
    out, refusals = tmp_path / "out", []

    def encode(shard, *rest, original=encoding.encode_shard):
        if shard.number == 1:
            with pytest.raises(BadInput, match=f"{out} is being worked on by process {os.getpid()}") as refused:
                prepare([str(lines)], out, BPE, resume=resume)
            refusals.append(refused.value)
        original(shard, *rest)

    monkeypatch.setattr(encoding, "encode_shard", encode)
    prepare([str(lines)], out, BPE)
    assert len(refusals) == 1
    assert contents(out) == undisturbed


def test_a_finished_corpus_is_left_alone(lines, undisturbed, tmp_path):
    out = tmp_path / "out"
    prepare([str(lines)], out, BPE, resume=True)  # there is nothing yet
    prepare([str(lines)], out, BPE, resume=True)
    assert contents(out) == undisturbed
    with pytest.raises(BadInput, match="was begun with vocabulary 300, not 301"):
        prepare([str(lines)], out, PrepareConfig(vocabulary=301, valid=0.2, test=0.2), resume=True)


def stop_after_two_shards(lines, out, monkeypatch):
    def encode_some(shard, *rest, original=encoding.encode_shard):
        if shard.number == 2:
            raise Stop
        original(shard, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(encoding, "encode_shard", encode_some)
        with pytest.raises(Stop):
            prepare([str(lines)], out, SMALL)


def test_texts_that_changed_since_are_noticed(tmp_path, monkeypatch):
    texts, out = stories(60), tmp_path / "out"
    lines = write_jsonl(tmp_path / "a.jsonl", texts)
    stop_after_two_shards(lines, out, monkeypatch)
    write_jsonl(lines, ["something else", *texts[1:]])
    with pytest.raises(BadInput, match="are not those that"):
        prepare([str(lines)], out, SMALL, resume=True)
    write_jsonl(lines, texts[:1])
    with pytest.raises(BadInput, match=r"are not those that|has fewer texts"):
        prepare([str(lines)], out, SMALL, resume=True)
    with pytest.raises(BadInput, match=r"was begun with valid 0\.2, not 0\.1"):
        prepare([str(lines)], out, PrepareConfig(tokenizer="bytes", valid=0.1, shard_bytes=2000), resume=True)


def test_a_damaged_shard_is_named(tmp_path, monkeypatch):
    lines, out = write_jsonl(tmp_path / "a.jsonl", stories(60)), tmp_path / "out"
    stop_after_two_shards(lines, out, monkeypatch)
    (out / ".work" / "shard-000001.npz").write_bytes(b"PK nothing")
    with pytest.raises(BadInput, match=r"shard-000001.npz is damaged: delete it"):
        prepare([str(lines)], out, SMALL, resume=True)
    (out / ".work" / "shard-000001.npz").unlink()
    prepare([str(lines)], out, SMALL, resume=True).check()


def test_a_start_that_made_nothing_does_not_stand_in_the_way(lines, tmp_path, undisturbed):
    with pytest.raises(BadInput, match="at least 258"):
        prepare([str(lines)], tmp_path / "out", replace(BPE, vocabulary=100))
    prepare([str(lines)], tmp_path / "out", BPE)
    assert contents(tmp_path / "out") == undisturbed


@pytest.mark.parametrize("resume", [False, True])
def test_a_preparation_killed_while_it_wrote_its_plan_starts_again(lines, tmp_path, undisturbed, resume):
    (tmp_path / "out" / ".work").mkdir(parents=True)
    (tmp_path / "out" / ".work" / ".plan.json.1.part").write_text('{"schema": 1, "sour')
    prepare([str(lines)], tmp_path / "out", BPE, resume=resume)
    assert contents(tmp_path / "out") == undisturbed


def test_a_folder_of_something_else_is_not_touched(lines, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    for resume in (False, True):
        with pytest.raises(BadInput):
            prepare([str(lines)], tmp_path, SMALL, resume=resume)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_worker_that_dies_is_a_clear_line(lines, tmp_path, monkeypatch):
    monkeypatch.setattr(encoding, "_encode", kill_the_worker)
    with pytest.raises(RunFailed, match="a worker died"):
        prepare([str(lines)], tmp_path / "out", SMALL, workers=2)


def kill_the_worker(*arguments):
    os._exit(1)


PEAKS = """
import os, sys, tracemalloc
from longreach.text import PrepareConfig, prepare
os.fsync = lambda number: None  # which takes longest, and no memory
for source in sys.argv[1:]:
    tracemalloc.start()
    prepare([source], source + ".out", PrepareConfig(tokenizer="bytes", shard_bytes=50_000))
    print(tracemalloc.get_traced_memory()[1])
    tracemalloc.stop()
"""
"""Prints the most memory of each preparation, in a process that no other test has used."""


def test_ten_times_the_text_takes_no_more_memory(tmp_path):
    texts = [f"{number} " + "round and round it goes. " * 800 for number in range(300)]
    warm, short, long = (write_jsonl(tmp_path / f"{count}.jsonl", texts[:count]) for count in (299, 30, 300))
    command = [sys.executable, "-c", PEAKS, str(warm), str(short), str(long)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    _, small, large = map(int, done.stdout.split())
    assert long.stat().st_size > 8 * large  # or the test would show nothing
    assert large < 1.2 * small


def test_a_shard_holds_a_few_documents_whatever_comes_after():
    taken = 0

    def endless():
        nonlocal taken
        while True:
            taken += 1
            yield Document("x" * 100, b"", 0)

    shard = next(make_shards(endless(), 1000))
    assert len(shard.documents) == taken == 10


@given(st.lists(st.integers(1, 40), min_size=1, max_size=40), st.integers(1, 200), st.randoms())
def test_a_sample_is_small_and_the_same_in_any_order(sizes, cap, random):
    texts = [f"{number}{'x' * size}" for number, size in enumerate(sizes)]
    documents = [Document(text, hashlib.sha256(text.encode()).digest(), 0) for text in texts]
    sample = draw_sample(documents, Shares(0.1, 0.1), cap)
    random.shuffle(documents)
    assert draw_sample(documents, Shares(0.1, 0.1), cap) == sample
    assert len(sample) <= 1 or sum(len(text) for text in sample) <= cap
    held_out = {document.text for document in documents if Shares(0.1, 0.1).split_of(document.digest) != "train"}
    assert not held_out & set(sample)
    training = len(texts) - len(held_out)
    assert bool(sample) == bool(training)
    if sum(map(len, texts)) <= cap:
        assert len(sample) == training


def test_meta_says_how_it_was_made(lines, undisturbed):
    meta = json.loads(undisturbed["meta.json"])
    assert meta["sources"] == [str(lines)]
    assert meta["settings"]["sample_bytes"] == 1 << 26
    assert meta["settings"]["vocabulary"] == 300
