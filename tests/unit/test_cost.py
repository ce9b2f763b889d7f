"""Estimates of memory and time before training and tests, and the refusal of work that cannot fit."""

import pytest
import torch
from rich.console import Console

from longreach.api import Copy, show
from longreach.config import build
from longreach.config.spans import Lengths
from longreach.errors import BadInput
from longreach.evaluation import (
    EvalConfig,
    PassCost,
    Work,
    cost,
    estimate_measures,
    estimate_test,
    estimate_text,
    memory_of_generation,
    memory_of_test,
    seconds_at_length,
    seconds_of_generation,
)
from longreach.execution import ExecutionConfig
from longreach.positions.ids import Randomized
from longreach.runs import (
    RunConfig,
    RunFolder,
    check,
    check_training_memory,
    execute,
    expect_test,
    gather_info,
    memory,
    new_model,
    parts,
)
from longreach.runs.observer import Observer
from longreach.system import capacity
from longreach.system.capacity import check_memory, free_memory, size, total_memory
from longreach.terminal.progress import watch
from longreach.terminal.whole import Whole
from longreach.verbs import prompt

SETTINGS = {"task": "copy", "model": {"layers": 2, "width": 16, "heads": 2}}
BUDGET = ExecutionConfig.batch_tokens


def built(**model):
    config = build(RunConfig, {**SETTINGS, "model": {**SETTINGS["model"], **model}})
    return config, new_model(config, seed=0, device="cpu").eval()


def asked(*lengths: int, samples: int = 1, free: int = 0) -> EvalConfig:
    return EvalConfig(lengths=Lengths(lengths), samples=samples, free_samples=free)


def test_what_no_machine_has_is_refused_and_what_is_not_free_is_told(monkeypatch):
    told = []
    check_memory(10**6, "cpu", "a test", "use less", told.append)
    assert not told
    with pytest.raises(BadInput, match=r"a test needs about 9,000.0 TB of memory \(an estimate\), .*: use less"):
        check_memory(9 * 10**15, "cpu", "a test", "use less", told.append)
    monkeypatch.setattr(capacity, "free_memory", lambda device: 1000)
    check_memory(2000, "cpu", "a test", "use less", told.append)
    (line,) = told
    assert line.startswith("warning: a test needs about 2000 bytes")
    assert 0 < free_memory("cpu") <= total_memory("cpu")
    assert [size(number) for number in (12, 3_400_000, 5_600_000_000, 7 * 10**12)] == [
        "12 bytes",
        "3.4 MB",
        "5.6 GB",
        "7.0 TB",
    ]


def test_memory_grows_with_tokens_and_with_scores_that_are_written_out():
    config, model = built()
    few, length = memory_of_test(model, config.task, asked(100, 1000), BUDGET)
    assert length == 1000
    many, _ = memory_of_test(model, config.task, asked(1_000_000), BUDGET)
    assert 900 < many / few < 1100
    _, written = built(attention="entmax")
    assert memory_of_test(written, config.task, asked(1000), BUDGET)[0] > 10 * few
    _, biased = built(encoding="alibi")
    assert (
        few
        < memory_of_test(biased, config.task, asked(1000), BUDGET)[0]
        < memory_of_test(written, config.task, asked(1000), BUDGET)[0]
    )


def test_a_test_that_cannot_fit_is_refused_before_it_starts():
    config, model = built()
    with pytest.raises(BadInput, match=r"a test at length 2000000000 needs about .* TB of memory"):
        expect_test(model, config, asked(2 * 10**9), config.execution, "cpu", Observer())


def training(**sections):
    settings = {**SETTINGS, "train": {"lengths": "1..6", "batch_size": 8, "steps": 2}}
    for name, section in sections.items():
        before = settings.get(name, {})
        settings[name] = {**(before if isinstance(before, dict) else {}), **section}
    return build(RunConfig, settings)


