"""Training speed of recipes: steps a second of one model, of stacks, and of Hugging Face's model where it has one."""

import itertools
import math
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from statistics import fmean, median

from longreach.bench import rivals
from longreach.bench.flops import step_flops
from longreach.bench.machine import Peak, wait_for
from longreach.bench.timing import Effort, Side, Timing, take_turns
from longreach.bench.whole import WholeRow
from longreach.config import Plain, merge, nested, read_value
from longreach.engine.drawing import closing_workers
from longreach.engine.stacking import stack_models
from longreach.errors import BadInput
from longreach.hf.settings import family_of
from longreach.model import Transformer
from longreach.objectives import resolve_objectives
from longreach.runs import RunConfig, load_recipe, new_model
from longreach.runs.parts import training_data
from longreach.runs.training import make_step
from longreach.training import build_optimizer

OURS = "longreach"
WINDOW = 0.5
"""Seconds that a round measures each row for, at least."""
_STEPS = 1_000_000
"""Of the run that measured steps are taken from: no schedule ends while they are measured."""
_TOGETHER = 16
"""Steps whose batches a GPU draws at once: a round has a multiple of them."""
_BATCHES = 8
"""Batches over which tokens and needed operations are averaged, for lengths differ."""


@dataclass(frozen=True)
class BenchRecipe:
    """A variant of a recipe with changes."""

    name: str
    """As it was asked for, such as `parity_far/rule:model.id_heads=2`."""
    config: RunConfig
    words: tuple[str, ...]
    """The recipe, the variant and the settings, as `longreach run` reads them."""


@dataclass(frozen=True)
class RecipeRow:
    """The training speed of one variant: some models stacked, or a rival's model."""

    recipe: str
    side: str
    """`longreach`, or the name of a rival."""
    models: int
    steps_per_second: float
    """In the median round."""
    slowest: float
    fastest: float
    rounds: int
    model_steps_per_second: float
    ratio: float | None
    """Steps a second of all models, over those of one model of ours: the median over rounds.  None for that one."""
    ratio_lowest: float | None
    ratio_highest: float | None
    tokens_per_second: float
    """Tokens read by all models; padding is not counted."""
    floor_share: float | None
    """Operations that the steps need, as a share of the peak; None where they cannot be counted."""
    seconds_to_first_step: float
    """From the beginning of building to the end of the first step."""


@dataclass(frozen=True)
class RecipeReport:
    """Training speed of recipes, and how long whole commands took."""

    name: str
    rows: list[RecipeRow]
    peak: Peak
    whole: list[WholeRow] = field(default_factory=list)
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        return {
            "name": self.name,
            "peak_flops": self.peak.flops,
            "peak": self.peak.how,
            "notes": list(self.notes),
            "rows": [asdict(row) for row in self.rows],
            "whole": [asdict(row) for row in self.whole],
        }


def parse_recipes(text: str) -> list[BenchRecipe]:
    """Return the variants that a list such as `parity_far/rule,parity_far/rule:model.id_heads=2` names."""
    return [_parse(name.strip()) for name in text.split(",")]


def _parse(name: str) -> BenchRecipe:
    path, *settings = name.split(":")
    recipe, _, variant = path.rpartition("/")
    if not recipe or path.endswith((".yaml", ".yml")):
        recipe, variant = path, ""
    changes: Plain = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise BadInput(f"--recipes: {name} must be RECIPE/VARIANT:FIELD=VALUE, got {setting!r}")
        changes = merge(changes, nested(key.replace("-", "_"), read_value(value)))
    variants = load_recipe(recipe, changes, [variant]).variants
    if variant not in variants:
        raise BadInput(f"--recipes: {recipe} has no variant {variant!r}, only {', '.join(variants)}")
    flags = [word for setting in settings for word in (f"--{setting.partition('=')[0]}", setting.partition("=")[2])]
    return BenchRecipe(name, variants[variant], (recipe, *(("--only", variant) if variant else ()), *flags))


@dataclass(frozen=True)
class _Work:
    """The work of a step of one model."""

    tokens: float
    """Read; padding is not counted."""
    flops: float | None


@dataclass(frozen=True)
class _Row:
    """A row before it is timed."""

    recipe: str
    side: str
    models: int
    step: Callable[[], object]
    work: _Work
    """Of one model."""
    seconds_to_first_step: float

    @property
    def title(self) -> str:
        return _title(self.recipe, self.models, self.side)


def time_recipes(
    recipes: Sequence[BenchRecipe],
    stacks: Sequence[int],
    device: str,
    against: str,
    effort: Effort,
    peak: Peak,
    tell: Callable[[str], None] = lambda line: None,
    window: float = WINDOW,
) -> RecipeReport:
    """Time steps of each recipe for each number of models.  All rows take turns."""
    forms = rivals.choose_rivals(against, rivals.TRAINING, device)
    work = {measured.name: _work_of_step(measured.config) for measured in recipes}
    rows: list[_Row] = []
    with ExitStack() as closing:
        for measured in recipes:
            for models in stacks:
                tell(f"building {_title(measured.name, models, OURS)}")
                rows.append(_our_row(measured, models, device, work[measured.name], closing))
        # after all of ours: nothing else may use the device while a step is recorded
        for measured in recipes:
            for form in forms if has_counterpart(measured.config) else ():
                tell(f"building {_title(measured.name, 1, rivals.TRAINING[form])}")
                rows.append(_rival_row(measured, form, device, work[measured.name]))
        order = {measured.name: number for number, measured in enumerate(recipes)}
        rows.sort(key=lambda row: order[row.recipe])
        sides = []
        for row in rows:
            tell(f"warming up {row.title}")
            steps = steps_of_round(row.step, window, lambda: wait_for(device))
            sides.append(Side(row.title, partial(_repeat, row.step, steps), steps))
        tell(f"{len(rows)} rows take turns")
        timings = take_turns(sides, effort, lambda: wait_for(device), warm_up=0)
    return RecipeReport(
        name=f"recipes {', '.join(measured.name for measured in recipes)}",
        rows=_compare(rows, timings, peak),
        peak=peak,
        notes=(
            f"each round measures a row for at least {window:g} s; the first row's seconds to the first step include"
            " the start of the device",
        ),
    )


