"""Candidate schemes of position IDs for a task, with room for a target length, and how they are ranked."""

import math

import torch
from torch import Tensor

from longreach.diagnosis.coverage import Shown, cover
from longreach.diagnosis.findings import TOLERATED, SchemeReport
from longreach.diagnosis.needs import Needs
from longreach.errors import BadInput
from longreach.positions.ids import Abacus, Coupled, IdPolicy, Pose, Predicted, Randomized, Sequential, UniformPose
from longreach.seeding import stream
from longreach.tasks import Form, Sample, Task

_RELABELLINGS = 8


def candidates(task: Task, longest: Sample) -> dict[str, IdPolicy]:
    """By name: those that count, and the task's coupling in its forms with every relabelling.  `longest` are samples of
    the target length: every scheme gets as many IDs as they use."""
    tokens = longest.tokens.shape[1] - 1
    found: dict[str, IdPolicy] = {
        "sequential": Sequential(),
        "pose": Pose(max_id=tokens),
        "uniform_pose": UniformPose(max_id=tokens),
        "randomized": Randomized(max_id=tokens),
        "abacus": Abacus(max_id=tokens),
    }
    for form, ids in _forms(task, longest).items():
        kind = Coupled if task.coupling_by_rule else Predicted
        for relabelling in ("increasing", "skips", "offset", "none"):
            found[f"{form}, {relabelling}"] = kind(form=form, relabelling=relabelling, max_id=int(ids.max()))
    return {name: policy for name, policy in found.items() if _serves(policy, task, longest)}


def _forms(task: Task, longest: Sample) -> dict[Form, Tensor]:
    """The IDs of the task's coupling in both forms, or in one where they are the same."""
    if not task.coupling_levels:
        return {}
    aligned, published = task.coupling(longest, "aligned"), task.coupling(longest, "published")
    return {"aligned": aligned} if torch.equal(aligned, published) else {"aligned": aligned, "published": published}


def _serves(policy: IdPolicy, task: Task, longest: Sample) -> bool:
    try:
        policy.check(task, longest)
    except BadInput:  # abacus without digits, IDs that would give the answer away
        return False
    return True


def judge_scheme(
    name: str, policy: IdPolicy, task: Task, short: Needs, long: dict[int, Needs], seed: int
) -> SchemeReport:
    """What training covers under one scheme."""
    first = 1 if policy.supplier(task) == "count" else 0  # counting has no reserved ID
    rows = torch.arange(len(short.sample.tokens))
    draws = [stream(seed, f"diagnose relabelling/{number}", rows) for number in range(_RELABELLINGS)]
    shown = Shown.by(short, [policy.training_ids(task, short.sample, some) + first for some in draws])
    found = {}
    for length, needs in long.items():
        tested = stream(seed, f"diagnose test/{length}", torch.arange(len(needs.sample.tokens)))
        found[length] = cover(shown, needs, policy.evaluation_ids(task, needs.sample, tested) + first)
    covered = 0
    for length, coverage in sorted(found.items()):
        if coverage.uncovered.value > TOLERATED:
            break
        covered = length
    return SchemeReport(name, found, covered)


def badness(report: SchemeReport) -> tuple[int | float, ...]:
    """Little uncovered first, then a long reach, few strangers, and a small kappa times the tokens that are alike: by
    as much can errors grow that training does not show."""
    last = report.at_target
    growth = (last.kappa.value if last.kappa else math.inf) * (1 + last.alike)
    return round(last.uncovered_needs, 3), -report.covered_to, round(last.strangers, 1), growth, last.id_span