@pytest.mark.parametrize(
    ("section", "settings", "figure", "advice"),
    [
        ("model", {"width": 100_000}, "TB for weights and optimizer", "model.width"),
        ("model", {"layers": 64, "width": 16_384}, "TB for weights and optimizer", "model.layers"),
        ("train", {"batch_size": 10**9}, "TB for a batch", "train.batch_size"),
        ("train", {"lengths": "1000000", "batch_size": 10**4}, "TB for a batch", "train.lengths"),
    ],
)
def test_training_that_cannot_fit_is_refused_before_a_model_is_made(
    monkeypatch, tmp_path, section, settings, figure, advice
):
    monkeypatch.setattr(capacity, "total_memory", lambda device: 1 << 34)
    monkeypatch.setattr(parts, "build_model", lambda *_: pytest.fail("a model was made"))
    config = training(**{section: settings})
    with pytest.raises(
        BadInput,
        match=rf"^training \(.*{figure}.*\) needs about .* of memory .*, and this machine has 17.2 GB: .*{advice}",
    ):
        execute(config, RunFolder(tmp_path / "run"), gather_info("", "", "", 0, "cpu"), "cpu")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("begun", [False, True])
def test_ids_that_a_task_does_not_have_are_refused_before_memory_is_estimated(tmp_path, begun):
    folder = RunFolder(tmp_path / "run")
    if begun:
        folder.create(training(), gather_info("", "", "", 0, "cpu"))
    wrong = training(task={"name": "even_pairs"}, ids={"name": "coupled", "max_id": 40})
    complaint = "was started with task.name=copy" if begun else "has no known coupling"
    with pytest.raises(BadInput, match=complaint):
        execute(wrong, folder, gather_info("", "", "", 0, "cpu"), "cpu", resume=begun)


def test_a_test_that_cannot_fit_is_refused_before_training(tmp_path):
    config = training(evaluate={"lengths": [4, 2 * 10**9]})
    with pytest.raises(BadInput, match=r"a test at length 2000000000 needs about .* TB of memory"):
        execute(config, RunFolder(tmp_path / "run"), gather_info("", "", "", 0, "cpu"), "cpu")
    assert not list(tmp_path.iterdir())


def test_a_model_that_the_machine_cannot_hold_is_refused_by_the_check_of_a_sweep(monkeypatch):
    monkeypatch.setattr(capacity, "total_memory", lambda device: 1 << 34)
    with pytest.raises(BadInput, match=r"a model with these settings needs about 960.0 GB of memory"):
        check(training(model={"width": 100_000}))


def test_training_takes_memory_for_weights_layers_and_scores(monkeypatch):
    asked = []
    monkeypatch.setattr(memory, "check_memory", lambda needed, *_: asked.append(needed))

    def needed(count=1, device="cpu", processes=1, **sections):
        asked.clear()
        check_training_memory([training(**sections)] * count, device, processes=processes)
        return asked[0]

    once = needed()
    assert needed(3) == 3 * once
    wide = needed(train={"batch_size": 8000})
    assert 100 < wide / once < 1000
    assert 1.5 < needed(train={"batch_size": 8000}, model={"layers": 4}) / wide < 2.1
    for less in ({"accumulate": 8}, {"recompute": True}):
        assert needed(train={"batch_size": 8000}, execution=less) < 0.8 * wide
    assert needed(train={"batch_size": 8000, "precision": "bf16"}) < 0.7 * wide
    long = {"lengths": "1..400"}
    written, biased = ({"attention": "entmax"}, {"encoding": "alibi"})
    assert needed(train=long) < needed(train=long, model=biased) < needed(train=long, model=written)
    assert needed(train=long, model=biased, device="cuda") == needed(train=long, device="cuda")
    assert needed(train=long, device="cuda", processes=2) == needed(train=long, device="cuda") // 2


@pytest.fixture
def steady(monkeypatch):
    """A clock by which every measurement takes half a second."""
    monkeypatch.setattr(cost, "_timed", lambda work, device: (work(), 0.5)[1])


def test_a_long_test_is_estimated_from_short_pieces_and_a_short_one_is_not(steady):
    config, model = built()
    assert estimate_test(model, config.task, config.ids, asked(8, samples=4, free=2), "cpu", BUDGET) is None
    near, far = (
        estimate_test(model, config.task, config.ids, asked(8, length), "cpu", BUDGET)
        for length in (100_000, 1_000_000)
    )
    assert near is not None
    assert far is not None
    assert far.units == (1, 1)
    assert far.seconds[0] < 1 < far.seconds[1]
    assert 30 < far.total / near.total < 100  # attention is quadratic
    written = estimate_test(model, config.task, config.ids, asked(20_000, samples=4, free=4), "cpu", BUDGET)
    assert written is not None
    assert written.total > 20  # twenty thousand tokens, one after the other


