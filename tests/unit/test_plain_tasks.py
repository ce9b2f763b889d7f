"""Tasks given by examples, and tasks whose samples are the rows of a file."""

import json
import pickle
import random
import sys
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from helpers import TINY, answer_of, draw, execute_in

from longreach.api import (
    Coupled,
    EvalConfig,
    Example,
    Jsonl,
    Level,
    Mixture,
    PointerConfig,
    Predicted,
    RunConfig,
    Sequential,
    TrainConfig,
    TransformerConfig,
)
from longreach.cli.main import main
from longreach.config.spans import Lengths, Span
from longreach.errors import BadInput
from longreach.evaluation import cells, evaluate
from longreach.evaluation.evaluate import fewer_samples
from longreach.runs import check
from longreach.runs.parts import new_model, training_data
from longreach.training import legal_lengths


class Reverse(Example):
    """a b c =  ->  c b a ."""

    alphabet = "abc"  # collecting it from samples takes a while where types are checked

    def example(self, rng, length):
        prompt = rng.choices("abc", k=length)
        places = [10 * (n + 1) for n in range(length)]  # gaps are closed
        return prompt, prompt[::-1], (places, places[::-1])


class Known(Reverse):
    """The same, with everything that a typed prompt needs."""

    def answer(self, prompt):
        return prompt[::-1]

    def ids(self, prompt):
        places = range(1, len(prompt) + 1)
        return [*places], [*places][::-1]


def of(example, **attributes):
    """A task with this method, or one that always returns this value."""
    method = example if callable(example) else lambda self, rng, length: example
    return type("Own", (Example,), {"example": method, "alphabet": "abcx;", **attributes})()


# examples


def test_vocabulary_sizes_and_answers_follow_from_examples():
    task = of(Reverse.example, alphabet=())
    assert task.vocabulary == ("_", ".", "=", "a", "b", "c")
    assert task.max_tokens(5) == 12
    assert task.max_answer(5) == 6
    assert task.prompt_length(task.parse("abcab")) == 5
    sample = draw(task, [1, 5, 3])
    for row in range(3):
        size, start = int(sample.num_tokens[row]), int(sample.prompt_tokens[row])
        words = task.words(sample.tokens[row, :size].tolist())
        assert words[start - 1] == "="
        assert words[start:] == [*words[: start - 1][::-1], "."]
        assert task.solve(sample, row) == answer_of(sample, row)
    again = draw(task, [5], seed=1)
    assert not torch.equal(again.tokens, draw(task, [5], seed=2).tokens)
    assert torch.equal(again.tokens, draw(Reverse(), [5], seed=1).tokens)


def test_both_forms_follow_from_the_published_ids():
    task = Reverse()
    assert task.coupling_levels == (Level("place"),)
    sample = draw(task, [3])
    #                                             prompt  =  answer  .
    assert task.coupling(sample, "published")[0, 0].tolist() == [1, 2, 3, 0, 3, 2, 1, 0]
    assert task.coupling(sample, "aligned")[0, 0].tolist() == [1, 2, 3, 3, 2, 1, 0, 0]


def test_without_a_sign_the_last_word_of_the_prompt_leads_to_the_answer():
    task = of(("ab", "x", ([1, 2], [1])), sign="", alphabet=())
    sample = draw(task, [2])
    assert task.words(sample.tokens[0].tolist()) == ["a", "b", "x", "."]
    assert task.vocabulary == ("_", ".", "a", "b", "x")
    assert task.coupling(sample, "published")[0, 0].tolist() == [1, 2, 1, 0]
    assert task.coupling(sample, "aligned")[0, 0].tolist() == [1, 1, 0, 0]


def test_one_more_answer_id_is_that_of_the_stop_token():
    task = of(("ab;", "ab", ([1, 2, 3], [1, 2, 3])))
    sample = draw(task, [2])
    assert task.coupling(sample, "published")[0, 0].tolist() == [1, 2, 3, 0, 1, 2, 0]
    assert task.coupling(sample, "aligned")[0, 0].tolist() == [1, 2, 3, 1, 2, 3, 0]


