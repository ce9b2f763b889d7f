"""Batches of tasks in plain Python: the same with any number of worker processes, none of which is left behind."""

import json
import os
import signal
import subprocess
import sys
import time
import types
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from drawn_tasks import Echo, Fragile, Letters, Quitting, Untrue
from helpers import TINY, execute_in
from test_crash import end_of

from longreach.api import (
    Copy,
    Coupled,
    EvalConfig,
    ExecutionConfig,
    IndexHints,
    Lengths,
    Mixture,
    OptimizerConfig,
    RunConfig,
    Sequential,
    Span,
    TrainConfig,
    TransformerConfig,
    build_model,
)
from longreach.cli.main import main
from longreach.config import dump_yaml, to_plain
from longreach.engine import drawing
from longreach.engine.batch_blocks import BlockStream
from longreach.engine.drawing import HostStream, closing_workers, count_workers, why_not_sent
from longreach.engine.drawing_pool import Pool
from longreach.engine.plan import choose
from longreach.engine.recorded_step import HostRecordedStep
from longreach.engine.stacked_training import MultiSeedStream, StackedStream
from longreach.errors import BadInput, RunFailed
from longreach.runs import Observer
from longreach.training import PrimeConfig, Step, TrainingStream, build_optimizer

TESTS = Path(__file__).parents[1]
SINGLE = TrainingStream(Letters(), Sequential(), (1, 2, 4), 6, 3, "cpu")
COUPLED = TrainingStream(Echo(), Coupled(max_id=30), (1, 2, 4), 6, 3, "cpu", PrimeConfig(lengths=Span(5, 6), share=0.3))
MIXED = replace(SINGLE, task=Mixture(of=(Letters(), Copy())))
STREAMS = {
    "coupled and primed": COUPLED,
    "stack": StackedStream(
        (
            MultiSeedStream.of(MIXED, (5, 8)),
            MultiSeedStream.of(replace(MIXED, task=Mixture(of=(Letters(letters=2), Copy())), seed=9), ()),
        )
    ),
}


