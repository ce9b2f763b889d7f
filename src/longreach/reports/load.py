"""Results to report on: finished runs, and files of scores."""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from statistics import median
from typing import TypeVar

from longreach.config import Plain
from longreach.errors import BadInput
from longreach.evaluation import Card, Loss, Measure, Measures, Score
from longreach.live import SWEEP, read_sweep
from longreach.reports.committed import FileRows, Model, is_results_file, read_results_file
from longreach.runs import RunFolder, RunInfo, find_runs, variant_names

_POINTS = 160
"""Points of a training curve."""


@dataclass(frozen=True)
class ModelMeasures:
    """Attention and margins of one model, under the IDs of its own test."""

    entries: Sequence[Measure]
    best: frozenset[tuple[int | None, ...]]
    """Dependency, layer and head of the heads that were chosen at the longest training length."""

    @staticmethod
    def of(measures: Measures, ids: str) -> "ModelMeasures":
        """Return the measures under these IDs: others would be a control, or another encoding."""
        best = frozenset((head.dependency, head.layer, head.head) for head in measures.chosen)
        return ModelMeasures([entry for entry in measures.entries if entry.ids == ids], best)

    def is_best(self, entry: Measure) -> bool:
        """Return whether an entry belongs to a chosen head."""
        return (entry.dependency, entry.layer, entry.head) in self.best


@dataclass(frozen=True)
class Result:
    """Scores of one model, from a run or from a file of scores."""

    source: str
    """The run folder or the file."""
    variant: str
    """Name of its curves."""
    seed: int
    scores: list[Score]
    losses: list[Loss] = field(default_factory=list)
    """By length, of a model trained on text."""
    card: Card | None = None
    trained_lengths: tuple[int, int] | None = None
    """Shortest and longest training length; None where a file does not tell."""
    title: str = ""
    command: str = ""
    """Command that made it, or several joined by ` ; `; empty where none was recorded."""
    variants: tuple[str, ...] = ()
    """Variants of its recipe, in order."""
    measured: ModelMeasures | None = None
    """Attention and margins, if they were measured."""

    @property
    def trained_to(self) -> int | None:
        """Return the longest training length, if it is known."""
        return None if self.trained_lengths is None else self.trained_lengths[1]


@dataclass(frozen=True, kw_only=True)
class RunResult(Result):
    """Scores of a run whose folder is at hand."""

    card: Card
    folder: RunFolder
    info: RunInfo
    settings: Plain = field(default_factory=dict, repr=False)
    """Its config.yaml."""
    training: list[tuple[int, float]] = field(default_factory=list, repr=False)
    """Steps and training losses; of a long curve each point is the median of its part."""

    @property
    def trained_to(self) -> int:
        """Return the longest training length."""
        assert self.trained_lengths is not None
        return self.trained_lengths[1]


def run_result(
    folder: RunFolder, info: RunInfo, scores: list[Score], card: Card, losses: Sequence[Loss] = ()
) -> RunResult:
    """Return the result of a run with these scores."""
    shortest, longest = map(int, card.trained_lengths.split(".."))
    return RunResult(
        source=folder.path.as_posix(),
        variant=info.variant or info.recipe,
        seed=info.seed,
        scores=scores,
        losses=list(losses),
        card=card,
        trained_lengths=(shortest, longest),
        title=info.title or info.recipe,
        command=info.command,
        variants=tuple(info.variants),
        folder=folder,
        info=info,
        settings=folder.settings(),
    )


def load_runs(paths: Iterable[Path]) -> tuple[list[RunResult], list[str]]:
    """Return all finished runs below the paths, and one line for each run that is unfinished or damaged."""
    results: list[RunResult] = []
    problems = []
    seen = set()
    for path in paths:
        without = [folder for folder in _without_config(path) if folder.resolve() not in seen]
        problems += [f"{folder} is left out: it has no config.yaml" for folder in without]
        seen |= {folder.resolve() for folder in without}
        for folder in find_runs(path):
            if folder.path.resolve() in seen:
                continue
            seen.add(folder.path.resolve())
            if not folder.finished:
                problems.append(f"{folder.path} is not finished")
                continue
            try:
                result = run_result(folder, folder.info(), folder.scores(), folder.card(), folder.losses())
                if not (result.scores or result.losses):
                    raise BadInput(f"{folder.path / 'scores.json'} has no scores")
            except (BadInput, OSError) as error:
                problems.append(f"{folder.path} is left out: {error}")
                continue
            results.append(_with_curves(result, problems))
    if not results:
        named = "; ".join(problems[:3]) + (f"; and {len(problems) - 3} more" if len(problems) > 3 else "")
        raise BadInput(f"no finished run in {', '.join(map(str, paths))}{f': {named}' if named else ''}")
    return without_repeats(in_recipe_order(_tell_apart(results)), problems), problems


