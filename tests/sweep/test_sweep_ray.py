"""Sweeps on a real Ray cluster of several nodes, all on this machine, in which things are killed."""

import fcntl
import os
import signal

import pytest
from sweeping import (
    ENDLESS,
    LONG,
    check_whole,
    finish,
    kill,
    parent_of,
    process_of,
    start,
    step_of,
    wait_for_a_checkpoint,
    wait_until,
    write,
)

from longreach.cli.main import main

pytest.importorskip("ray")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A head without CPUs, so that all work is done by nodes that a test may take away; one cluster at a time."""
    from ray.cluster_utils import Cluster

    with (tmp_path_factory.getbasetemp().parent / "ray.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other workers of pytest-xdist may want one as well
        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
        yield made
        made.shutdown()


@pytest.fixture
def node(cluster):
    """Ignores interrupts, as one does that was started in the background of a script."""
    usual = signal.signal(signal.SIGINT, signal.SIG_IGN)
    made = cluster.add_node(num_cpus=1)
    signal.signal(signal.SIGINT, usual)
    yield made
    if made in cluster.list_all_nodes():
        cluster.remove_node(made)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return tmp_path_factory.mktemp("undisturbed")


@pytest.mark.slow
def test_killed_processes_are_replaced_and_go_on(cluster, node, tmp_path, undisturbed, capsys):
    """First a job's own process, then the worker of Ray's that keeps one."""
    file, out = write(tmp_path / "long.yaml", LONG), tmp_path / "out"
    driver = start(file, out, "--backend", "ray", "--address", cluster.address)
    first, second = (out / "long" / f"seed-{seed}" for seed in (0, 1))
    reached = wait_for_a_checkpoint(first)
    kill(process_of(first))
    wait_for_a_checkpoint(second)
    job = process_of(second)
    kill(parent_of(job))
    told = finish(driver)
    assert "seed-0: killed by SIGKILL; tries left: 2" in told
    assert "seed-1: lost by Ray: WorkerCrashedError" in told
    assert f"resuming {first} at step" in (first / "log.txt").read_text()
    assert step_of(first) > reached
    check_whole(file, out, undisturbed)
    assert main(["report", str(out), "--json"]) == 0
    assert '"runs": 2, "unfinished": 0' in capsys.readouterr().out


@pytest.mark.slow
def test_runs_of_a_lost_node_go_on_elsewhere(cluster, node, tmp_path, undisturbed):
    file, out = write(tmp_path / "long.yaml", LONG), tmp_path / "out"
    driver = start(file, out, "--backend", "ray", "--address", cluster.address)
    first = out / "long" / "seed-0"
    wait_for_a_checkpoint(first)
    job = process_of(first)
    os.kill(job, signal.SIGSTOP)  # lest it finishes before its node is gone
    other = cluster.add_node(num_cpus=1)
    cluster.remove_node(node, allow_graceful=False)
    os.kill(job, signal.SIGCONT)
    told = finish(driver)
    cluster.remove_node(other)
    assert "seed-0: lost by Ray" in told
    check_whole(file, out, undisturbed)


@pytest.mark.slow
def test_a_killed_driver_leaves_nothing_running_and_the_next_one_goes_on(cluster, node, tmp_path, undisturbed):
    file, out = write(tmp_path / "long.yaml", LONG), tmp_path / "out"
    flags = ("--backend", "ray", "--address", cluster.address)
    driver = start(file, out, *flags)
    first = out / "long" / "seed-0"
    wait_for_a_checkpoint(first)
    driver.kill()
    driver.communicate()
    told = finish(start(file, out, *flags))
    assert told.count("finished: ") == 2
    assert "failed" not in told
    assert f"resuming {first} at step" in (first / "log.txt").read_text()
    check_whole(file, out, undisturbed)


def test_ctrl_c_lets_every_run_save(cluster, node, tmp_path):
    file, out = write(tmp_path / "endless.yaml", ENDLESS), tmp_path / "out"
    driver = start(file, out, "--backend", "ray", "--address", cluster.address)
    first = out / "endless" / "seed-0"
    wait_for_a_checkpoint(first)
    driver.send_signal(signal.SIGINT)
    assert "To go on:  longreach sweep run" in finish(driver, 130)
    wait_until(lambda: "stopped; everything is saved" in (first / "log.txt").read_text())
    assert not (first / "attempts.json").exists()
    assert not (out / "endless" / "seed-1").exists()


def test_results_in_storage(cluster, node, tmp_path, undisturbed, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # for the lock and the scratch folder
    content = {**LONG, "seeds": 1, "train": {**LONG["train"], "steps": 200}}
    file, stored = write(tmp_path / "stored.yaml", content), tmp_path / "stored"
    driver = start(file, f"file://{stored}", "--backend", "ray", "--address", cluster.address)
    first = stored / "stored" / "seed-0"
    wait_for_a_checkpoint(first)
    kill(process_of(first))
    assert "seed-0: killed by SIGKILL; tries left: 2" in finish(driver)
    assert (first / "log.txt").read_text().count("resuming ") == 1
    check_whole(file, stored, undisturbed)


@pytest.mark.slow
def test_losing_the_raylet_charges_no_run_and_the_same_command_goes_on(tmp_path, undisturbed):
    """More runs than places: some wait when the raylet of the sweep's own cluster is killed."""
    train, resources = {**LONG["train"], "steps": 300}, {"cpus": os.cpu_count()}
    content = {**LONG, "seeds": 2, "train": train, "resources": resources}
    file, out = write(tmp_path / "lost.yaml", content), tmp_path / "out"
    driver = start(file, out, "--backend", "ray")
    first = out / "lost" / "seed-0"
    wait_for_a_checkpoint(first)
    job = process_of(first)
    raylet = parent_of(parent_of(job))
    assert parent_of(raylet) == driver.pid  # never another sweep's
    kill(raylet)
    told = finish(driver, 1)
    assert "the Ray cluster is lost (" in told.splitlines()[-1]
    assert "the same command goes on" in told
    assert not list(out.rglob("attempts.json"))
    assert "failed" not in finish(start(file, out, "--backend", "ray"))
    check_whole(file, out, undisturbed)


def test_more_than_this_machine_has_is_refused(tmp_path, capsys):
    """Ray would wait for ever.  Its own cluster is started for this, and ended."""
    import ray

    file = write(tmp_path / "large.yaml", {**LONG, "resources": {"cpus": 1000}})
    assert main(["sweep", "run", str(file), "--out", str(tmp_path / "out"), "--backend", "ray", "--device", "cpu"]) == 2
    assert "a run needs 1000 CPUs and 0 GPUs, more than there are here" in capsys.readouterr().err
    assert not ray.is_initialized()


@pytest.mark.parametrize(
    ("address", "code", "told"),
    [
        ("127.0.0.1:1", 1, "no Ray at 127.0.0.1:1: Connection refused"),
        ("ray://head:10001", 2, "--address must be auto or HOST:PORT"),
        ("head", 2, "--address must be auto or HOST:PORT"),
    ],
)
def test_no_cluster_where_one_is_said_to_be(tmp_path, capsys, address, code, told):
    file = write(tmp_path / "long.yaml", LONG)
    flags = ["--backend", "ray", "--address", address, "--out", str(tmp_path / "out")]
    assert main(["sweep", "run", str(file), *flags]) == code
    assert told in capsys.readouterr().err
