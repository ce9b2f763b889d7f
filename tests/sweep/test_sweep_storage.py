"""Sweeps whose results lie in shared storage: here a folder behind file://, or objects in memory."""

import json
import signal
import socket
import sys
import time
from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from sweeping import ENDLESS, LONG, TINY, check_whole, finish, kill, process_of, start, step_of, wait_until, write

from longreach.cli.main import main
from longreach.errors import RunFailed
from longreach.runs import HOLDER, LOCK
from longreach.sweeps import Backend, Watcher, drive, make_plan, open_mirror, open_storage, read_states
from longreach.sweeps import courier as couriers
from longreach.sweeps.courier import SIGN, Courier
from longreach.sweeps.process import Outcome

STACKED = {**TINY, "seeds": 2, "stack": 2}


class Shelf(MemoryFileSystem):
    """Objects, and no folders, as in a bucket.  It notes what is done to it."""

    protocol = "shelf"
    store, pseudo_dirs, done = {}, [""], []

    @classmethod
    def _strip_protocol(cls, path):
        return "/" + path.removeprefix("shelf://").strip("/")

    def put_file(self, lpath, rpath, **options):
        self.done.append(("put", rpath.removeprefix("/x/")))
        self.pipe_file(rpath, Path(lpath).read_bytes())

    def rm_file(self, path):
        self.done.append(("remove", path.removeprefix("/x/")))
        super().rm_file(path)


fsspec.register_implementation("shelf", Shelf, clobber=True)


@pytest.fixture
def shelf():
    Shelf.store.clear()
    Shelf.done.clear()
    return open_storage("shelf://x")


