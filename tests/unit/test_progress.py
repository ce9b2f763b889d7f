"""Progress on the terminal: nothing is shown before it is known."""

import math
import re

import pytest
import torch
from rich.console import Console

from longreach.execution import ExecutionConfig
from longreach.terminal.progress import watch
from longreach.terminal.whole import Whole
from longreach.training import Hooks, TrainConfig, train


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def work(whole, clock, title, total, seconds, first=0, until=None):
    """Advance a phase evenly."""
    whole.begin_phase(title, total)
    whole.note(first)
    clock.now += seconds
    whole.note(total if until is None else until)


def test_the_time_of_all_runs_is_unknown_until_something_is_measured(clock):
    whole = Whole([[100], [100], [100]], clock)
    whole.begin(0)
    assert whole.describe() == "run 1 of 3"
    work(whole, clock, "train a/seed-0", 100, 1.0, until=10)
    assert whole.describe() == "run 1 of 3"
    clock.now += 9.0
    whole.note(50)
    assert whole.describe() == "run 1 of 3, about 50 s of training left in all"  # 250 steps at 5 a second


def test_training_and_testing_so_far_are_extrapolated(clock):
    whole = Whole([[100], [100], [50], [None]], clock)
    whole.begin(0)
    work(whole, clock, "train a/seed-0", 100, 10.0)
    work(whole, clock, "test a/seed-0", 832, 4.0, until=416)
    assert whole.describe() == "run 1 of 4, about 35 s left in all"  # 150 steps and 2.5 tests of 8 s
    clock.now += 4.0
    whole.note(832)
    assert whole.describe() == "run 1 of 4, about 31 s left in all"
    whole.begin(1)
    work(whole, clock, "train a/seed-1", 100, 20.0)
    assert whole.describe() == "run 2 of 4, about 24 s left in all"  # 50 steps at 200 in 30 s, two tests
    whole.begin(3)
    assert whole.describe() == "run 4 of 4"


def test_a_stack_counts_as_all_of_its_runs(clock):
    whole = Whole([[100, 100], [100, 100]], clock)
    whole.begin(0)
    assert whole.later == ", and 2 more to do after it"
    work(whole, clock, "train a/seed-0, 1", 100, 20.0)
    assert whole.describe() == "runs 1 to 2 of 4, about 20 s of training left in all"
    work(whole, clock, "test a/seed-0", 8, 0.5, until=4)
    assert whole.describe() == "runs 1 to 2 of 4, about 20 s of training left in all"
    clock.now += 2.5
    whole.note(8)
    work(whole, clock, "test a/seed-1", 8, 3.0)
    assert whole.describe() == "runs 1 to 2 of 4, about 26 s left in all"
    whole.begin(1)
    assert whole.later == ""


def test_a_test_that_ends_soon_is_measured_all_the_same(clock):
    whole = Whole([[100], [100]], clock)
    whole.begin(0)
    work(whole, clock, "train a/seed-0", 100, 10.0)
    work(whole, clock, "test a/seed-0", 8, 1.0)
    assert whole.describe() == "run 1 of 2, about 11 s left in all"


def test_a_resumed_run_is_measured_from_where_it_goes_on(clock):
    whole = Whole([[20], [100]], clock)
    whole.begin(0)
    work(whole, clock, "train a/seed-0", 100, 10.0, first=80, until=90)
    assert whole.describe() == "run 1 of 2, about 1.8 min of training left in all"


def test_one_run_has_no_line_on_all_runs(clock):
    assert Whole().describe() == Whole([[5]], clock).describe() == ""


def test_all_runs_are_part_of_plain_lines_and_of_the_bars(capsys, clock):
    whole = Whole([[4], [4]], clock)
    for terminal in (False, True):
        with watch(Console(stderr=True, width=100, force_terminal=terminal), whole=whole) as observer:
            report = observer.phase("train a/seed-0", 4)
            report(0, "")
            clock.now += 8
            report(4, "loss 3")
        assert "run 1 of 2, about 8 s of training left in all" in re.sub(
            r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().err
        )
        whole = Whole([[4], [4]], clock)


@pytest.mark.parametrize("reads_host", [True, False])
def test_no_progress_has_a_loss_that_is_not_known_or_not_a_number(reads_host):
    class Falling:
        """Two models, of which the first fails at its fifth step."""

        model, values = torch.nn.Linear(1, 1), ("loss", "grad_norm")

        def __call__(self, number):
            return torch.tensor([[math.nan if number == 4 else 2.0, 1.0], [3.0, 1.0]])

        def rates(self, number):
            return [0.1, 0.1]

        def finite(self):
            return [True, True]

    Falling.reads_host = reads_host
    told, given_up = [], []
    hooks = Hooks(
        log=lambda done, values: None,
        validate=lambda done: 1.0,
        save=lambda done, score: None,
        progress=lambda done, loss: told.append((done, loss)),
        should_stop=lambda: False,
        give_up=given_up.append,
    )
    execution = ExecutionConfig(log_every=2, save_every=8)
    assert train(Falling(), TrainConfig(steps=8, batch_size=1), execution, [hooks, hooks])
    assert given_up == ["the loss became nan at step 5"]
    known = [(1, 2.0 if reads_host else None), (2, 2.0), (3, 2.0), (4, 2.0)]
    fifth = [(5, 3.0 if reads_host else 2.0)]
    assert told == [*known, *fifth, (6, 3.0), (7, 3.0), (8, 3.0)]
