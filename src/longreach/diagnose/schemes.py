"""Candidate schemes of position IDs for a task, with room for a target length."""

from longreach.errors import BadInput
from longreach.positions.ids import Abacus, Coupled, IdPolicy, Pose, Predicted, Randomized, Sequential, UniformPose
from longreach.tasks import Sample, Task


def candidates(task: Task, longest: Sample) -> dict[str, IdPolicy]:
    """By name.  `longest` are samples of the target length: every scheme gets as many IDs as they use."""
    tokens = longest.tokens.shape[1] - 1
    found: dict[str, IdPolicy] = {
        "sequential": Sequential(),
        "pose": Pose(max_id=tokens),
        "uniform_pose": UniformPose(max_id=tokens),
        "randomized": Randomized(max_id=tokens),
        "abacus": Abacus(max_id=tokens),
    }
    if task.coupling_levels:
        kind = Coupled if task.coupling_by_rule else Predicted
        for form in ("aligned", "published"):
            largest = int(task.coupling(longest, form).max())
            for relabelling in ("increasing", "skips", "offset", "none"):
                name = f"{'coupled' if task.coupling_by_rule else 'predicted'} {form}, {relabelling}"
                found[name] = kind(form=form, relabelling=relabelling, max_id=largest)
    return {name: policy for name, policy in found.items() if _serves(policy, task, longest)}


def _serves(policy: IdPolicy, task: Task, longest: Sample) -> bool:
    try:
        policy.check(task, longest)
    except BadInput:  # abacus without digits, IDs that would give the answer away
        return False
    return True
