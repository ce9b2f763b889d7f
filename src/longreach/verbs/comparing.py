"""`compare`: is one variant better than another, seed by seed?"""

from collections.abc import Sequence
from pathlib import Path

from longreach.config.registry import nearest
from longreach.errors import BadInput
from longreach.evaluation.paired import PairedDifference, compare_scores


def compare(*paths: str | Path, first: str, second: str, metric: str = "token_em_free") -> list[PairedDifference]:
    """Return paired differences of two variants over seeds, by length.

    Args:
        paths: Folders of runs, or files of scores (.csv, .json).
        first: A variant.
        second: The variant whose rates are subtracted.
        metric: The metric that is compared.

    Raises:
        BadInput: There is no such variant or metric, or no length at which both variants have two equal seeds.
    """
    return compare_paths([Path(path) for path in paths], first, second, metric)[0]


def compare_paths(
    paths: Sequence[Path], first: str, second: str, metric: str
) -> tuple[list[PairedDifference], list[str]]:
    """Return what `compare` does, and a line for each run that is left out."""
    from longreach.reports import load_results  # loads matplotlib

    results, problems = load_results(paths)
    variants = list(dict.fromkeys(result.variant for result in results))
    for name in (first, second):
        if name not in variants:
            raise BadInput(f"there is no variant {name!r}{nearest(name, variants)}")
    metrics = list(dict.fromkeys(score.metric for result in results for score in result.scores))
    if metric not in metrics:
        raise BadInput(f"no run has a score {metric!r}{nearest(metric, metrics)}")
    sides = [
        [score for result in results if result.variant == name for score in result.scores if score.metric == metric]
        for name in (first, second)
    ]
    found = compare_scores(*sides)
    if not found:
        raise BadInput(f"{first} and {second} have no length at which both have {metric} of two equal seeds")
    return found, problems


def read_pair(text: str) -> Sequence[str]:
    """Return the two names of `A,B`; raise BadInput for anything else."""
    names = [name.strip() for name in text.split(",")]
    if len(names) != 2 or not all(names) or names[0] == names[1]:
        raise BadInput(f"--compare takes two variants such as pose,sequential, got {text!r}")
    return names