@pytest.fixture(autouse=True)
def own_temp(tmp_path, monkeypatch):
    """Scratch folders and locks of these tests are nobody else's."""
    (tmp_path / "temp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temp"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temp"))


def sweep(file: Path, out: str, *flags: str, verb: str = "run") -> int:
    return main(["sweep", verb, str(file), "--out", out, *(("--device", "cpu") if verb == "run" else ()), *flags])


def counts(file: Path, out: str, capsys) -> dict[str, int]:
    capsys.readouterr()
    assert sweep(file, out, "--json", verb="status") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["folder"] == out
    return {name: number for name, number in found["counts"].items() if number}


def files_of(folder: Path) -> set[str]:
    """But TensorBoard's, which have a time in their names, and those of the lock, which storage does not have."""
    paths = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return {path for path in paths if "tfevents" not in path and path not in (LOCK, HOLDER)}


def test_a_sweep_in_storage_is_the_one_in_a_folder(tmp_path, capsys):
    file, url = write(tmp_path / "s.yaml", STACKED), f"file://{tmp_path}/stored"
    assert counts(file, url, capsys) == {"waiting": 2}
    assert sweep(file, url) == 0
    assert f"longreach sweep fetch {url} DEST" in capsys.readouterr().out
    check_whole(file, tmp_path / "stored", tmp_path / "undisturbed")
    for seed in range(2):
        names = files_of(tmp_path / "stored" / "s" / f"seed-{seed}")
        extra = {"log.txt", "progress.json"} if seed == 0 else {"progress.json"}
        assert names == files_of(tmp_path / "undisturbed" / f"s-seed-{seed}") | extra
    assert not list((tmp_path / "temp").rglob("*.safetensors"))
    assert not list((tmp_path / "stored").rglob(SIGN))
    assert counts(file, url, capsys) == {"finished": 2}
    # nothing is run again, by whomever
    log = (tmp_path / "stored" / "s" / "seed-0" / "log.txt").read_text()
    assert sweep(file, url, "--scratch", str(tmp_path / "other")) == 0
    assert (tmp_path / "stored" / "s" / "seed-0" / "log.txt").read_text() == log
    assert not (tmp_path / "other").exists()
    # a report needs them here
    assert main(["sweep", "fetch", url, str(tmp_path / "copy")]) == 0
    assert "2 runs in" in capsys.readouterr().out
    assert not list((tmp_path / "copy").rglob("checkpoints"))
    assert main(["report", str(tmp_path / "copy"), "--json"]) == 0
    assert '"runs": 2, "unfinished": 0' in capsys.readouterr().out


def test_a_killed_job_goes_on_from_the_storage_alone(tmp_path):
    """And passes over a checkpoint that was damaged there."""
    content = {**LONG, "seeds": 1, "train": {**LONG["train"], "steps": 200}}
    file, stored = write(tmp_path / "long.yaml", content), tmp_path / "stored"
    driver = start(file, f"file://{stored}", "--scratch", str(tmp_path / "one"))
    first = stored / "long" / "seed-0"
    wait_until(lambda: step_of(first) >= 40)
    driver.send_signal(signal.SIGSTOP)  # lest it starts the job again
    kill(process_of(first))
    driver.kill()
    driver.communicate()
    newest = max((first / "checkpoints").glob("*.json")).with_suffix(".safetensors")
    newest.write_bytes(newest.read_bytes()[:-100])
    told = finish(start(file, f"file://{stored}", "--scratch", str(tmp_path / "two")))
    assert "finished: long/seed-0" in told
    log = (first / "log.txt").read_text()
    assert f"{newest.name} is damaged (its checksum does not match)" in log
    assert log.count("resuming ") == 1
    assert log.count("process ") == 2
    check_whole(file, stored, tmp_path / "undisturbed")


def test_a_failure_is_told_by_the_storage(tmp_path, capsys):
    spoilt = {"optimizer": {"lr": 1e20, "clip": 0, "warmup": 0}, "steps": 40}
    content = {**TINY, "retries": 0, "train": {**TINY["train"], **spoilt}}
    file, url = write(tmp_path / "s.yaml", content), f"file://{tmp_path}/stored"
    assert sweep(file, url, "--json") == 1
    run = json.loads(capsys.readouterr().out)["runs"][0]
    assert (run["state"], run["failures"]) == ("failed", 1)
    assert run["reason"].startswith(f"{url}/s/seed-0: ")
    assert run["reason"] in (tmp_path / "stored" / "s" / "seed-0" / "log.txt").read_text()
    assert counts(file, url, capsys) == {"failed": 1}
    write(file, {**content, "train": {**content["train"], "steps": 41}})
    assert sweep(file, url) == 2
    assert f"{url}/s/seed-0 was started with train.steps=40" in capsys.readouterr().err


def test_a_second_driver_on_this_machine_is_refused_and_the_status_tells_what_runs(tmp_path, capsys):
    file, stored = write(tmp_path / "endless.yaml", ENDLESS), tmp_path / "stored"
    driver = start(file, f"file://{stored}", "--workers", "1")
    wait_until(lambda: step_of(stored / "endless" / "seed-0"))
    assert counts(file, f"file://{stored}", capsys) == {"running": 1, "waiting": 1}
    assert sweep(file, f"file://{stored}") == 2
    assert f"file://{stored} is being worked on by process {driver.pid}" in capsys.readouterr().err
    driver.terminate()
    assert "everything is saved" in finish(driver, 143)
    assert counts(file, f"file://{stored}", capsys) == {"waiting": 2}
    assert "stopped; everything is saved" in (stored / "endless" / "seed-0" / "log.txt").read_text()


def test_files_go_up_in_an_order_that_can_be_trusted(tmp_path, shelf):
    folder = tmp_path / "run"
    folder.mkdir()
    courier = Courier(folder, shelf)
    with courier.at_work(lambda: False):
        names = ["scores.json", "metrics.jsonl", "config.yaml", "run.json", "card.json"]
        steps = [f"checkpoints/step-{step}.{kind}" for step in (1, 2) for kind in ("json", "safetensors")]
        for name in (*names, *steps):
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(name)
        Shelf.done.clear()
        courier.send()
        order = [name for _, name in Shelf.done]
        assert sorted(order) == sorted([*names, *steps])
        assert order[:2] == ["run.json", "config.yaml"]
        assert set(order[2:4]) == {"metrics.jsonl", "card.json"}
        assert [name.split(".")[-1] for name in order[4:8]] == ["safetensors"] * 2 + ["json"] * 2
        assert order[8] == "scores.json"
        for kind in ("json", "safetensors"):
            (folder / f"checkpoints/step-1.{kind}").unlink()
        Shelf.done.clear()
        courier.send()
        assert Shelf.done == [("remove", f"checkpoints/step-1.{kind}") for kind in ("json", "safetensors")]
    assert not list(folder.iterdir())
    with Courier(folder, shelf).at_work(lambda: False):
        assert (folder / "checkpoints/step-2.json").read_text() == "checkpoints/step-2.json"
        assert not (folder / "checkpoints/step-1.json").exists()


def test_another_machine_is_waited_for_until_it_shows_no_life(tmp_path, shelf, monkeypatch):
    def sign(host, age):
        Shelf().pipe_file(f"{shelf.root}/{SIGN}", json.dumps({"host": host, "time": time.time() - age}).encode())

    sign("elsewhere", 0)
    with Courier(tmp_path, shelf).at_work(lambda: True) as held:
        assert not held
    monkeypatch.setattr(couriers, "_LOOK_SECONDS", 0)
    for host, age in (("elsewhere", 100), (socket.gethostname(), 0)):
        sign(host, age)
        with Courier(tmp_path, shelf).at_work(lambda: True) as held:
            assert held


def test_a_mirror_follows_the_storage(tmp_path, shelf):
    plan = make_plan(write(tmp_path / "s.yaml", {**TINY, "seeds": 2}))
    files = Shelf()

    def states():
        return [state.state for state in read_states(plan, mirror.folder)]

    with open_mirror(shelf, tmp_path) as mirror:
        assert states() == ["waiting", "waiting"]
        sign = {"host": "x", "time": time.time()}
        files.pipe_file("/x/s/seed-0/" + SIGN, json.dumps(sign).encode())
        files.pipe_file("/x/s/seed-1/attempts.json", json.dumps({"failures": 9}).encode())
        mirror.look()
        assert states() == ["running", "failed"]
        files.rm_file("/x/s/seed-0/" + SIGN)
        files.pipe_file("/x/s/seed-1/scores.json", b"[]")
        mirror.look("s/seed-0")
        assert states() == ["waiting", "failed"]
        mirror.look()
        assert states() == ["waiting", "finished"]
    assert not mirror.folder.exists()


class Failing(Backend):
    """Every job fails, on whatever machine."""

    def __init__(self):
        self.orders = {}

    def has_room(self):
        return True

    def start(self, number, order):
        self.orders[number] = order

    def ended(self, seconds):
        return {number: Outcome(False, "it broke") for number in self.orders}

    def stop(self):
        raise AssertionError("nobody asked")

    def close(self):
        raise AssertionError("the driver does not own its backend")


def test_failures_are_counted_and_forgotten_in_the_storage(tmp_path, shelf):
    plan = make_plan(write(tmp_path / "s.yaml", {**TINY, "retries": 0}))
    for retry_failed, started in ((False, 1), (False, 0), (True, 1)):
        backend = Failing()
        with open_mirror(shelf, tmp_path / "scratch") as mirror:
            assert drive(plan, mirror.folder, backend, Watcher(), retry_failed, mirror)
        assert len(backend.orders) == started
        assert json.loads(Shelf().cat("/x/s/seed-0/attempts.json"))["failures"] == 1
    assert backend.orders[0].stored == [(str(tmp_path / "scratch" / "s" / "seed-0"), "shelf://x/s/seed-0")]


def test_a_damaged_note_in_storage_is_set_aside_there(tmp_path, shelf):
    plan = make_plan(write(tmp_path / "s.yaml", {**TINY, "retries": 0}))
    files, said = Shelf(), []
    files.pipe_file("/x/s/seed-0/attempts.json", b"{")
    files.pipe_file("/x/s/seed-0/" + SIGN, b"{")
    with open_mirror(shelf, tmp_path / "scratch") as mirror:
        assert drive(plan, mirror.folder, Failing(), Watcher(say=said.append), mirror=mirror)
    assert "attempts.json is damaged" in said[0]
    assert files.cat("/x/s/seed-0/attempts.json.damaged") == b"{"
    assert json.loads(files.cat("/x/s/seed-0/attempts.json"))["failures"] == 1


@pytest.mark.parametrize(
    ("url", "code", "told"),
    [
        ("memory://x", 2, "memory://x is memory of one process"),
        ("nowhere://x", 2, "nowhere://x cannot be used: Protocol not known: nowhere"),
        ("file:///proc/x", 1, "cannot copy .write-test to file:///proc/x: "),
    ],
)
def test_storage_that_cannot_be_used_is_a_line(tmp_path, capsys, url, code, told):
    assert sweep(write(tmp_path / "s.yaml", TINY), url) == code
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert told in lines[0]


def test_a_missing_package_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "s3fs", None)
    assert sweep(write(tmp_path / "s.yaml", TINY), "s3://bucket/x") == 2
    assert "s3://bucket/x cannot be used: Install s3fs" in capsys.readouterr().err


def test_errors_of_a_file_system_are_told_in_a_line(shelf, monkeypatch):
    class NoCredentials(Exception):
        pass

    def refuse(self, path, **options):
        raise NoCredentials("who are you?\nno idea")

    monkeypatch.setattr(Shelf, "find", refuse)
    with pytest.raises(RunFailed, match=r"^cannot list shelf://x: who are you\?$"):
        shelf.list()
