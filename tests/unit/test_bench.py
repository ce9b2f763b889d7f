"""What is measured, counted and told about speed.  No test here depends on how fast anything is."""

import json
from collections import Counter

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from longreach.api import TransformerConfig, build_model
from longreach.bench import (
    Effort,
    HeadlineRow,
    Peak,
    Side,
    SpeedComparison,
    Stamp,
    StartTime,
    Timing,
    Workload,
    headline_rows,
    lengths,
    rivals,
    take_turns,
    time_lengths,
    time_start,
    update_headline,
)
from longreach.bench.flops import forward_flops, training_flops
from longreach.bench.lengths import Figures, LengthReport, LengthRow
from longreach.bench.machine import MEMORY_ON_GPU
from longreach.bench.train import new_model, our_step, training_data
from longreach.cli.bench_tables import start_table
from longreach.cli.main import main
from longreach.errors import BadInput, RunFailed
from longreach.execution import ExecutionConfig
from longreach.hf import to_huggingface
from longreach.terminal.console import out

TINY = Workload(1, 16, 2, 2, 12)
TINY_FLAGS = ["--shape", "1,16,2,2,12", "--device", "cpu", "--repeats", "2", "--peak", "1"]


# --- operations -------------------------------------------------------------------------------------------------------


def test_operations_equal_a_count_by_hand():
    config = TransformerConfig(layers=2, width=8, heads=2)
    # per layer and token: query, key, value, output 4 x 8 x 8, feed-forward 2 x 8 x 32, two operations for each weight
    weights = 2 * (2 * (4 * 64 + 2 * 256)) * (3 * 5)
    # 3 rows of 5 tokens: 15 pairs each; a pair costs 8 products for the score and 8 to mix the value, in each layer
    attention = 2 * 2 * (8 + 8) * (3 * 15)
    head = 2 * 8 * 11 * 6
    assert forward_flops(config, vocab_size=11, batch=3, length=5, predicted=6) == weights + attention + head
    assert training_flops(config, 11, 3, 5, 6) == 3 * (weights + attention + head)


@pytest.mark.parametrize(
    "parts",
    [{"feed_forward": 2}, {"kv_heads": 1}, {"gated": True, "feed_forward": 8 / 3}, {"norm": "rms", "biases": False}],
    ids=str,
)
def test_the_weights_counted_are_those_of_the_model(parts):
    config = TransformerConfig(layers=3, width=24, heads=2, **parts)
    model = build_model(config, 10, seed=0)
    weights = sum(m.weight.numel() for m in model.blocks.modules() if isinstance(m, nn.Linear))
    assert forward_flops(config, 10, 1, 1, 0) == 2 * (weights + 2 * 3 * 24)  # one token sees one pair


def test_what_torch_counts_is_the_same_but_for_hidden_pairs():
    config, batch, length = TransformerConfig(layers=2, width=16, heads=2), 3, 7
    model = build_model(config, 10, seed=0)
    tokens = torch.zeros(batch, length, dtype=torch.long)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model.all_logits(tokens, torch.arange(length).expand(batch, 1, length))
    counts = counter.get_flop_counts()["Global"]
    products = sum(count for kind, count in counts.items() if "attention" not in str(kind))
    attention = 4 * 2 * 16 * batch * length * (length + 1) // 2
    assert forward_flops(config, 10, batch, length, batch * length) == products + attention


# --- turns ------------------------------------------------------------------------------------------------------------


class FakeClock:
    """Time passes only in the calls that are measured."""

    def __init__(self):
        self.now, self.calls = 0.0, []

    def side(self, name, seconds, tokens=100):
        taken = iter(seconds)

        def call():
            self.calls.append(name)
            self.now += next(taken)

        return Side(name, call, tokens)

    def __call__(self):
        return self.now


def test_sides_take_turns_and_warming_up_does_not_count():
    clock = FakeClock()
    ours, theirs = clock.side("ours", [9, 9, 1, 2, 4, 3]), clock.side("theirs", [9, 9, 1, 6, 6, 6])
    found = take_turns([ours, theirs], Effort(rounds=3), clock=clock, warm_up=2)
    # two to warm up and one to see how long a call takes, then in turns
    assert clock.calls == ["ours"] * 3 + ["theirs"] * 3 + ["ours", "theirs"] * 3
    assert [timing.seconds for timing in found] == [(2, 4, 3), (6, 6, 6)]
    assert (found[0].typical, found[0].rate, found[0].slowest, found[0].fastest) == (3, 100 / 3, 25, 50)


def test_no_round_begins_after_the_budget_but_there_is_always_one():
    clock = FakeClock()
    (found,) = take_turns([clock.side("ours", [100, 10, 10, 10, 10])], Effort(9, seconds=15.0), clock=clock, warm_up=0)
    assert found.seconds == (100,)
    clock = FakeClock()
    (found,) = take_turns([clock.side("ours", [10, 10, 10, 10])], Effort(9, seconds=15.0), clock=clock, warm_up=0)
    assert found.seconds == (10, 10)


