"""Text as a task: windows of a corpus, splits that do not mix, IDs from its structure, runs that end with losses."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import page_data
from stories import long_story, write_jsonl

from longreach.api import Coupled, Predicted, Randomized, Sequential, TransformerConfig, build_model, generate
from longreach.cli.main import main
from longreach.errors import BadInput
from longreach.evaluation import next_tokens
from longreach.seeding import stream
from longreach.tasks import Text
from longreach.tasks import text as task_module
from longreach.tasks.structure import Structure
from longreach.text import Corpus, PrepareConfig, prepare


def draw(task: Text, batch: int, length: int, widest: int | None = None):
    numbers = torch.arange(batch)
    return task.sample(torch.full((batch,), length), stream(0, "test", numbers), widest or length)


def test_windows_are_pieces_of_the_split(corpus: str) -> None:
    for split in ("train", "valid", "test"):
        task = Text(corpus=corpus, split=split)
        whole = Corpus.open(corpus).split(split).tokens.tobytes()
        sample = draw(task, 32, 50)
        for row in sample.tokens:
            assert row.numpy().astype("<u2").tobytes() in whole
        assert sample.answer[:, 1:].all()
        assert not sample.answer[:, 0].any()


def test_windows_begin_everywhere(corpus: str) -> None:
    """Also at the last place: a window may end with the split."""
    task = Text(corpus=corpus, split="valid")
    tokens = Corpus.open(corpus).split("valid").tokens
    size = len(tokens) - 3
    starts = {tuple(row.tolist()) for row in draw(task, 200, size).tokens}
    assert starts == {tuple(int(token) for token in tokens[first : first + size]) for first in range(4)}


def test_short_windows_in_a_wide_batch_are_padded(corpus: str) -> None:
    sample = draw(Text(corpus=corpus), 4, 10, widest=16)
    assert sample.tokens.shape == (4, 16)
    assert (sample.tokens[:, 10:] == 0).all()
    assert (sample.tokens[:, :10] > 0).all()


def test_held_out_text_is_other_text(corpus: str) -> None:
    task = Text(corpus=corpus)
    assert task.held_out("test").documents.name == "test"
    assert task.documents.name == "train"


@pytest.mark.parametrize("length", [1, 10_000_000])
def test_lengths_that_no_window_has_are_refused(corpus: str, length: int) -> None:
    with pytest.raises(BadInput, match="a window must have 2"):
        Text(corpus=corpus).check_length(length)


def test_a_missing_corpus_is_told() -> None:
    with pytest.raises(BadInput, match="corpus is missing"):
        _ = Text().vocabulary


def test_segments_count_sentences_and_places(corpus: str) -> None:
    task = Text(corpus=corpus, structure=Structure(segments=".", places=4))
    tokens = torch.tensor([task.parse("ab.cdefg..h")])
    sample = draw(task, 1, tokens.shape[1])
    segment, place = task.coupling(type(sample)(**{**vars(sample), "tokens": tokens}), "aligned")[0]
    assert segment.tolist() == [1, 1, 2, 2, 2, 2, 2, 2, 3, 4, 4]
    assert place.tolist() == [1, 2, 1, 2, 3, 4, 4, 4, 1, 1, 2]


def test_segments_follow_from_the_tokens_written(corpus: str) -> None:
    task = Text(corpus=corpus, structure=Structure(segments=".\n", places=9))
    sample = draw(task, 16, 120)
    ids = task.coupling(sample, "aligned")
    for place in range(1, 120):
        assert torch.equal(task.follow_coupling(sample.tokens[:, place], ids[:, :, place - 1]), ids[:, :, place])


def test_ids_of_a_token_do_not_tell_what_follows(corpus: str) -> None:
    """Else a loss with the true IDs would be a cheat."""
    task = Text(corpus=corpus, structure=Structure(segments=".\n"))
    sample = draw(task, 8, 60)
    changed = sample.tokens.clone()
    changed[:, 30:] = sample.tokens[:, 30:].flip(1)
    ids = task.coupling(sample, "aligned")
    after = task.coupling(type(sample)(**{**vars(sample), "tokens": changed}), "aligned")
    assert torch.equal(ids[:, :, :30], after[:, :, :30])
    assert not torch.equal(ids, after)


def test_randomized_ids_of_a_window_are_drawn_alike_in_every_batch(corpus: str) -> None:
    task, policy = Text(corpus=corpus), Randomized(max_id=99)
    model = build_model(TransformerConfig(layers=1, width=32, heads=2), len(task.vocabulary), 3).eval()
    windows = draw(task, 3, 20).tokens
    together = next_tokens(model, task, policy)(windows, 8)[0]
    alone = torch.cat([next_tokens(model, task, policy)(windows[row : row + 1], 8)[0] for row in range(3)])
    torch.testing.assert_close(alone, together)
    for other in (next_tokens(model, task, policy, seed=1), next_tokens(model, task, Sequential())):
        assert not torch.allclose(other(windows, 8)[0], together)
    with pytest.raises(BadInput, match="max_id=18 is too small to test samples of 20 tokens"):
        next_tokens(model, task, Randomized(max_id=18))(windows, 8)


def test_generation_goes_on_with_the_ids_of_its_own_tokens(corpus: str) -> None:
    task, policy = Text(corpus=corpus, structure=Structure(segments=". ")), Coupled(max_id=200)
    model = build_model(
        TransformerConfig(layers=1, width=32, heads=2), len(task.vocabulary), 0, policy.level_sizes(task), 200
    )
    prompt = task.prompt_batch(task.parse("The lamp. The"), budget=40)
    done = generate(model.eval(), task, policy, prompt)
    written = type(prompt)(**{**vars(prompt), "tokens": done.tokens})
    stop = int((done.tokens[0] == task.stop_token).int().argmax()) or done.tokens.shape[1]
    assert torch.equal(done.ids[..., :stop], task.coupling(written, "aligned")[..., :stop])


@pytest.mark.parametrize("policy", [Coupled(max_id=100), Predicted(max_id=100)])
def test_text_without_segments_has_no_coupling(corpus: str, policy) -> None:
    with pytest.raises(BadInput, match="text has no known coupling"):
        policy.check(Text(corpus=corpus), draw(Text(corpus=corpus), 4, 20))


RECIPE = """
title: A few words
task: {{name: text, corpus: {corpus}, structure: {{segments: ". "}}}}
model: {{name: llama, layers: 1, width: 32, heads: 2}}
train: {{lengths: 32, steps: 12, batch_size: 4, validate_every: 6}}
execution: {{save_every: 6, log_every: 3}}
evaluate: {{lengths: [8, 32, 128], samples: 256, free_samples: 0}}
variants:
  counting: {{ids: sequential}}
  segments: {{ids: {{name: coupled, max_id: 64}}}}
  predicted: {{ids: {{name: predicted, max_id: 64}}, model: {{position_head: pointer}}}}