def test_several_levels_have_names_and_fixed_ones_keep_their_ids():
    ids = ([(5, 1), (9, 3)], [(9, 3)])
    named = of(("ab", "b", ids), levels=("row", "column"))
    assert [level.name for level in named.coupling_levels] == ["row", "column"]
    assert named.coupling(draw(named, [2]), "published")[0].tolist() == [[1, 2, 0, 2, 0], [1, 2, 0, 2, 0]]
    fixed = of(("ab", "b", ids), coupling_levels=(Level("row"), Level("column", 3)))
    assert fixed.coupling(draw(fixed, [2]), "published")[0].tolist() == [[1, 2, 0, 2, 0], [1, 3, 0, 3, 0]]
    with pytest.raises(BadInput, match="level column is 3, which is more than 2"):
        draw(of(("ab", "b", ids), coupling_levels=(Level("row"), Level("column", 2))), [2])
    with pytest.raises(BadInput, match="its IDs have 2 levels: name them in `levels`"):
        _ = of(("ab", "b", ids)).coupling_levels


@pytest.mark.parametrize("form", ["published", "aligned"])
@pytest.mark.parametrize("task", [Reverse(), Known()], ids=["drawn", "known"])
def test_ids_of_a_prompt_are_those_of_its_sample(task, form):
    sample = draw(task, [2, 6, 4])
    inside = torch.arange(sample.tokens.shape[1]) < sample.prompt_tokens[:, None]
    alone = task.coupling(sample.prompt_only(), form)
    assert torch.equal(alone, task.coupling(sample, form) * inside[:, None])


def test_a_prompt_that_was_not_drawn_needs_methods_of_its_own():
    task = Reverse()
    prompt = task.prompt_batch(task.parse("a b c a b c a b c"), 12)
    with pytest.raises(BadInput, match=r"no sample drawn so far has the prompt .*: define answer\(self, prompt\)"):
        task.solve(prompt, 0)
    with pytest.raises(BadInput, match=r"define ids\(self, prompt\)"):
        task.coupling(prompt, "aligned")
    known = Known()
    prompt = known.prompt_batch(known.parse("aab"), 4)
    assert known.words(known.solve(prompt, 0)) == ["b", "a", "a", "."]
    assert known.coupling(prompt, "aligned")[0, 0].tolist() == [1, 2, 3, 3, 0, 0, 0, 0]


def test_a_rule_gives_the_ids_of_answers_too():
    task = of(Reverse.example, answer=Known.answer, ids=Known.ids, coupling_by_rule=True)
    prompt = task.prompt_batch(task.parse("aab"), 4)
    assert task.coupling(prompt, "aligned")[0, 0].tolist() == [1, 2, 3, 3, 2, 1, 0, 0]
    Coupled(max_id=20).check(task, draw(task, [3]))
    with pytest.raises(BadInput, match="no rule supplies them"):
        Coupled(max_id=20).check(Reverse(), draw(Reverse(), [3]))


