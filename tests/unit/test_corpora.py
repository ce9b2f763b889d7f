"""Prepared corpora: tokenizers, what a folder holds, what is noticed when it is damaged."""

import json
import os
import shutil
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from stories import stories

from longreach.errors import BadInput
from longreach.text import SPLITS, Bytes, Corpus, PrepareConfig, as_subwords, prepare
from longreach.text import corpus as corpora
from longreach.text.corpus import token_dtype
from longreach.text.subwords import from_hugging_face, load_subwords, train_bpe

STORIES = stories(120)
BPE = train_bpe(STORIES, 400)
OURS = [Bytes(), BPE]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    texts = tmp_path_factory.mktemp("texts")
    for number, text in enumerate(STORIES):
        (texts / f"{number:03d}.txt").write_text(text)
    out = tmp_path_factory.mktemp("corpus") / "bpe"
    prepare([str(texts)], out, PrepareConfig(vocabulary=400, valid=0.2, test=0.2))
    return out


@pytest.mark.parametrize("tokenizer", OURS, ids=lambda tokenizer: tokenizer.kind)
@given(st.text(max_size=60))
def test_what_is_encoded_can_be_decoded_and_pieces_are_the_text(tokenizer, text):
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert "".join(tokenizer.pieces(ids)) == text
    assert len(tokenizer.pieces(ids)) == len(ids)
    assert all(2 <= token < len(tokenizer.vocabulary) for token in ids)


@pytest.mark.parametrize("tokenizer", OURS, ids=lambda tokenizer: tokenizer.kind)
def test_special_tokens_have_their_numbers_and_no_text_can_hold_them(tokenizer):
    assert tokenizer.vocabulary[:2] == ("<pad>", "<end>")
    assert tokenizer.end == 1
    assert not {0, 1} & set(tokenizer.encode("a <end> of a <pad>"))
    assert tokenizer.decode([*tokenizer.encode("so"), 1]) == "so<end>"


@pytest.mark.parametrize("tokenizer", OURS, ids=lambda tokenizer: tokenizer.kind)
def test_half_a_character_is_refused_in_text_and_shown_in_tokens(tokenizer):
    with pytest.raises(BadInput, match="half a character at 1"):
        tokenizer.encode("a\ud800")
    one, two = tokenizer.encode("ß")
    assert tokenizer.pieces([one, two]) == ["", "ß"]
    assert tokenizer.pieces([one]) == ["\ufffd"]
    assert tokenizer.vocabulary[one] == "<C3>"
    assert tokenizer.vocabulary[tokenizer.encode("\n")[0]] == "\\n"


