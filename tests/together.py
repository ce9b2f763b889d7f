"""Runs of several ranks, one after the other: `torchrun --nproc-per-node 2 together.py PLAN.json`.

A plan is a list of {config, out, seed, kind, resume, stop: [rank, calls], die: [rank, calls]}: the given rank asks to
stop, or dies, when it has been asked so many times.  What a run failed with is written beside its folder, one file per
rank.
"""

import json
import os
import sys
from pathlib import Path

import torch

from longreach.config import build, read_yaml
from longreach.engine.ranks import Ranks, join_ranks
from longreach.errors import RunFailed
from longreach.runs import Observer, RunConfig, RunFolder, execute_together, gather_info


def work(ranks: Ranks, plan: dict) -> None:
    calls = iter(range(1, 10**9))

    def should_stop() -> bool:
        call = next(calls)
        if plan.get("die") == [ranks.number, call]:
            os._exit(3)
        return plan.get("stop") == [ranks.number, call]

    config, folder = build(RunConfig, read_yaml(Path(plan["config"]))), RunFolder(Path(plan["out"]))
    info = gather_info("test", "", "", plan["seed"], "cpu", ranks=ranks.count)
    observer = Observer(should_stop=should_stop)
    execute_together([config], [folder], [info], "cpu", plan["resume"], observer, ranks=ranks, parallel=plan["kind"])


def main() -> None:
    torch.set_num_threads(1)
    plans = json.loads(Path(sys.argv[1]).read_text())
    try:
        with join_ranks("cpu") as (ranks, _):
            for plan in plans:
                try:
                    work(ranks, plan)
                except RunFailed as error:
                    _note(plan, error)
    except RunFailed as error:  # a rank is gone, and the connection with it: in the last of a plan
        _note(plans[-1], error)


def _note(plan: dict, error: RunFailed) -> None:
    Path(f"{plan['out']}.failed-{os.environ['RANK']}").write_text(str(error))


if __name__ == "__main__":
    main()
