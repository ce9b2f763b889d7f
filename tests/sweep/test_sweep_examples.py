"""The cluster file and the Slurm script of the examples, as far as they can be tried without a cluster."""

import os
import subprocess
from pathlib import Path

import pytest
import yaml
from sweeping import wait_until

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_cluster_file_is_one_of_rays():
    util = pytest.importorskip("ray.autoscaler._private.util")
    config = yaml.safe_load((EXAMPLES / "cluster.yaml").read_text())
    util.validate_config(util.prepare_config(config))
    with pytest.raises(Exception, match="surely_unknown"):  # it does look
        util.validate_config(util.prepare_config({**config, "surely_unknown": 1}))


@pytest.mark.parametrize("nodes", [1, 3])
def test_the_slurm_script_starts_ray_on_every_node_and_then_the_sweep(tmp_path, nodes):
    """With stand-ins that write down how they were called."""
    for name in ("ray", "srun", "longreach"):
        stand_in = tmp_path / name
        stand_in.write_text(f'#!/bin/bash\necho {name} "$@" >> {tmp_path}/called\n')
        stand_in.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_NUM_NODES": str(nodes)}
    subprocess.run([EXAMPLES / "slurm.sh", "some.yaml", "/shared/some"], env=environment, check=True, timeout=60)
    # srun goes on beside the sweep, and the stand-in of the sweep ends at once
    wait_until(lambda: len((tmp_path / "called").read_text().splitlines()) == (3 if nodes > 1 else 2))
    called = (tmp_path / "called").read_text().splitlines()
    assert called[0] == "ray start --head --port=6379"
    joined = [line for line in called if line.startswith("srun")]
    assert len(joined) == (nodes > 1)
    if joined:
        assert joined[0].startswith(f"srun --nodes={nodes - 1} --exclude=")
        assert ":6379 --block" in joined[0]
    (sweep,) = [line for line in called if line.startswith("longreach")]
    assert sweep.startswith("longreach sweep run some.yaml --backend ray --address ")
    assert sweep.endswith(":6379 --out /shared/some")