def _our_row(measured: BenchRecipe, models: int, device: str, work: _Work, closing: ExitStack) -> _Row:
    wait_for(device)
    begun = time.perf_counter()
    step = _our_step(measured.config, models, device, closing)
    step()
    wait_for(device)
    return _Row(measured.name, OURS, models, step, work, time.perf_counter() - begun)


def _our_step(config: RunConfig, models: int, device: str, closing: ExitStack) -> Callable[[], object]:
    """Return a function that takes the next step of a run; the stack ends the workers that draw its batches."""
    config = replace(config, train=replace(config.train, steps=_STEPS))
    runs = [(config, seed) for seed in range(models)]
    members = [new_model(config, seed, device) for _, seed in runs]
    model = (members[0] if models == 1 else stack_models(members)).train()
    _, take_step, drawn = make_step(runs, model, build_optimizer(config.train.optimizer, model), device)
    closing.enter_context(closing_workers(drawn))
    numbers = itertools.count()

    def step() -> None:
        values = take_step(next(numbers))
        if take_step.reads_host:  # the training loop reads the losses of such a step
            values.tolist()

    return step


def _work_of_step(config: RunConfig) -> _Work:
    """Return the work of a step of one model: the mean over some batches."""
    model, data = new_model(config, 0, "cpu"), training_data(config, 0, "cpu")
    objectives = resolve_objectives(config.train.objectives, model)
    batches = [data.batch(number) for number in range(_BATCHES)]
    counted = [step_flops(model, batch, objectives) for batch in batches]
    known = [count for count in counted if count is not None]
    return _Work(
        tokens=fmean(float((batch.sample.num_tokens - 1).sum()) for batch in batches),
        flops=fmean(known) if len(known) == len(counted) else None,
    )


def has_counterpart(config: RunConfig) -> bool:
    """Return whether Hugging Face has the model of a recipe."""
    model = new_model(config, 0, "cpu")
    try:
        return isinstance(model, Transformer) and bool(family_of(model))
    except BadInput:
        return False


def _rival_row(measured: BenchRecipe, form: str, device: str, work: _Work) -> _Row:
    """Return a row of Hugging Face's model: its batch lies ready, and its loss is on all tokens."""
    config = measured.config
    model = new_model(config, 0, device)
    assert isinstance(model, Transformer)
    tokens = training_data(config, 0, device).batch(0).sample.tokens[:, :-1]
    wait_for(device)
    begun = time.perf_counter()
    step = rivals.training_step(form, model, tokens, bf16=config.train.precision == "bf16")
    step()
    wait_for(device)
    return _Row(measured.name, rivals.TRAINING[form], 1, step, work, time.perf_counter() - begun)


def steps_of_round(step: Callable[[], object], window: float, wait: Callable[[], None]) -> int:
    """Warm up, and return a number of steps that takes at least `window` seconds."""
    for _ in range(3):
        step()
    count = 1
    while True:
        wait()
        begun = time.perf_counter()
        for _ in range(count):
            step()
        wait()
        seconds = time.perf_counter() - begun
        if seconds >= window:
            return math.ceil(count / _TOGETHER) * _TOGETHER if count > _TOGETHER else count
        count = max(2 * count, min(16 * count, int(1.2 * window * count / max(seconds, 1e-9))))


def _repeat(step: Callable[[], object], count: int) -> None:
    for _ in range(count):
        step()


def _title(recipe: str, models: int, side: str) -> str:
    return f"{recipe}, {f'{models} x ' if models > 1 else ''}{side}"


def _compare(rows: Sequence[_Row], timings: Sequence[Timing], peak: Peak) -> list[RecipeRow]:
    """Return the rows with rates.  The tokens of a timing are the steps of a round."""
    alone = {
        row.recipe: timing for row, timing in zip(rows, timings, strict=True) if row.models == 1 and row.side == OURS
    }
    found = []
    for row, timing in zip(rows, timings, strict=True):
        one, flops = alone.get(row.recipe), row.work.flops
        ratios = []
        if one is not None and one is not timing:
            pairs = zip(timing.seconds, one.seconds, strict=True)
            ratios = [row.models * (timing.tokens / mine) / (one.tokens / other) for mine, other in pairs]
        found.append(
            RecipeRow(
                recipe=row.recipe,
                side=row.side,
                models=row.models,
                steps_per_second=timing.rate,
                slowest=timing.slowest,
                fastest=timing.fastest,
                rounds=len(timing.seconds),
                model_steps_per_second=row.models * timing.rate,
                ratio=median(ratios) if ratios else None,
                ratio_lowest=min(ratios) if ratios else None,
                ratio_highest=max(ratios) if ratios else None,
                tokens_per_second=row.models * row.work.tokens * timing.rate,
                floor_share=None if flops is None else row.models * flops * timing.rate / peak.flops,
                seconds_to_first_step=row.seconds_to_first_step,
            )
        )
    return found