"""


@pytest.fixture(scope="module")
def ran(corpus: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    (folder / "words.yaml").write_text(RECIPE.format(corpus=corpus))
    assert main(["run", str(folder / "words.yaml"), "--out", str(folder / "out"), "--device", "cpu"]) == 0
    return folder


def test_a_run_on_text_ends_with_losses(ran: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seed = ran / "out" / "counting" / "seed-0"
    losses = json.loads((seed / "losses.json").read_text())
    assert [row["size"] for row in losses if row["by"] == "context"] == [8, 32, 128]
    assert all(0 < row["nats"] < 7 for row in losses)
    assert (seed / "losses.safetensors").exists()
    metrics = [json.loads(line) for line in (seed / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in metrics if "in_distribution_loss" in line] == [6, 12]
    assert (ran / "out" / "report" / "losses.png").exists()
    data = page_data(ran / "out" / "report" / "report.html")
    assert data["metrics"][:2] == ["context", "position"]
    assert data["losses"]["nats"][0] == pytest.approx(losses[0]["nats"], rel=1e-4)
    assert main(["report", str(ran / "out")]) == 0
    printed = capsys.readouterr().out
    assert "holds to" in printed
    assert "reach@" not in printed


def test_resumed_equals_undisturbed(ran: Path) -> None:
    """From the checkpoint in the middle."""
    whole, again = ran / "out" / "counting" / "seed-0", ran / "again" / "counting" / "seed-0"
    shutil.copytree(whole, again)
    for gone in ("losses.json", "losses.safetensors", "scores.json", "checkpoints/step-00000012.safetensors"):
        (again / gone).unlink()
    assert main(["run", str(ran / "words.yaml"), "--out", str(ran / "again"), "--only", "counting", "--resume"]) == 0
    for name in ("losses.json", "checkpoints/step-00000012.safetensors"):
        assert (whole / name).read_bytes() == (again / name).read_bytes()


@pytest.fixture(scope="module")
def renewed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, and in its corpus's place another one: the same words cut otherwise."""
    place = tmp_path_factory.mktemp("renewed")

    def lay(tokenizer: str, **settings) -> None:
        shutil.rmtree(place / "corpus", ignore_errors=True)
        chosen = PrepareConfig(tokenizer=tokenizer, valid=0.2, test=0.2, **settings)
        prepare([str(place / "stories.jsonl")], place / "corpus", chosen)
        task_module._open.cache_clear()  # a process keeps the corpus that it has opened

    write_jsonl(place / "stories.jsonl", [long_story(number, 30) for number in range(20)])
    (place / "words.yaml").write_text(RECIPE.format(corpus=place / "corpus"))
    lay("bytes")
    command = ["run", str(place / "words.yaml"), "--out", str(place / "out"), "--only", "counting"]
    assert main([*command, "--device", "cpu"]) == 0
    lay("bpe", vocabulary=258)  # the same size: nothing else would notice
    return place