def test_quick_calls_are_repeated_within_a_round():
    clock = FakeClock()
    found = take_turns([clock.side("ours", [0.1] * 100)], Effort(2), clock=clock, warm_up=1, window=0.25)
    assert len(clock.calls) == 1 + 1 + 2 * 3
    assert found[0].seconds == pytest.approx((0.1, 0.1))


def test_the_device_is_waited_for_before_and_after_every_look_at_the_clock():
    clock, waits = FakeClock(), []
    side = clock.side("ours", [1] * 5)
    take_turns([side], Effort(2), wait=lambda: waits.append(len(clock.calls)), clock=clock, warm_up=2)
    assert waits == [2, 3, 3, 4, 4, 5]


def test_ratios_are_of_rounds_and_shares_of_the_peak():
    ours = Timing("ours", 100, (1.0, 2.0, 1.0))
    theirs = Timing("theirs", 50, (1.0, 4.0, 2.0))
    found = SpeedComparison("x", (ours, theirs), flops_per_token=4.0, peak=Peak(1000.0, "given"))
    mine, other = found.rows
    assert (mine.ratio, mine.tokens_per_second, mine.floor_share) == (None, 100, 0.4)
    assert (other.ratio, other.ratio_lowest, other.ratio_highest) == (4, 2, 4)
    assert (other.tokens_per_second, other.slowest, other.fastest, other.rounds) == (25, 12.5, 50, 3)


# --- the other side ---------------------------------------------------------------------------------------------------


def test_the_rival_computes_the_same_function():
    data = training_data(TINY, "copy", "cpu")
    model = new_model(TINY, data.task, "cpu")
    tokens = data.batch(0).sample.tokens[:, :-1]
    assert tokens.shape == (2, 12)
    ids = torch.arange(tokens.shape[1]).expand(2, 1, -1)
    with torch.no_grad():
        torch.testing.assert_close(rivals.reading(model, tokens)(), model.all_logits(tokens, ids), rtol=1e-4, atol=1e-5)
    theirs = to_huggingface(model, 12)
    assert theirs.config._attn_implementation == "sdpa"
    ours = sum(parameter.numel() for parameter in model.parameters())
    assert sum(parameter.numel() for parameter in theirs.parameters()) == ours


def test_both_sides_learn():
    data = training_data(TINY, "sparse_parity", "cpu")
    model = new_model(TINY, data.task, "cpu")
    batch = data.batch(0).sample.tokens[:, :-1]
    assert batch.shape == (2, 12)
    step = rivals.training_step("hf-eager", model, batch, bf16=False)
    losses = [float(step()) for _ in range(5)]
    assert losses[-1] < losses[0]
    before = model.embed.weight.detach().clone()
    mine = our_step(model, data, ExecutionConfig())
    assert torch.isfinite(mine()).all()
    assert not torch.equal(before, model.embed.weight)


def test_who_can_be_measured(monkeypatch):
    assert rivals.choose_rivals("none", rivals.TRAINING, "cpu") == []
    assert rivals.choose_rivals("hf", rivals.TRAINING, "cpu") == ["hf-eager", "hf-compiled"]
    assert rivals.choose_rivals("hf", rivals.TRAINING, "cuda") == ["hf-eager", "hf-compiled", "hf-graphs"]
    assert rivals.choose_rivals("hf-static", rivals.DECODING, "cpu") == ["hf-static"]
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(BadInput, match="needs the package transformers"):
        rivals.choose_rivals("hf", rivals.TRAINING, "cpu")


# --- lengths ----------------------------------------------------------------------------------------------------------


def _lengths(up_to, effort=Effort(1), **more):  # noqa: B008
    return time_lengths(TINY, up_to, "copy", "cpu", "none", effort, Peak(1e12, "given"), **more)


def test_lengths_double_as_far_as_asked():
    found = _lengths(50)
    assert [(row.side, row.length) for row in found.rows] == [
        (side, length) for length in (12, 24, 48) for side in ("evaluation", "training")
    ]
    assert all(row.figures.memory > 0 and row.figures.seconds > 0 for row in found.rows)
    assert found.stopped == "done up to 48, as asked"
    assert "process" in found.memory


def test_running_out_of_memory_is_a_row_and_ends_that_side_only(monkeypatch):
    make = lengths.make_side

    def greedy(name, workload, *others):
        if workload.length >= (24 if name == "training" else 48):
            raise torch.OutOfMemoryError("CUDA out of memory")
        return make(name, workload, *others)

    monkeypatch.setattr(lengths, "make_side", greedy)
    found = _lengths(1000)
    assert [(row.side, row.length, row.failure) for row in found.rows] == [
        ("evaluation", 12, ""),
        ("training", 12, ""),
        ("evaluation", 24, ""),
        ("training", 24, "out of memory"),
        ("evaluation", 48, "out of memory"),
    ]
    assert found.stopped == "stopped at 48: out of memory"