def test_memory_of_drawn_prompts_is_bounded(monkeypatch):
    monkeypatch.setattr("longreach.tasks.example._REMEMBERED", 3)
    task = Reverse()
    early, late = draw(task, [20]), draw(task, [9] * 5)
    assert task.coupling(late.rows(4, 5).prompt_only(), "aligned").shape == (1, 1, 20)
    with pytest.raises(BadInput, match="no sample drawn so far"):
        task.coupling(early.prompt_only(), "aligned")
    assert task.solve(early, 0) == answer_of(early, 0)  # its key is known


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (5, r"must return \(prompt, answer\) or \(prompt, answer, ids\), got 5"),
        (["a", "b"], r"must return \(prompt, answer\)"),
        (("a", 7), "the answer must be a list of words or a string, got 7"),
        ((["a", 3], "b"), "the prompt must be a list of words or a string"),
        (("a.", "b"), r"the word '\.' is padding or the stop token"),
        (("a b", "b"), "a word must not hold blanks, got ' '"),
        (("ab=", "b"), "the prompt ends with '=', which the library adds"),
        (("ab", "b", 5), r"IDs must be \(IDs of the prompt, IDs of the answer\)"),
        (("ab", "b", ([1], [1])), "the prompt has 2 words and 1 IDs"),
        (("ab", "b", ([1, 2], [1, 2, 3])), "the answer has 1 words and 3 IDs"),
        (("ab", "b", ([1, -2], [1])), "an ID must be a whole number from 0, got -2"),
        (("ab", "b", ([1, 2.5], [1])), "an ID must be a whole number from 0, got 2.5"),
        (("ab", "b", ([1, (2, 3)], [1])), r"must give an ID at 1 levels for each word, got \(2, 3\)"),
    ],
)
def test_a_wrong_example_is_one_line_that_names_class_and_length(found, message):
    with pytest.raises(BadInput, match=message) as refusal:
        draw(of(found), [3])
    assert "Own: example at length" in str(refusal.value)
    assert len(refusal.value.lines) == 1


def test_mistakes_that_show_in_some_samples_only_are_told():
    with pytest.raises(BadInput, match="example at length 3: must never return IDs"):
        draw(of(lambda self, rng, length: ("a", "a", ([1], [1])) if length > 2 else ("a", "a")), [3])
    with pytest.raises(BadInput, match=r"ZeroDivisionError in .*test_plain_tasks\.py"):
        draw(of(lambda self, rng, length: 1 / 0), [3])
    with pytest.raises(BadInput, match=r"`answer` gives 'b' for .*, and `example` 'a'"):
        draw(of(("a", "a"), answer=lambda self, prompt: "b"), [3])
    with pytest.raises(BadInput, match="`ids` and `example` differ on the aligned IDs"):
        draw(of(("ab", "ab", ([1, 2], [1, 2])), ids=lambda self, prompt: ([1, 2], [])), [3])


@pytest.mark.parametrize("task", [Reverse(), Known()], ids=["drawn", "known"])
def test_a_run_predicts_the_ids_of_an_example(task, tmp_path):
    model = TransformerConfig(layers=1, width=16, heads=2, position_head=PointerConfig())
    train = TrainConfig(lengths=Span(1, 4), steps=2, batch_size=4, validate_every=2)
    test = EvalConfig(lengths=Lengths((3, 6)), samples=4, free_samples=4)
    config = RunConfig(task=task, ids=Predicted(max_id=20), model=model, train=train, evaluate=test)
    scores = execute_in(tmp_path / "run", config).scores()
    assert {score.length: score.samples for score in scores if score.metric == "token_em_free"} == {3: 4, 6: 4}


# rows of files


def rows_of(count=400, longest=6):
    """Strings to reverse, all different; the length is the number of letters."""
    rng = random.Random(0)
    words = {"".join(rng.choices("abcd", k=rng.randint(3, longest))) for _ in range(count)}
    words |= {"".join(rng.choices("abcd", k=9)) for _ in range(20)}
    return [{"prompt": f"{word}=", "answer": word[::-1], "length": len(word)} for word in sorted(words)]


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def with_ids(rows):
    return [{**row, "ids": [[*range(1, row["length"] + 1), 0], [*range(row["length"], 0, -1)]]} for row in rows]


@pytest.fixture
def path(tmp_path):
    return write(tmp_path / "data.jsonl", rows_of())


def prompts(task, length, count=400):
    sample = draw(task, [length] * count)
    return {
        task.spell(row[:end]) for row, end in zip(sample.tokens.tolist(), sample.prompt_tokens.tolist(), strict=True)
    }