def is_alive(pid):
    """Return whether a process runs; one that has ended may still be waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def all_end(pids, seconds=10.0):
    """Wait for the end of processes."""
    until = time.monotonic() + seconds
    while any(map(is_alive, pids)) and time.monotonic() < until:
        time.sleep(0.01)
    return not any(map(is_alive, pids))


def started(stream, workers=2, **options):
    data = HostStream(stream, workers, **options)
    data.wait_for_workers()
    assert data.pool is not None
    assert len(data.pool.pids) == workers
    return data


def assert_same(one, other):
    assert type(one) is type(other)
    for ours, theirs in zip(one.tensors(), other.tensors(), strict=True):
        assert ours.dtype == theirs.dtype
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("name", STREAMS)
def test_workers_draw_the_same_batches(name):
    stream = STREAMS[name]
    data = started(stream, steps=20)
    assert data.models == (4 if name == "stack" else 1)
    pids = data.pool.pids
    with closing_workers(data):
        batches = {step: data.batch(step) for step in (0, 1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 2, 3, 18, 19, 20)}
        assert data.pool.asked == 21  # nothing is drawn that training does not need
    for step, batch in batches.items():
        assert_same(batch, stream.batch(step))  # a block is not overwritten once it is taken
    assert data.pool is None
    assert not any(map(is_alive, pids))
    assert_same(data.batch(8), stream.batch(8))


def test_batches_are_drawn_here_until_the_workers_are_ready():
    data = HostStream(SINGLE, 1)
    with closing_workers(data):
        assert_same(data.batch(7), SINGLE.batch(7))
        assert data.pool.starting
        server = data.pool.process
        assert_same(data.batch(8), SINGLE.batch(8))
    assert server.poll() is not None  # also one that has not started yet


def test_signals_do_not_stop_workers_and_a_killed_one_is_one_line():
    data = started(SINGLE)
    with closing_workers(data):
        for number in (signal.SIGINT, signal.SIGTERM):  # as Ctrl-C and `timeout` send them to all processes
            for pid in (*data.pool.pids, data.pool.process.pid):
                os.kill(pid, number)
        for step in range(4):
            assert_same(data.batch(step), SINGLE.batch(step))
        os.kill(data.pool.pids[1], signal.SIGKILL)
        assert all_end(data.pool.pids[1:])
        with pytest.raises(RunFailed, match=r"^a process that draws batches was killed: .* execution\.workers"):
            [data.batch(step) for step in range(4, 12)]


def test_errors_are_those_of_the_training_process(monkeypatch):
    monkeypatch.setenv("DRAWN_TASKS_TEST", str(os.getpid()))
    stream = replace(SINGLE, task=Fragile())
    data = started(stream, 1)
    failed = []
    with closing_workers(data):
        for draw in (data.batch, stream.batch):
            with pytest.raises(BadInput) as caught:
                [failed.append(step) or draw(step) for step in range(100)]
            failed.append(caught.value.lines)
    half = len(failed) // 2
    assert failed[:half] == failed[half:]
    assert half > 2
    (line,) = failed[-1]
    assert line.startswith("drawn_tasks.Fragile: ZeroDivisionError in")
    assert "length // min(1, rng.randrange(30))" in line
    quitting = started(replace(SINGLE, task=Quitting()), 1)
    with closing_workers(quitting), pytest.raises(RunFailed, match=r"the batch of step 0: BadInput: .*no more files"):
        quitting.batch(0)


def test_a_task_that_draws_from_more_than_its_generator_is_refused(monkeypatch):
    monkeypatch.setenv("DRAWN_TASKS_TEST", str(os.getpid()))
    data = started(replace(SINGLE, task=Untrue()), 1)
    with closing_workers(data), pytest.raises(BadInput, match="Untrue: two processes draw different samples"):
        data.batch(0)


def test_training_goes_on_if_no_process_can_be_started(monkeypatch):
    """A module that no file belongs to, as in a notebook."""
    module = types.ModuleType("nowhere_to_be_found")
    own = type("Own", (Letters,), {"__module__": module.__name__})
    module.Own = own
    monkeypatch.setitem(sys.modules, module.__name__, module)
    stream = replace(SINGLE, task=own())
    assert why_not_sent(stream) == "another process would not import the same module nowhere_to_be_found"
    data = HostStream(stream, 2)
    data.wait_for_workers()
    assert data.pool is None
    assert_same(data.batch(3), stream.batch(3))
    (line,) = data.read_news()
    assert "for no process could be started: ModuleNotFoundError: No module named 'nowhere_to_be_found'" in line


def test_workers_start_where_drawing_is_slow(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(drawing.time, "perf_counter", lambda: now[0])
    spent = [0.1]
    draw = TrainingStream.batch

    def slow(self, step):
        now[0] += spent[0]
        return draw(self, step)

    monkeypatch.setattr(TrainingStream, "batch", slow)
    data = HostStream(SINGLE, 1, at_once=False)
    with closing_workers(data):
        for step in range(10):
            now[0] += 1.0
            data.batch(step)
        assert data.pool is None
        assert data.read_news() == []
        spent[0] = 1.0
        for step in range(10, 20):
            now[0] += 1.0
            data.batch(step)
        assert data.pool is not None
        assert data.read_news() == ["drawing batches takes 50% of the time: 1 process draws them ahead"]


def test_a_user_is_told_once_that_training_waits(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(drawing.time, "perf_counter", lambda: now[0])
    draw = TrainingStream.batch

    def slow(self, step):
        now[0] += 1.0
        return draw(self, step)

    monkeypatch.setattr(TrainingStream, "batch", slow)
    data = HostStream(SINGLE)
    data.batch(0)
    now[0] += 9.5
    assert data.read_news() == []
    data.batch(1)
    now[0] += 3.0
    (line,) = data.read_news()
    assert line == (
        "training waits for batches 25% of the time (the training process draws them): more execution.workers, or a"
        " vectorised task, would make it faster"
    )
    data.batch(2)
    assert data.read_news() == []


def plan_of(task, device="cpu", **execution):
    stream = replace(SINGLE, task=task)
    model = build_model(TINY, len(task.vocabulary), 0)
    return choose(model, ExecutionConfig(**execution), device, data=stream)


def test_the_plan_says_who_draws(monkeypatch):
    assert str(plan_of(Letters(), workers=3)).endswith("drawing workers; 3 processes draw batches ahead")
    assert plan_of(Letters(), workers=1).to_plain()["drawing"] == "1 process draws batches ahead"
    alone = plan_of(Letters(), workers=0)
    assert str(alone).endswith("; the training process draws batches: execution.workers is 0")
    assert alone.to_plain()["not_used"]["drawing_workers"] == "execution.workers is 0"
    assert "torch computes with one thread" in plan_of(Letters()).unused["drawing_workers"]
    monkeypatch.setattr(drawing, "count_workers", lambda execution: 4)
    monkeypatch.setattr("longreach.engine.plan.count_workers", lambda execution: 4)
    assert plan_of(Letters()).drawing == "4 processes draw batches ahead if drawing takes more than 10% of the time"
    assert "execution.engine is plain" in plan_of(Letters(), engine="plain", workers=2).drawing
    assert "execution.without names it" in plan_of(Letters(), without=["drawing_workers"], workers=2).drawing
    vectorised = plan_of(Copy(), workers=2)
    assert vectorised.unused["drawing_workers"] == "the task draws its batches on the device"
    assert vectorised.drawing is None
    assert vectorised.training_data(SINGLE, 9) is not SINGLE
    copies = replace(SINGLE, task=Copy())
    drawn = vectorised.training_data(copies, 9)
    assert isinstance(drawn, BlockStream)
    assert drawn.stream is copies
    own = type("Own", (Letters,), {"__module__": "__main__"})
    monkeypatch.setattr(sys.modules["__main__"], "Own", own, raising=False)
    assert "move it to a module of its own" in plan_of(own(), workers=2).unused["drawing_workers"]
    for wrapped in (Mixture(of=(Copy(), Letters())), IndexHints(of=Echo())):
        assert plan_of(wrapped, workers=2).host_draws
    assert not IndexHints().draws_on_host


def test_the_benchmark_trains_with_both_samplers(capsys):
    shape = ["--shape", "1,16,2,8,20", "--device", "cpu", "--seconds", "0.05"]
    assert main(["bench", "drawing", *shape, "--workers", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(row["sampler"], row["workers"]) for row in found["rows"]] == [("vectorised", 0), ("plain Python", 1)]
    vectorised, plain = (row["steps_per_second"] for row in found["rows"])
    assert 0 < plain == pytest.approx(found["ratio"] * vectorised)
    assert main(["bench", "drawing", *shape, "--workers", "-1"]) == 2
    assert "workers must not be negative, got -1" in capsys.readouterr().err


def test_how_many_workers_there_are(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: range(24))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 24)
    assert count_workers(ExecutionConfig()) == 16
    assert count_workers(ExecutionConfig(workers=20)) == 20
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)  # --threads, or the cores of a job of a sweep
    assert count_workers(ExecutionConfig()) == 3
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert count_workers(ExecutionConfig()) == 0
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")  # of torchrun, which sets one thread for each process
    assert count_workers(ExecutionConfig()) == 11
    with pytest.raises(BadInput, match=r"workers must not be negative, got -1"):
        ExecutionConfig(workers=-1)


class ByHand(HostRecordedStep):
    """Computes on a CPU what a graph replays."""

    def record(self):
        for group in self.step.optimizer.param_groups:
            group["capturable"] = False  # a CPU knows no graphs

        def replay():
            self.result = self.step.update(self.step.differentiate(self.prepare()))

        return replay


def test_a_recorded_step_gets_its_batch_from_the_host():
    losses = []
    for wrap in (lambda step: step, ByHand):
        model = build_model(TINY, len(Echo().vocabulary), 0)
        config = TrainConfig(steps=20, optimizer=OptimizerConfig(warmup=2))
        data = HostStream(COUPLED) if wrap is ByHand else COUPLED
        step = wrap(Step(model, build_optimizer(config.optimizer, model), data, config))
        losses.append(torch.stack([step(number)[0, 0] for number in (0, 1, 2, 9, 10, 4)]))
    torch.testing.assert_close(losses[1], losses[0])
    model = build_model(TINY, len(Letters().vocabulary), 0)
    on_gpu = choose(model, ExecutionConfig(), "cuda", data=SINGLE)
    assert "recorded_steps" in on_gpu.used
    asking = build_model(replace(TINY, dependency_head=True), len(Letters().vocabulary), 0)
    assert "finds on the host" in choose(asking, ExecutionConfig(), "cuda", data=SINGLE).unused["recorded_steps"]


def test_pinned_memory_is_not_overwritten_before_its_copy_is_done(monkeypatch):
    """Stand-ins for pinned memory and events of a GPU."""
    happened, empty = [], torch.empty

    class Event:
        def synchronize(self):
            happened.append(("waited", self))

        def record(self, stream):
            happened.append(("copied", self))

    monkeypatch.setattr(torch, "empty", lambda size, dtype, pin_memory: empty(size, dtype=dtype))
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    copies = drawing._PinnedCopies(8, "cpu")
    for _ in range(5):
        copies.copy(lambda pinned: happened.append(("written", pinned.data_ptr())))
    memory = [block.data_ptr() for block in copies.pinned]
    assert len(set(memory)) == 3
    for turn in range(5):
        event = copies.copied[turn % 3]
        assert happened[3 * turn : 3 * turn + 3] == [
            ("waited", event),
            ("written", memory[turn % 3]),
            ("copied", event),
        ]


CONFIG = RunConfig(
    task=Letters(),
    model=TransformerConfig(layers=1, width=16, heads=2),
    train=TrainConfig(
        lengths=Span(1, 4), steps=14, batch_size=4, validate_every=7, optimizer=OptimizerConfig(warmup=2)
    ),
    evaluate=EvalConfig(lengths=Lengths((3, 6)), samples=8, free_samples=4),
    execution=ExecutionConfig(log_every=2, save_every=4, workers=0),
)
WITH_WORKERS = replace(CONFIG, execution=replace(CONFIG.execution, workers=2))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return end_of(execute_in(tmp_path_factory.mktemp("whole") / "run", CONFIG))


@pytest.fixture
def pools(monkeypatch):
    """All pools of a test.  Every batch waits for the workers, which an undisturbed run would not."""
    found, take, init = [], HostStream.batch, Pool.__init__

    def patient(self, step):
        self.wait_for_workers()
        return take(self, step)

    def listed(self, *args):
        init(self, *args)
        found.append(self)

    monkeypatch.setattr(HostStream, "batch", patient)
    monkeypatch.setattr(Pool, "__init__", listed)
    return found


def assert_ended(pools):
    assert pools
    for pool in pools:
        assert pool.process.poll() is not None
        assert pool.pids
        assert not any(map(is_alive, pool.pids))


def test_a_run_with_workers_that_is_stopped_goes_on_without(tmp_path, pools, undisturbed):
    calls = iter(range(100))
    stopped = execute_in(tmp_path / "run", WITH_WORKERS, observer=Observer(should_stop=lambda: next(calls) == 5))
    assert not stopped.finished
    assert len(pools) == 1
    assert_ended(pools)
    assert end_of(execute_in(tmp_path / "run", CONFIG, resume=True)) == undisturbed
    assert len(pools) == 1
    plan = json.loads((stopped.path / "plan.json").read_text())["training"]
    assert plan["drawing"] == "the training process draws batches: execution.workers is 0"


def test_a_failed_run_leaves_no_process(tmp_path, pools):
    def fail(done, note):
        raise ValueError("the terminal is gone")

    with pytest.raises(ValueError, match="the terminal is gone"):
        execute_in(
            tmp_path,
            WITH_WORKERS,
            observer=Observer(phase=lambda title, total: lambda done, note: done and fail(done, note)),
        )
    assert_ended(pools)


KILLED = """
import os, signal, sys
from pathlib import Path
from longreach.config import build, read_yaml
from longreach.engine.drawing import HostStream
from longreach.runs import RunConfig, RunFolder, execute, gather_info

take = HostStream.batch

def patient(self, step):
    self.wait_for_workers()
    if step == 10:
        print(self.pool.process.pid, *self.pool.pids, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return take(self, step)

HostStream.batch = patient
import drawn_tasks, torch
torch.set_num_threads(1)
config = build(RunConfig, read_yaml(Path(sys.argv[1])))
execute(config, RunFolder(Path(sys.argv[2])), gather_info("test", "", "", 0, "cpu"), "cpu")
"""


def test_a_killed_run_takes_its_workers_along_and_can_be_resumed(tmp_path, undisturbed):
    (tmp_path / "config.yaml").write_text(dump_yaml(to_plain(WITH_WORKERS)))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *filter(None, sys.path)])}
    command = [sys.executable, "-c", KILLED, str(tmp_path / "config.yaml"), str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (-signal.SIGKILL, "")
    pids = [int(word) for word in done.stdout.split()]
    assert len(pids) == 3
    assert all_end(pids)
    assert end_of(execute_in(tmp_path / "run", CONFIG, resume=True)) == undisturbed