def test_measuring_is_estimated_from_short_pieces(steady):
    config, model = built()
    measured = []

    def measure(cell, samples):
        measured.append((cell.length, samples))

    assert estimate_measures(model, config.task, asked(8, samples=4), "cpu", measure) is None
    work = estimate_measures(model, config.task, asked(8, 300_000), "cpu", measure)
    assert work is not None
    assert work.units == (1, 1)
    assert work.seconds[0] < 1 < work.seconds[1]
    assert 0 < max(length for length, _ in measured) < 1000


def test_generation_and_text_are_estimated_too(steady):
    config, model = built()
    tokens = config.task.parse("a b a b")
    long, short = (config.task.prompt_batch(tokens, room) for room in (100_000, 8))
    assert seconds_of_generation(model, config.task, config.ids, short) == 0
    assert seconds_of_generation(model, config.task, config.ids, long) > 30
    drawn = Randomized(max_id=300_000)
    assert seconds_of_generation(model, config.task, drawn, long) > 30
    assert memory_of_generation(model, long) > 1000 * memory_of_generation(model, short)

    def predict(windows, last):
        return model(windows, torch.zeros(len(windows), 1, windows.shape[1], dtype=torch.long))

    pass_cost = PassCost.of(model)
    assert estimate_text(pass_cost, predict, asked(64, samples=64), "cpu") is None
    work = estimate_text(pass_cost, predict, asked(64, 500_000, samples=64), "cpu")
    assert work is not None
    assert work.seconds[1] > 100 * work.seconds[0]


def test_slow_work_is_estimated_from_shorter_lengths_and_quick_work_is_not(monkeypatch):
    """The clock says that work takes a millionth of a second times the square of its length."""
    done = []
    monkeypatch.setattr(cost, "_timed", lambda work, device: (work(), 1e-6 * done[-1] ** 2)[1])
    assert seconds_at_length(Copy(), 1000, done.append) == 0
    assert max(done) == 512  # nothing is measured at the length itself
    assert seconds_at_length(Copy(), 100_000, done.append) == pytest.approx(1e4)
    assert max(done) == 1024


def test_show_warns_before_a_sample_that_takes_long(monkeypatch, capsys):
    shown = show("copy", 600)
    assert not capsys.readouterr().err
    monkeypatch.setattr(prompt, "seconds_at_length", lambda task, length, make: make(8) and 3600.0)
    assert show("copy", 600) == shown
    (line,) = capsys.readouterr().err.splitlines()
    assert line == (
        "warning: a sample of length 600 may take about 60.0 min (an estimate): use a smaller length; Ctrl-C stops it"
    )


def test_the_time_left_counts_parts_by_their_cost_and_is_corrected_by_the_pace():
    work = Work((10, 10), (1.0, 99.0))
    assert work.total == 100
    assert work.left(0, 0.0) == 100
    assert work.left(10, 1.0) == pytest.approx(99)
    assert work.left(15, 1.0) == pytest.approx(49.5)
    assert work.left(15, 101.0) == pytest.approx(99)  # twice as slow as expected
    assert work.left(20, 101.0) == 0


def test_a_warning_precedes_work_of_more_than_five_minutes(capsys):
    with watch(Console(stderr=True, width=200), quiet=True, whole=Whole([[5], [5, 5]])) as observer:
        observer.phase("test it", 2)
        observer.expect(Work((1, 1), (1.0, 200.0)))
        assert not capsys.readouterr().err
        observer.expect(Work((1, 1), (1.0, 720.0)))
        observer.expect(Work((1, 1), (1.0, 720.0)))
    said = "warning: test it will take about 12.0 min more (an estimate), and 2 more to do after it; Ctrl-C stops it\n"
    assert capsys.readouterr().err == said


def test_on_a_gpu_long_work_is_timed_after_its_kernels_are_compiled(monkeypatch):
    times = iter([0.0, 9.0, 10.0, 10.5, 20.0, 20.1])
    monkeypatch.setattr(cost.time, "perf_counter", lambda: next(times))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    assert cost._timed(lambda: None, "cuda") == 0.5
    assert cost._timed(lambda: None, "cuda") == pytest.approx(0.1)
    times = iter([0.0, 9.0])
    assert cost._timed(lambda: None, "cpu") == 9.0
