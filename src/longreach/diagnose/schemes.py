"""Candidate schemes of position IDs for a task, with room for a target length."""

import torch
from torch import Tensor

from longreach.errors import BadInput
from longreach.positions.ids import Abacus, Coupled, IdPolicy, Pose, Predicted, Randomized, Sequential, UniformPose
from longreach.tasks import Form, Sample, Task


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