def test_samples_are_the_rows_of_their_length(path):
    task = Jsonl(path=path)
    sample = draw(task, [3, 9, 5])
    answers = {row["prompt"]: row["answer"] for row in rows_of()}
    for row, length in enumerate([3, 9, 5]):
        start, end = int(sample.prompt_tokens[row]), int(sample.num_tokens[row])
        prompt = task.spell(sample.tokens[row, :start].tolist())
        assert start == length + 1
        assert task.spell(sample.tokens[row, start:end].tolist()) == f"{answers[prompt]} <end>"
        assert task.solve(sample, row) == answer_of(sample, row)
    assert task.max_tokens(5) == 12
    assert task.max_tokens(8) == 14  # no row has length 7 or 8
    assert task.max_answer(5) == 6
    assert pickle.loads(pickle.dumps(task)) == task


def test_training_and_tests_share_no_row_and_use_all_of_them(path):
    task = Jsonl(path=path, held_out_share=0.3)
    held = task.held_out("test", longest=6)
    for length in (4, 5):
        trained, tested = prompts(task, length), prompts(held, length)
        assert trained
        assert tested
        assert not trained & tested
        assert trained | tested == {row["prompt"] for row in rows_of() if row["length"] == length}
    assert held.num_rows(9) == len(prompts(held, 9)) == 20
    beyond = Jsonl(path=path, held_out_share=0.3, test_beyond=6)
    with pytest.raises(BadInput, match="no rows for training of length 9; the nearest lengths with some: 4, 5, 6"):
        beyond.check_length(9)


def test_which_rows_are_held_out_depends_on_their_prompts_alone(path, tmp_path):
    shuffled = rows_of()
    random.Random(1).shuffle(shuffled)
    other = write(tmp_path / "other.jsonl", shuffled[:-30])
    first, second = (Jsonl(path=file).held_out("test", longest=6) for file in (path, other))
    left = {row["prompt"] for row in shuffled[:-30]}
    for length in (5, 6):
        assert prompts(second, length) == prompts(first, length) & left
    assert Jsonl(path=path).fingerprint != Jsonl(path=other).fingerprint


def test_a_run_trains_on_training_rows_and_tests_each_held_out_row_once(path):
    config = RunConfig(
        task=Jsonl(path=path),
        model=TINY,
        train=TrainConfig(lengths=Span(1, 6), steps=1, batch_size=64),
        evaluate=EvalConfig(lengths=Lengths((5, 9)), samples=16, free_samples=4),
    )
    check(config)
    assert legal_lengths(config.task, config.train.lengths) == (3, 4, 5, 6)
    held = config.held_out()
    batch = training_data(config, 0, "cpu", 1024).batch(0).sample
    trained = {
        config.task.spell(r[:n]) for r, n in zip(batch.tokens.tolist(), batch.prompt_tokens.tolist(), strict=True)
    }
    assert trained
    assert not trained & set().union(*(prompts(held, length) for length in (3, 4, 5, 6, 9)))
    seen: list[str] = []
    original = Jsonl.encode

    def noting(self, keys, lengths, width):
        rows = [self.draw(key, length) for key, length in zip(keys, lengths, strict=True)]
        seen.extend("".join(row.prompt) for row in rows)
        return original(self, keys, lengths, width)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Jsonl, "encode", noting)
        scores = evaluate(new_model(config, 0, "cpu"), held, config.ids, config.evaluate, 0, "cpu", batch_tokens=100)
    counts = {5: held.num_rows(5), 9: 16}
    assert counts[5] < 16
    assert {score.length: score.samples for score in scores if score.metric == "token_em_tf"} == counts
    assert len(seen) == len(set(seen)) == sum(counts.values())
    expected = [f"repeated rows: instead of 16 samples there are {counts[5]} at length 5"]
    assert fewer_samples(held, config.evaluate) == expected
    other = EvalConfig(lengths=Lengths((9,)), samples=4, free_samples=0, seed=1)
    assert cells(held, other)[0][0].samples(other) == 4