def _without_config(path: Path) -> list[Path]:
    """Return the folders at or below a path that have the scores of a run but not its settings."""
    folders = sorted(record.parent for record in path.rglob("run.json"))
    return [one for one in folders if (one / "scores.json").exists() and not (one / "config.yaml").exists()]


AnyResult = TypeVar("AnyResult", bound=Result)


def without_repeats(results: Sequence[AnyResult], problems: list[str]) -> list[AnyResult]:
    """Return the results without those that repeat a variant, seed and all numbers of another one.

    A line for each of them is added to `problems`.  Of a run and its table of scores the run stays.
    """
    kept: dict[tuple[str, int], list[AnyResult]] = {}
    dropped = set()
    for result in sorted(results, key=lambda result: not isinstance(result, RunResult)):
        others = kept.setdefault((result.variant, result.seed), [])
        same = next((other for other in others if _repeats(result, other)), None)
        if same is None:
            others.append(result)
            continue
        dropped.add(id(result))
        name = f"{result.variant}, seed {result.seed} of {result.source}"
        problems.append(f"{name} is left out: it repeats {same.source}")
    return [result for result in results if id(result) not in dropped]


def _repeats(result: Result, other: Result) -> bool:
    """Return whether all scores, losses and measures of a result are those of another one."""
    return all(
        not mine or sorted(map(repr, mine)) == sorted(map(repr, theirs))
        for mine, theirs in zip(_numbers(result), _numbers(other), strict=True)
    )


def _numbers(result: Result) -> tuple[Sequence[object], ...]:
    return result.scores, result.losses, [] if result.measured is None else result.measured.entries


def _with_curves(result: RunResult, problems: list[str]) -> RunResult:
    """Return the result with its training curve and its measures; add a line for each that is damaged."""
    try:
        result = replace(result, training=thinned(_losses_of(result.folder), _POINTS))
    except (BadInput, OSError) as error:
        problems.append(f"{result.source} has no training curve: {error}")
    try:
        measures = result.folder.measures()
    except (BadInput, OSError) as error:
        problems.append(f"{result.source} has no measures: {error}")
        return result
    return result if measures is None else replace(result, measured=ModelMeasures.of(measures, result.card.test_ids))


def _losses_of(folder: RunFolder) -> list[tuple[int, float]]:
    logged = [(line["step"], line.get("loss")) for line in folder.metrics()]
    return [(step, loss) for step, loss in logged if loss is not None and math.isfinite(loss)]