@pytest.mark.parametrize(
    "command",
    [
        ["run", "words.yaml", "--out", "out", "--only", "counting", "--resume"],
        ["eval", "out", "--lengths", "16"],
        ["predict", "out/counting/seed-0", "--prompt", "The miller"],
        ["probe", "out/counting/seed-0", "corpus", "--length", "32"],
        ["export", "out/counting/seed-0", "exported"],
    ],
    ids=lambda command: command[0],
)
def test_another_corpus_in_the_same_place_is_refused(renewed: Path, command, monkeypatch, capsys) -> None:
    monkeypatch.chdir(renewed)
    capsys.readouterr()
    assert main(command) == 2
    error = capsys.readouterr().err
    assert "is not the corpus that out/counting/seed-0 was trained on" in " ".join(error.split())
    assert error.count("\n") == 1


@pytest.mark.parametrize("verb", ["run", "resume", "eval"])
def test_a_corpus_whose_tokens_changed_is_refused(verb: str, tmp_path: Path, corpus: str, ran: Path, capsys) -> None:
    """Its meta.json is as it was, and so is the size of every file."""
    copy = shutil.copytree(corpus, tmp_path / "corpus")
    (tmp_path / "words.yaml").write_text(RECIPE.format(corpus=copy))
    if verb != "run":
        seed = shutil.copytree(ran / "out" / "counting" / "seed-0", tmp_path / "out" / "counting" / "seed-0")
        (seed / "config.yaml").write_text((seed / "config.yaml").read_text().replace(corpus, str(copy)))
        if verb == "resume":
            (seed / "scores.json").unlink()
    spoilt = copy / ("test.bin" if verb == "eval" else "train.bin")
    tokens = np.fromfile(spoilt, "<u2")
    tokens[:100] = tokens[100:200]
    tokens.tofile(spoilt)
    flags = ["--device", "cpu"]
    command = ["run", str(tmp_path / "words.yaml"), "--out", str(tmp_path / "out"), "--only", "counting", *flags]
    if verb == "eval":
        command = ["eval", str(tmp_path / "out"), "--lengths", "16", *flags]
    assert main([*command, "--resume"] if verb == "resume" else command) == 2
    error = capsys.readouterr().err
    assert f"{spoilt} is not what was written" in " ".join(error.split())
    assert not (tmp_path / "out" / "counting" / "seed-0").exists() or verb != "run"


def test_a_run_that_did_not_note_its_corpus_still_loads(renewed: Path, tmp_path: Path) -> None:
    seed = shutil.copytree(renewed / "out" / "counting" / "seed-0", tmp_path / "seed-0")
    noted = json.loads((seed / "run.json").read_text())
    assert len(noted.pop("corpus")) == 64
    (seed / "run.json").write_text(json.dumps(noted))
    assert main(["eval", str(seed), "--lengths", "16"]) == 0


def test_eval_asks_text_at_other_contexts(ran: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(ran / "out" / "counting")
    assert main(["eval", run, "--lengths", "16,64", "--device", "cpu", "--encoding", "scaled_rope"]) == 0
    printed = capsys.readouterr().out
    assert "64" in printed
    assert "encoded by scaled_rope" in " ".join(printed.split())
    for name in ("losses.json", "losses.csv"):
        command = ["eval", run, "--lengths", "16,64", "--device", "cpu", "--encoding", "scaled_rope"]
        assert main([*command, "--out", str(ran / name)]) == 0
    rows = json.loads((ran / "losses.json").read_text())
    by_context = [row for row in rows if row.get("by") == "context"]
    assert [row["size"] for row in by_context] == [16, 64]
    assert all(row["test_ids"] == "encoded by scaled_rope" for row in rows)
    lines = list(csv.DictReader((ran / "losses.csv").open()))
    assert [float(line["nats"]) for line in lines if line["by"] == "context"] == [row["nats"] for row in by_context]
    capsys.readouterr()
    assert main(["eval", run, "--lengths", "90000", "--device", "cpu"]) == 2
    assert "no document has 90000 tokens of context" in capsys.readouterr().err


def test_mistakes_in_a_recipe_are_found_before_training(ran: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["run", str(ran / "words.yaml"), "--out", str(ran / "bad"), "--only", "counting"]
    for flags, message in (
        (["--evaluate.free_samples", "8"], "set evaluate.free_samples to 0"),
        (["--evaluate.lengths", "99999"], "no document has 99999 tokens of context"),
        (["--task.corpus", str(ran)], "is not a prepared corpus"),
        (["--train.lengths", "1"], "a window must have 2"),
    ):
        assert main([*command, *flags]) == 2
        assert message in capsys.readouterr().err
    assert not (ran / "bad").exists()