def test_what_a_run_could_not_do_is_refused_before_it_starts(path):
    def start(task, ids=None, lengths=(5, 9), trained=(1, 6)):
        test = EvalConfig(lengths=Lengths(lengths), samples=4, free_samples=2)
        train = TrainConfig(lengths=Span(*trained), steps=1)
        check(RunConfig(task=task, ids=ids or Sequential(), model=TINY, train=train, evaluate=test))

    start(Jsonl(path=path))
    with pytest.raises(BadInput, match="no held-out rows of length 8; the nearest lengths with some: 5, 6, 9"):
        start(Jsonl(path=path), lengths=(8,))
    with pytest.raises(BadInput, match=r"no length in 1\.\.6 is possible: .* no held-out rows of length 6"):
        start(Jsonl(path=path, held_out_share=1e-9))
    with pytest.raises(BadInput, match=r"no length in 1\.\.2 is possible: .* no rows for training of length 2"):
        start(Jsonl(path=path), trained=(1, 2))
    with pytest.raises(BadInput, match=r"task\.split is for `show`"):
        start(Jsonl(path=path, split="test"))
    for policy in (Coupled(max_id=20), Predicted(max_id=20)):
        with pytest.raises(BadInput, match="jsonl has no known coupling"):
            start(Jsonl(path=path), policy)
    with pytest.raises(ValueError, match="held_out_share must be above 0 and below 1"):
        Jsonl(path=path, held_out_share=0.0)
    with pytest.raises(BadInput, match=r"task\.path is missing"):
        start(Jsonl())


def test_a_mixture_holds_rows_out_too(path):
    mixture = Mixture(of=(Jsonl(path=path), Jsonl(path=path, held_out_share=0.4)))
    assert mixture.fingerprint == f"{Jsonl(path=path).fingerprint} {Jsonl(path=path).fingerprint}"
    held = mixture.held_out("test", longest=6)
    assert [task.split for task in held.of] == ["test", "test"]
    assert held.vocabulary == mixture.vocabulary


def test_ids_of_rows_are_coupled_and_serve_generation(tmp_path):
    task = Jsonl(path=write(tmp_path / "ids.jsonl", with_ids(rows_of())))
    sample = draw(task, [3, 5])
    assert task.coupling_levels == (Level("place"),)
    assert task.coupling(sample, "published")[0, 0].tolist() == [1, 2, 3, 0, 3, 2, 1, 0, 0, 0, 0, 0]
    assert task.coupling(sample, "aligned")[0, 0].tolist() == [1, 2, 3, 3, 2, 1, 0, 0, 0, 0, 0, 0]
    alone = task.coupling(sample.prompt_only(), "aligned")
    assert alone[0, 0].tolist() == [1, 2, 3, 3, 0, 0, 0, 0, 0, 0, 0, 0]
    Predicted(max_id=20).check(task, sample)
    with pytest.raises(BadInput, match="has no row with the prompt 'abcdabcd'"):
        task.coupling(task.prompt_batch(task.parse("abcdabcd"), 4), "aligned")
    two = [{"prompt": "ab", "answer": "b", "ids": [[[1, 0], [2, 1]], [[2, 1]]]}]
    levels = Jsonl(path=write(tmp_path / "two.jsonl", two)).coupling_levels
    assert [level.name for level in levels] == ["level 1", "level 2"]


def test_other_files_hold_the_same_rows(path, tmp_path, monkeypatch):
    rows = with_ids(rows_of())
    lines = Jsonl(path=write(tmp_path / "ids.jsonl", rows))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "data.parquet")
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "state.json").write_text("{}")
    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_from_disk=lambda path: rows))
    for name in ("data.parquet", "saved"):
        other = Jsonl(path=str(tmp_path / name))
        assert other.vocabulary == lines.vocabulary
        a, b = draw(lines, [3, 9]), draw(other, [3, 9])
        assert torch.equal(a.tokens, b.tokens)
        assert torch.equal(lines.coupling(a, "aligned"), other.coupling(b, "aligned"))
    (tmp_path / "saved" / "dataset_dict.json").write_text("{}")
    with pytest.raises(BadInput, match="holds several splits"):
        _ = Jsonl(path=str(tmp_path / "saved")).vocabulary
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(BadInput, match=r"needs the datasets package: pip install 'longreach\[datasets\]'"):
        _ = Jsonl(path=str(tmp_path / "saved")).vocabulary
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    (tmp_path / "data.parquet").touch()
    with pytest.raises(BadInput, match=r"needs pyarrow: pip install 'longreach\[table\]'"):
        _ = Jsonl(path=str(tmp_path / "data.parquet")).vocabulary