def test_other_errors_are_not_taken_for_a_lack_of_memory(monkeypatch):
    def broken(*arguments):
        raise RuntimeError("shapes do not fit")

    monkeypatch.setattr(lengths, "make_side", broken)
    with pytest.raises(RuntimeError, match="shapes do not fit"):
        _lengths(1000)


@pytest.mark.parametrize(
    ("seconds_of_a_call", "seconds", "longest"), [(1.0, 33.0, 12), (1.0, 35.0, 24), (0.01, 9.0, 12)]
)
def test_a_length_that_would_not_fit_into_the_time_is_not_begun(monkeypatch, seconds_of_a_call, seconds, longest):
    """Two sides, three calls each, four times as slow: 24 s after the 10 that are spent, however little of those went
    into calls."""

    def measure(name, workload, *_):
        return LengthRow(name, workload.length, Figures(1.0, 1.0, 1.0, seconds_of_a_call, 1, 0.1))

    monkeypatch.setattr(lengths, "_measure", measure)
    ticks = iter([0.0, 0.0, 10.0])
    found = _lengths(24, Effort(1, seconds), clock=lambda: next(ticks))
    assert max(row.length for row in found.rows) == longest
    if longest == 12:
        assert found.stopped.startswith("stopped before 24: 10 s are spent")


# --- what is told -----------------------------------------------------------------------------------------------------

STAMP = Stamp("a machine", "longreach bench x", "abc", "2026-01-01")


def test_headlines_replace_rows_of_the_same_name_and_device(tmp_path):
    path = tmp_path / "headline.json"
    peak = Peak(1e3, "given")
    for seconds in (1.0, 2.0):
        timings = (Timing("ours", 100, (seconds,)), Timing("hf", 100, (4.0,)))
        update_headline(path, headline_rows(SpeedComparison("train", timings, 1.0, peak), STAMP))
        update_headline(path, headline_rows(SpeedComparison("grid", timings[:1], 1.0, peak, unit="seconds"), STAMP))
    rows = [HeadlineRow(**row) for row in json.loads(path.read_text())]
    assert [(row.name, row.ours, row.theirs, row.ratio) for row in rows] == [
        ("train against hf", 50, 25, 2),
        ("grid", 2, None, None),
    ]
    assert rows[0].floor_share == 0.05
    assert (rows[0].command, rows[0].commit, rows[0].date) == ("longreach bench x", "abc", "2026-01-01")
    update_headline(path, headline_rows(_lengths(24), STAMP))
    names = [row["name"] for row in json.loads(path.read_text())]
    assert names[2:] == ["length 1,16,2,2,12: evaluation of 24 tokens", "length 1,16,2,2,12: training of 24 tokens"]
    path.write_text("{")
    with pytest.raises(BadInput, match="is damaged"):
        update_headline(path, [])


def test_on_a_gpu_headlines_tell_the_memory_of_the_longest_length():
    def row(side, length, gibibytes):
        return LengthRow(side, length, Figures(10.0, 9.0, 11.0, 1.0, gibibytes << 30, 0.1))

    rows = (row("training", 12, 1), row("training", 24, 2), row("hf training", 24, 3))
    found = LengthReport("length x", rows, "done", MEMORY_ON_GPU, Peak(1e3, "given"))
    assert [(row.name, row.ours, row.theirs, row.unit, row.ratio) for row in headline_rows(found, STAMP)] == [
        ("length x: training of 24 tokens", 10, 10, "tokens/s", 1),
        ("length x: training of 24 tokens, memory", 2, 3, "GiB", 1.5),
    ]


SIDES = {
    ("train", "--against", "hf-eager"): ["longreach", "hf eager"],
    ("train", "--against", "none", "--task", "sparse_parity"): ["longreach"],
    ("eval", "--against", "none"): ["one pass", "decoding"],
    ("eval", "--grid", "--samples", "1"): ["longreach"],
    ("decode", "--prompt", "4"): ["longreach", "hf dynamic cache", "hf static cache"],
    ("length", "--up-to", "24"): ["evaluation", "training", "hf evaluation", "hf training"],
}