def thinned(curve: list[tuple[int, float]], most: int) -> list[tuple[int, float]]:
    """Return a curve of at most so many points: each is the last step and the median loss of its part."""
    size = max(1, -(-len(curve) // most))
    parts = [curve[start : start + size] for start in range(0, len(curve), size)]
    return [(part[-1][0], median(loss for _, loss in part)) for part in parts]


def load_results(paths: Sequence[Path]) -> tuple[list[Result], list[str]]:
    """Return the results of run folders and of files of scores, and one line for each run that is left out."""
    files = [path for path in paths if is_results_file(path)]
    folders = [path for path in paths if path not in files]
    results: list[Result] = [result for path in files for result in _of_file(path, len(files) > 1)]
    runs, problems = load_runs(folders) if folders else ([], [])
    return without_repeats([*results, *runs], problems), problems


def variant_order(results: Iterable[Result]) -> list[str]:
    """Return the names of all variants, those of a recipe in its order and also those without a result.

    Colours follow this order, so that a variant keeps its colour in a report on a part of a recipe.
    """
    results = list(results)
    names = {name: None for result in results for name in (*result.variants, result.variant)}
    return list(names)


def _tell_apart(results: list[RunResult]) -> list[RunResult]:
    """Add the names of folders to variants of one name whose settings differ.

    The section `execution` does not count.
    """
    settings: dict[str, set[str]] = {}
    for result in results:
        compared = {section: value for section, value in result.settings.items() if section != "execution"}
        settings.setdefault(result.variant, set()).add(json.dumps(compared, sort_keys=True, default=str))
    return [
        replace(result, variant=_folder_name(result), variants=()) if len(settings[result.variant]) > 1 else result
        for result in results
    ]


def _folder_name(result: RunResult) -> str:
    """`small/aligned` for runs/small/aligned/seed-0."""
    parts = result.folder.path.resolve().parent.parts
    return "/".join(parts[-2:] if result.info.variant else parts[-1:])


def in_recipe_order(results: list[RunResult]) -> list[RunResult]:
    """Sort the runs of each recipe by its order of variants.  Recipes stay in the order in which they were found."""
    recipes = list(dict.fromkeys(result.info.recipe for result in results))
    known = {name: _order_of_recipe([r for r in results if r.info.recipe == name]) for name in recipes}
    results = [
        replace(result, variants=known[result.info.recipe]) if result.variant in known[result.info.recipe] else result
        for result in results
    ]

    def place(result: RunResult) -> tuple[int, int]:
        order = known[result.info.recipe]
        return recipes.index(result.info.recipe), order.index(result.variant) if result.variant in order else len(order)

    return sorted(results, key=place)


def _order_of_recipe(results: list[RunResult]) -> tuple[str, ...]:
    """Return the order that a run recorded, or that of the shipped recipe of this name; empty if neither exists."""
    recorded = max((result.variants for result in results), key=len)
    return recorded or _order_of_sweep(results) or tuple(variant_names(results[0].info.recipe))


def _order_of_sweep(results: list[RunResult]) -> tuple[str, ...]:
    """Return the variants of the sweep that all these runs belong to, in its order; empty if there is none."""
    above = results[0].folder.path.resolve().parents
    root = next((folder for folder in above if (folder / SWEEP).is_file()), None)
    if root is None:
        return ()
    try:
        names = [PurePosixPath(name).parent.name for name in read_sweep(root).runs]
    except (BadInput, OSError):  # `watch` names it; reports need it for the order alone
        return ()
    order = tuple(dict.fromkeys(names))
    return order if {result.variant for result in results} <= set(order) else ()


def _of_file(path: Path, several: bool) -> list[Result]:
    """Return one result for each variant and seed of a file; `several` files put their names before variants.

    Parts of a file that repeat a variant and a seed are numbered.  A file that is named like a shipped recipe has the
    recipe's order, and so its colours.
    """
    found: list[Result] = []
    order = variant_names(path.stem)
    seen: set[tuple[str, int]] = set()
    for number, part in enumerate(read_results_file(path), start=1):
        again = not seen.isdisjoint(part.models())
        seen |= set(part.models())
        for variant, seed in part.models():
            name = (variant or path.stem) + (f" (part {number})" if again else "")
            found.append(
                Result(
                    source=path.as_posix(),
                    variant=f"{path.stem}/{name}" if several and variant else name,
                    seed=seed,
                    scores=part.scores.get((variant, seed), []),
                    losses=part.losses.get((variant, seed), []),
                    measured=_measured_of_file(part, (variant, seed)),
                    card=part.card,
                    trained_lengths=part.trained.get((variant, seed)),
                    title=re.sub(r"[_-]+", " ", path.stem),
                    command=" ; ".join(part.commands.get((variant, seed), {})),
                )
            )
    if {result.variant for result in found} <= set(order):
        found = [replace(result, variants=tuple(order)) for result in found]
        found.sort(key=lambda result: order.index(result.variant))
    return found


def _measured_of_file(part: FileRows, model: Model) -> ModelMeasures | None:
    entries = part.measures.get(model, [])
    if not entries:
        return None
    own = entries[0].ids if part.card is None else part.card.test_ids
    best = frozenset((entry.dependency, entry.layer, entry.head) for entry in part.best.get(model, []))
    return ModelMeasures([entry for entry in entries if entry.ids == own], best)


def settings_of(result: Result) -> Mapping[str, object]:
    """Return the settings of a run; none of a file."""
    return result.settings if isinstance(result, RunResult) else {}
