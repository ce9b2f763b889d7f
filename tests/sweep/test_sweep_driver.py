"""The driver by itself: jobs here are entries of a list, and a folder is finished when it has scores."""

import json
from pathlib import Path

import pytest
from sweeping import TINY, write

from longreach.errors import BadInput
from longreach.live import read_attempts
from longreach.runs import LOCK, hold, is_locked
from longreach.sweeps import Backend, BackendLost, Watcher, drive, make_plan, read_states, sole_driver
from longreach.sweeps.process import Outcome

GOOD, BAD, STOPPED = Outcome(False, ""), Outcome(False, "it broke"), Outcome(True, "")


class Script(Backend):
    """Ends each job as `fate` says, by name and number of the try."""

    def __init__(self, fate, room=2):
        self.fate, self.room, self.running = fate, room, {}
        self.started, self.most, self.stopped = [], 0, False

    def has_room(self):
        return len(self.running) < self.room

    def start(self, number, order):
        self.running[number] = order
        self.started.append(order.folders[0].split("/")[-1])
        self.most = max(self.most, len(self.running))

    def ended(self, seconds):
        number, order = next(iter(self.running.items()))
        del self.running[number]
        if self.stopped:
            return {number: STOPPED}
        seed = order.folders[0].split("/")[-1]
        outcome = self.fate(seed, self.started.count(seed), Path(order.folders[0]))
        if outcome is GOOD:
            for folder in order.folders:
                Path(folder).mkdir(parents=True, exist_ok=True)
                (Path(folder) / "scores.json").write_text("[]")
        return {number: outcome}

    def stop(self):
        self.stopped = True

    def close(self):
        raise AssertionError("the driver does not own its backend")


@pytest.fixture
def plan(tmp_path):
    return make_plan(write(tmp_path / "s.yaml", {**TINY, "seeds": 4, "retries": 1}))


def states(plan, out):
    return {state.name.split("/")[-1]: state.state for state in read_states(plan, out)}


