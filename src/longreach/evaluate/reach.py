"""How far a model reaches: one number from a curve."""

from collections.abc import Iterable

from longreach.evaluate.scores import Score


def reach(scores: Iterable[Score], at_least: float) -> int:
    """The longest tested length up to which every tested length scores at least `at_least`; 0 if the first fails.

    The scores are one curve: one seed, one metric, one setting of the task.
    """
    longest = 0
    for score in sorted(scores, key=lambda score: score.length):
        if score.rate < at_least:
            break
        longest = score.length
    return longest