@given(st.text(alphabet="ab 1.'\n\t\u00a0\u0301é", max_size=80))
def test_long_texts_are_cut_where_it_changes_no_token(text):
    whole = BPE.encode(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("longreach.text.subwords._CHUNK", 3)
        assert BPE.encode(text) == whole


def test_bpe_is_what_hugging_face_reads_from_its_folder(tmp_path):
    from transformers import AutoTokenizer

    BPE.save(tmp_path)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    assert (theirs.pad_token_id, theirs.eos_token_id) == (0, 1)
    for text in STORIES[:5]:
        assert theirs(text)["input_ids"] == BPE.encode(text)
    again = from_hugging_face(str(tmp_path))
    assert again.end == 1
    assert again.vocabulary == BPE.vocabulary
    assert load_subwords("bpe", 1, tmp_path).encode("Zürich") == BPE.encode("Zürich")


@pytest.fixture(scope="module")
def their_bytes(tmp_path_factory):
    from transformers import AutoTokenizer

    folder = tmp_path_factory.mktemp("bytes")
    as_subwords(Bytes()).save(folder)
    return AutoTokenizer.from_pretrained(folder)


@given(st.text(max_size=60) | st.text("a<end>pd ,.'Ġ\r\n\u2028", max_size=30))
@example("a <end> of a <pad> , isn't it ?")
def test_bytes_are_the_same_to_hugging_face(their_bytes, text):
    ids = Bytes().encode(text)
    assert their_bytes(text)["input_ids"] == ids
    assert their_bytes.decode(ids) == text


def test_special_tokens_of_bytes_are_the_same_to_hugging_face(their_bytes):
    assert (len(their_bytes), their_bytes.pad_token_id, their_bytes.eos_token_id) == (258, 0, 1)
    assert their_bytes.decode([67, 1, 0]) == Bytes().decode([67, 1, 0]) == "A<end><pad>"
    assert their_bytes.decode([67, 1], skip_special_tokens=True) == "A"


@given(st.lists(st.integers(0, 257), max_size=30))
def test_tokens_that_are_no_text_are_shown_alike(their_bytes, ids):
    assert their_bytes.decode(ids) == Bytes().decode(ids)


def test_a_tokenizer_of_words_without_an_end_is_refused_and_with_one_keeps_its_numbers(tmp_path):
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    def save(folder, count, **special):
        numbers = {word: number for number, word in enumerate(["nothing", "stop", *map("w{}".format, range(count))])}
        backend = Tokenizer(models.WordLevel(numbers, unk_token="nothing"))
        backend.pre_tokenizer = pre_tokenizers.Whitespace()
        PreTrainedTokenizerFast(tokenizer_object=backend, **special).save_pretrained(folder)

    save(tmp_path / "endless", 9)
    with pytest.raises(BadInput, match="no end token"):
        from_hugging_face(str(tmp_path / "endless"))
    save(tmp_path / "words", 70_000, eos_token="stop")
    (tmp_path / "text.txt").write_text("w5 w69999 what")
    config = PrepareConfig(tokenizer=str(tmp_path / "words"), valid=0.0, test=0.0)
    corpus = prepare([str(tmp_path / "text.txt")], tmp_path / "out", config)
    tokens = corpus.split("train").tokens
    assert tokens.dtype == np.uint32
    assert tokens.tolist() == [7, 70_001, 0, 1]
    assert corpus.tokenizer.pieces([7, 1]) == ["w5", "stop"]


def test_tokens_take_two_bytes_while_they_can():
    assert [token_dtype(size).itemsize for size in (258, 1 << 16, (1 << 16) + 1)] == [2, 2, 4]


def test_a_corpus_gives_back_every_text_once_and_nothing_else(folder):
    corpus = Corpus.open(folder)
    corpus.check()
    found = []
    for name in SPLITS:
        split = corpus.split(name)
        assert split.documents > 5
        assert not split.tokens.flags.writeable
        assert split.starts.dtype == np.int64
        for number in range(split.documents):
            document = split.document(number)
            assert document[-1] == corpus.tokenizer.end
            found.append(corpus.tokenizer.decode(document[:-1].tolist()))
        assert corpus.meta.splits[name].bytes == sum(len(text.encode()) for text in found[-split.documents :])
    assert sorted(found) == sorted(STORIES)


def _cut(path):
    path.write_bytes(path.read_bytes()[:-3])


@pytest.mark.parametrize(
    ("file", "spoil", "message"),
    [
        ("meta.json", lambda path: path.unlink(), "not finished: it has no meta.json"),
        ("meta.json", _cut, "meta.json is damaged"),
        ("meta.json", lambda path: path.write_text("{}"), "meta.json is damaged"),
        ("meta.json", lambda path: path.write_text(path.read_text().replace('"schema": 1', '"schema": 9')), "schema 9"),
        (
            "meta.json",
            lambda path: path.write_text(path.read_text().replace('"documents": ', '"documents": "x", "d": ')),
            "damaged",
        ),
        (
            "meta.json",
            lambda path: path.write_text(path.read_text().replace('"bpe",\n "vocab', '"wpe",\n "vocab')),
            "'wpe'",
        ),
        ("train.bin", _cut, "which is not"),
        ("train.bin", lambda path: path.unlink(), "cannot read .*train.bin: No such file"),
        ("valid.starts.npy", _cut, "valid.starts.npy is damaged"),
        ("valid.starts.npy", lambda path: np.save(path, np.arange(3)), "does not hold"),
        ("tokenizer/tokenizer.json", _cut, "cannot read the tokenizer"),
    ],
)
def test_what_is_wrong_with_a_folder_is_said_in_one_line(folder, tmp_path, file, spoil, message):
    copy = shutil.copytree(folder, tmp_path / "copy")
    spoil(copy / file)
    with pytest.raises(BadInput, match=message) as caught:
        Corpus.open(copy)
    assert "\n" not in str(caught.value)


def test_a_folder_that_is_none(tmp_path):
    with pytest.raises(BadInput, match="is no folder"):
        Corpus.open(tmp_path / "nothing")


@pytest.mark.parametrize("file", ["train.bin", "test.starts.npy", "tokenizer/tokenizer_config.json"])
def test_a_changed_byte_is_found_by_a_check_and_not_by_opening(folder, tmp_path, file):
    copy = shutil.copytree(folder, tmp_path / "copy")
    content = bytearray((copy / file).read_bytes())
    content[-20] ^= 1
    (copy / file).write_bytes(content)
    with pytest.raises(BadInput, match="is not what was written"):
        Corpus.open(copy).check()


@pytest.mark.parametrize("file", ["train.bin", "test.starts.npy", "tokenizer/tokenizer_config.json"])
def test_verifying_reads_a_file_again_only_when_it_has_changed(folder, tmp_path, monkeypatch, file):
    copy = shutil.copytree(folder, tmp_path / "copy")
    read = []

    def count(path, original=corpora.sha256_of):
        read.append(path.relative_to(copy).as_posix())
        return original(path)

    monkeypatch.setattr(corpora, "sha256_of", count)
    corpus = Corpus.open(copy)
    corpus.verify()
    assert file in read
    read.clear()
    Corpus.open(copy).verify()
    assert read == []
    content = bytearray((copy / file).read_bytes())
    content[-20] ^= 1
    (copy / file).write_bytes(content)
    os.utime(copy / file, ns=(0, 0))
    with pytest.raises(BadInput, match="is not what was written"):
        corpus.verify()
    assert read == [file]


def test_a_check_finds_tokens_that_no_vocabulary_has(folder):
    corpus = Corpus.open(folder)
    small = replace(corpus, meta=replace(corpus.meta, vocabulary=200))
    with pytest.raises(BadInput, match="beyond the vocabulary"):
        small.check()
    other_end = replace(corpus, meta=replace(corpus.meta, end=5))
    with pytest.raises(BadInput, match="without its end token"):
        other_end.check()


def test_the_fingerprint_follows_the_tokens(folder, tmp_path):
    plain = json.loads((folder / "meta.json").read_text())
    assert plain["tokenizer"] == "bpe"
    (tmp_path / "text.txt").write_text(STORIES[0])
    config = PrepareConfig(tokenizer="bytes", valid=0.0, test=0.0)
    one, two = (prepare([str(tmp_path / "text.txt")], tmp_path / name, config) for name in ("one", "two"))
    assert one.fingerprint == two.fingerprint != Corpus.open(folder).fingerprint