def test_words_lists_and_subwords(tmp_path):
    from longreach.text.subwords import train_bpe

    text = [{"prompt": "the cat  sat", "answer": "yes it did"}, {"prompt": "the dog sat", "answer": "no"}]
    word = Jsonl(path=write(tmp_path / "text.jsonl", text), tokens="word")
    assert "cat" in word.vocabulary
    assert word.spell(word.parse("the cat sat")) == "the cat sat"
    assert word.prompt_length(word.parse("the dog sat")) == 3
    with pytest.raises(BadInput, match="'cow' is not a token"):
        word.parse("the cow sat")
    plain = Jsonl(path=word.path)
    assert plain.spell(plain.parse("the cat  sat")) == "the cat  sat"
    train_bpe([row["prompt"] for row in text], 300).save(tmp_path)
    pieces = Jsonl(path=word.path, tokens=str(tmp_path / "tokenizer.json"))
    prompt = pieces.parse("the cat  sat")
    assert len(prompt) < len("the cat  sat")
    assert pieces.spell(prompt) == "the cat  sat"
    batch = pieces.prompt_batch(prompt, 20)
    assert pieces.spell(pieces.solve(batch, 0)) == "yes it did <end>"
    assert pieces.fingerprint.startswith(plain.fingerprint)
    assert pieces.fingerprint != plain.fingerprint
    with pytest.raises(BadInput, match=r"there is no tokenizer .*none\.json"):
        _ = Jsonl(path=word.path, tokens=str(tmp_path / "none.json")).vocabulary
    lists = write(tmp_path / "lists.jsonl", [{"prompt": ["x1", 7], "answer": ["x1"]}])
    assert Jsonl(path=lists).vocabulary == ("<pad>", "<end>", "7", "x1")
    assert Jsonl(path=lists).spell(Jsonl(path=lists).parse("x1 7")) == "x1 7"
    with pytest.raises(BadInput, match=r"holds lists of tokens, which task\.tokens=word cannot cut"):
        _ = Jsonl(path=lists, tokens="word").vocabulary


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", "", "a.jsonl has no rows"),
        ("a.csv", "x", r"a\.csv: a file of rows ends in \.jsonl, \.ndjson or \.parquet"),
        ("a.parquet", "x", r"a\.parquet is damaged"),
        ("a.jsonl", '{"prompt": "a", "answer": "b"}\n\n{"prompt": \n', "a.jsonl, line 3 is not JSON"),
        ("a.jsonl", "[1]\n", "line 1 is not a JSON object"),
        ("a.jsonl", '{"question": "a", "answer": "b"}\n', "line 1: it has no prompt; its columns are question, answer"),
        ("a.jsonl", '{"prompt": "a"}\n', "line 1: it has no answer"),
        ("a.jsonl", '{"prompt": 5, "answer": "b"}\n', "line 1: prompt must be a string, got 5"),
        ("a.jsonl", '{"prompt": ["a"], "answer": "b"}\n', "line 1: answer must be a list of tokens"),
        ("a.jsonl", '{"prompt": "", "answer": "b"}\n', "line 1: the prompt is empty"),
        ("a.jsonl", '{"prompt": ["<end>"], "answer": []}\n', "line 1: the token <end> is for padding"),
        ("a.jsonl", '{"prompt": "a", "answer": "b", "length": 0}\n', "line 1: length must be a whole number from 1"),
        (
            "a.jsonl",
            '{"prompt": "a", "answer": "b", "length": 1}\n{"prompt": "b", "answer": "b"}\n',
            "line 2: it has no length",
        ),
        ("a.jsonl", '{"prompt": "ab", "answer": "b", "ids": [[1], [1]]}\n', "line 1: the prompt has 2 words and 1 IDs"),
        ("a.jsonl", '{"prompt": "a", "answer": "b", "ids": [[-1], [1]]}\n', "line 1: an ID must be a whole number"),
        (
            "a.jsonl",
            '{"prompt": "a", "answer": "b"}\n{"prompt": "c", "answer": "b"}\n{"prompt": "a", "answer": "c"}\n',
            "line 3: the prompt 'a' has another answer than in line 1",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_told_in_one_line(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(BadInput, match=message) as refusal:
        Jsonl(path=str(tmp_path / name)).check_length(1)
    assert len(refusal.value.lines) == 1


def test_equal_rows_count_once(tmp_path):
    row = {"prompt": "ab", "answer": "b"}
    task = Jsonl(path=write(tmp_path / "a.jsonl", [row, row, row]), held_out_share=1e-9)
    assert task.num_rows(2) == 1


# both, by the command line


def test_commands_work_on_rows_and_notice_another_file(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "data.jsonl", rows_of())
    assert main(["show", "jsonl", "--task.path", "data.jsonl", "--length", "5", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tokens"][5] == "="
    (tmp_path / "recipe.yaml").write_text(
        "title: rows\ntask: {name: jsonl, path: data.jsonl}\nmodel: {layers: 1, width: 16, heads: 2}\n"
        "train: {lengths: 3..6, steps: 2, batch_size: 4, validate_every: 2}\n"
        "evaluate: {lengths: [5, 9], samples: 64, free_samples: 2}\n"
    )
    assert main(["run", "recipe.yaml", "--out", "out", "--device", "cpu"]) == 0
    captured = capsys.readouterr()
    assert "20 at length 9" in captured.out + captured.err
    assert main(["eval", "out", "--lengths", "9", "--samples", "8", "--device", "cpu", "--json"]) == 0
    assert {row["samples"] for row in json.loads(capsys.readouterr().out) if row["metric"] == "token_em_tf"} == {8}
    prompt = rows_of()[0]["prompt"]
    assert main(["predict", "out/seed-0", "--prompt", prompt, "--device", "cpu", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["expected"] == f"{rows_of()[0]['answer']} <end>"
    write(tmp_path / "data.jsonl", rows_of()[1:])
    for command in (["eval", "out"], ["predict", "out/seed-0", "--prompt", prompt]):
        assert main([*command, "--device", "cpu"]) == 2
        assert "data.jsonl has changed since out/seed-0 was trained on it" in capsys.readouterr().err
    (tmp_path / "out/seed-0/scores.json").unlink()
    assert main(["run", "recipe.yaml", "--out", "out", "--device", "cpu", "--resume"]) == 2
    assert "data.jsonl has changed" in capsys.readouterr().err


def test_commands_work_on_an_example(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(Path(__file__).parents[2])
    assert main(["show", "examples.my_example.Sort", "--length", "4", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["answer"] == [*sorted(shown["tokens"][:4]), "."]
    out = str(tmp_path / "out")
    arguments = ["--task.name", "examples.my_example.Sort", "--only", "counting", "--out", out, "--device", "cpu"]
    sizes = ["--train.steps", "2", "--train.lengths", "1..4", "--train.batch_size", "4", "--evaluate.lengths", "3,6"]
    samples = ["--evaluate.samples", "4", "--evaluate.free_samples", "2", "--model.width", "16", "--seeds", "1"]
    assert main(["run", "demo", *arguments, *sizes, *samples]) == 0
    capsys.readouterr()
    run = f"{out}/counting/seed-0"
    assert main(["predict", run, "--prompt", "c a b", "--device", "cpu", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["expected"] == "a b c ."
    assert main(["eval", run, "--lengths", "8", "--device", "cpu"]) == 0