@pytest.mark.parametrize("command", SIDES, ids=" ".join)
def test_figures_are_told_and_written(command, tmp_path, capsys):
    file, table = tmp_path / "speed.json", tmp_path / "headline.json"
    assert main(["bench", *command, *TINY_FLAGS, "--out", str(file), "--headline", str(table), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts == json.loads(file.read_text())
    assert {"device", "command", "commit", "date", "torch", "transformers", "threads", "peak"} <= set(facts)
    assert facts["command"].startswith(f"longreach bench {command[0]} ")
    assert "--out" not in facts["command"]
    assert "--headline" not in facts["command"]
    counts = Counter(row["side"] for row in facts["rows"])
    assert list(counts) == SIDES[command]
    for row in facts["rows"]:
        row = row.get("figures", row)
        assert 0 < row["slowest"] <= row["tokens_per_second"] <= row["fastest"]
        assert row["floor_share"] > 0
    assert json.loads(table.read_text())
    if command[0] == "decode":
        agreed = [note for note in facts["notes"] if "same as longreach" in note]
        assert len(agreed) == 2
        assert all("2 of 2 rows" in note for note in agreed)


def test_a_table_fits_a_terminal(capsys):
    assert main(["bench", "eval", *TINY_FLAGS, "--against", "none"]) == 0
    said = capsys.readouterr().out
    assert "one pass" in said
    assert "given: 1 TFLOP/s" in said
    assert max(map(len, said.splitlines())) <= 80


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["train", "--shape", "1,2,3"], "--shape must be five whole numbers"),
        (["train", "--shape", "1,16,3,2,12"], "model.width=16 does not split into 3 heads"),
        (["train", "--shape", "1,16,2,2,2"], "the shortest sample of copy has more than 2 tokens"),
        (["train", "--task", "copi"], "did you mean copy"),
        (["train", "--against", "hf-graphs"], "needs a GPU"),
        (["train", "--repeats", "0"], "--repeats must be above 0"),
        (["decode", "--prompt", "0"], "--prompt must be above 0"),
        (["eval", "--samples", "4"], "add --grid"),
        (["length", "--up-to", "4"], "--up-to 4 is below the first length"),
        (["train", "--out", "nowhere/x.json"], "there is no folder"),
    ],
)
def test_refusals_are_one_line(arguments, complaint, capsys):
    flags = [] if "--repeats" in arguments else ["--repeats", "1"]
    assert main(["bench", *arguments, *flags, "--device", "cpu", "--peak", "1"]) == 2
    said = capsys.readouterr().err
    assert complaint in said
    assert said.count("\n") == 1


def test_steps_of_llama_are_measured(tmp_path):
    file = tmp_path / "parts.json"
    assert main(["bench", "parts", *TINY_FLAGS, "--model", "llama", "--out", str(file)]) == 0
    assert json.loads(file.read_text())["name"] == "parts 1 x 1,16,2,2,12, llama copy"


def test_parts_that_the_rival_lacks_are_measured_alone(capsys, tmp_path):
    command = ["bench", "length", "--shape", "1,32,2,1,16", "--up-to", "16", "--repeats", "1", "--peak", "1"]
    assert main([*command, "--attention", "nope"]) == 2
    assert "unknown attention 'nope'" in capsys.readouterr().err
    assert main([*command, "--encoding", "alibi"]) == 2
    assert "GPT-NeoX has no alibi: add --against none" in capsys.readouterr().err
    file = tmp_path / "length.json"
    flags = ["--encoding", "alibi", "--attention", "entmax", "--recompute", "--against", "none", "--out", str(file)]
    assert main([*command, *flags]) == 0
    assert json.loads(file.read_text())["name"] == "length 1,32,2,1,16, alibi, entmax, recomputed"


# --- start-up time ----------------------------------------------------------------------------------------------------


def test_start_up_times_are_ratios_to_import_torch(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("longreach.cli.bench_start._helps", lambda parser, words: [["list", "--help"]])
    figures = tmp_path / "start.json"
    assert main(["bench", "start", "--repeats", "1", "--json", "--out", str(figures)]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads(figures.read_text())
    assert printed["command"] == "longreach bench start --recipe demo --device cpu --repeats 1 --seconds 120"
    names = ["import torch", "longreach --help", "longreach list --help", "longreach run demo, first step"]
    assert [row["name"] for row in printed["rows"]] == names
    torch_row, *others = printed["rows"]
    assert torch_row["ratio"] == torch_row["ratio_lowest"] == torch_row["ratio_highest"] == 1
    for row in others:
        assert row["rounds"] == 1
        assert row["ratio"] == pytest.approx(row["seconds"] / torch_row["seconds"])


def test_a_run_without_a_first_step_is_no_figure(capsys):
    with pytest.raises(RunFailed, match=r"longreach run dmo .* failed: longreach: unknown recipe 'dmo'"):
        time_start("dmo", "cpu", [["--version"]], Effort(1))


def test_start_up_times_fit_a_terminal():
    rows = [StartTime("longreach run demo, first step", (1.234, 12.34), (1.0, 1.234))]
    lines = [segment.text for segment in out.render(start_table(rows, "a machine"), out.options.update(width=80))]
    assert "1.23..12.3" in "".join(lines)
    assert "…" not in "".join(lines)
