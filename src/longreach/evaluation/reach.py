"""How far a model reaches: one number from a curve."""

from collections.abc import Iterable
from itertools import pairwise

from longreach.errors import BadInput
from longreach.evaluation.scores import Score


def reach_at(scores: Iterable[Score], at_least: float) -> int:
    """Return the longest tested length up to which every tested length scores at least `at_least`.

    The result is 0 if the shortest length fails.  The scores must be one curve: one seed, one metric and one setting
    of the task, with each length once.  Raises `BadInput` otherwise.
    """
    curve = sorted(scores, key=lambda score: score.length)
    _refuse("seeds", {str(score.seed) for score in curve})
    _refuse("metrics", {score.metric for score in curve})
    _refuse("settings of the task", {_setting(score) for score in curve})
    for shorter, longer in pairwise(curve):
        if shorter.length == longer.length:
            raise BadInput(f"reach is of one curve, got length {longer.length} twice")
    longest = 0
    for score in curve:
        if score.rate < at_least:
            break
        longest = score.length
    return longest


def _refuse(what: str, found: set[str]) -> None:
    """Raise `BadInput` unless there is at most one."""
    if len(found) > 1:
        raise BadInput(f"reach is of one curve, got {len(found)} {what}: {', '.join(sorted(found))}")


def _setting(score: Score) -> str:
    return ",".join(f"{name}={value}" for name, value in sorted(score.overrides.items())) or "as trained"