def make_checkpoint(folder, step):
    (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
    record = {"step": step, "score": None, "sha256": ""}
    (folder / "checkpoints" / f"step-{step:08}.json").write_text(json.dumps(record))


def test_everything_is_run_once_and_never_again(plan, tmp_path):
    backend = Script(lambda seed, times, folder: GOOD)
    assert drive(plan, tmp_path / "out", backend, Watcher())
    assert backend.started == ["seed-0", "seed-1", "seed-2", "seed-3"]
    assert backend.most == 2
    again = Script(lambda seed, times, folder: GOOD)
    assert drive(plan, tmp_path / "out", again, Watcher())
    assert again.started == []


def test_a_failure_is_tried_again_so_often_and_then_reported(plan, tmp_path):
    out, said = tmp_path / "out", []

    def fate(seed, times, folder):
        return BAD if seed == "seed-1" or (seed == "seed-2" and times == 1) else GOOD

    backend = Script(fate)
    assert drive(plan, out, backend, Watcher(say=said.append))
    assert sorted(backend.started) == ["seed-0", "seed-1", "seed-1", "seed-2", "seed-2", "seed-3"]
    assert states(plan, out) == {"seed-0": "finished", "seed-1": "failed", "seed-2": "finished", "seed-3": "finished"}
    assert "failed: s/seed-1: it broke; tries left: 1" in said
    assert "failed: s/seed-1: it broke; given up" in said
    # given up is given up, until somebody says otherwise
    again = Script(lambda *facts: GOOD)
    assert drive(plan, out, again, Watcher())
    assert again.started == []
    assert drive(plan, out, again, Watcher(), retry_failed=True)
    assert again.started == ["seed-1"]
    assert set(states(plan, out).values()) == {"finished"}


def test_a_run_that_gets_further_every_time_is_not_given_up(plan, tmp_path):
    def fate(seed, times, folder):
        make_checkpoint(folder, 10 * times)
        return GOOD if times == 6 else BAD

    backend = Script(fate, room=1)
    assert drive(plan, tmp_path / "out", backend, Watcher())
    assert len(backend.started) == 4 * 6
    assert set(states(plan, tmp_path / "out").values()) == {"finished"}


def test_scores_that_are_not_where_they_should_be_are_a_failure(plan, tmp_path):
    drive(plan, tmp_path / "out", Script(lambda *facts: Outcome(False, "")), Watcher())
    assert "shared by all machines" in read_attempts(plan.runs[0].folder(tmp_path / "out").path).reason


def test_a_lost_answer_of_a_finished_run_is_no_failure(plan, tmp_path):
    """The machine is gone, but the scores are there."""

    def fate(seed, times, folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "scores.json").write_text("[]")
        return BAD

    backend = Script(fate)
    assert drive(plan, tmp_path / "out", backend, Watcher())
    assert len(backend.started) == 4
    assert set(states(plan, tmp_path / "out").values()) == {"finished"}


def test_being_asked_to_stop_is_no_failure_of_any_run(plan, tmp_path):
    out, asked = tmp_path / "out", []

    def fate(seed, times, folder):
        asked.append(1)
        return GOOD

    backend = Script(fate)
    assert not drive(plan, out, backend, Watcher(should_stop=lambda: bool(asked)))
    assert backend.started == ["seed-0", "seed-1"]
    assert states(plan, out) == {"seed-0": "finished", "seed-1": "waiting", "seed-2": "waiting", "seed-3": "waiting"}
    assert not list(out.rglob("attempts.json"))


def test_a_lost_backend_charges_no_run_and_the_next_start_goes_on(plan, tmp_path):
    out = tmp_path / "out"

    def fate(seed, times, folder):
        if seed == "seed-1":
            raise BackendLost("the cluster is lost")
        return GOOD

    with pytest.raises(BackendLost, match="the cluster is lost"):
        drive(plan, out, Script(fate), Watcher())
    assert not list(out.rglob("attempts.json"))
    again = Script(lambda *facts: GOOD)
    assert drive(plan, out, again, Watcher())
    assert again.started == ["seed-1", "seed-2", "seed-3"]
    assert set(states(plan, out).values()) == {"finished"}


@pytest.mark.parametrize("content", ["", "{", "[]", '{"failures": "many"}', '{"phase": 1}', "\x00", "[" * 100_000])
@pytest.mark.parametrize("name", ["attempts.json", "progress.json"])
def test_a_damaged_note_is_set_aside_and_every_run_goes_on(plan, tmp_path, name, content):
    out, said = tmp_path / "out", []
    damaged = plan.runs[1].folder(out).path / name
    damaged.parent.mkdir(parents=True)
    damaged.write_text(content)
    assert set(states(plan, out).values()) == {"waiting"}  # who only looks renames nothing
    assert damaged.exists()
    backend = Script(lambda *facts: GOOD)
    assert drive(plan, out, backend, Watcher(say=said.append))
    assert backend.started == ["seed-0", "seed-1", "seed-2", "seed-3"]
    (line,) = (line for line in said if "damaged" in line)
    assert line.startswith(f"s/seed-1: {damaged} is damaged: ")
    assert f"it is now {name}.damaged" in line
    assert damaged.with_name(f"{name}.damaged").read_text() == content
    plan.runs[1].folder(out).path.joinpath("scores.json").unlink()
    plan.runs[1].folder(out).refuse_existing()  # the run can start there


def test_a_second_driver_is_refused(tmp_path):
    out = tmp_path / "out"
    with sole_driver(out), pytest.raises(BadInput, match="is being worked on by process"), sole_driver(out):
        pass
    with sole_driver(out):
        pass


def test_a_run_is_running_while_a_process_holds_its_folder(plan, tmp_path):
    folder = plan.runs[1].folder(tmp_path / "out").path
    assert not is_locked(folder / LOCK)
    with hold(folder / LOCK):
        assert states(plan, tmp_path / "out")["seed-1"] == "running"
    assert states(plan, tmp_path / "out")["seed-1"] == "waiting"


def test_a_failed_seed_of_a_stack_is_tried_again_without_the_others(tmp_path):
    plan = make_plan(write(tmp_path / "s.yaml", {**TINY, "seeds": 2, "stack": 2, "retries": 1}))

    def fate(seed, times, folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "scores.json").write_text("[]")
        return BAD

    drive(plan, tmp_path / "out", Script(fate), Watcher())
    assert states(plan, tmp_path / "out") == {"seed-0": "finished", "seed-1": "failed"}
    assert not (tmp_path / "out" / "s" / "seed-0" / "attempts.json").exists()
