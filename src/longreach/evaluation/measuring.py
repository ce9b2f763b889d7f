"""Measure attention on the true dependencies and margins of predicted IDs, in one pass under the true prefix."""

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor

from longreach.config.spans import Lengths
from longreach.errors import BadInput
from longreach.evaluation.attention_mass import Mass, MassHook, StepNeeds, join, mass_of
from longreach.evaluation.controls import spoil
from longreach.evaluation.evaluate import Cell, EvalConfig, batches_of, draw_samples
from longreach.evaluation.look_inside import hooked, id_levels, mixers_of
from longreach.evaluation.margins import margins_of_ids, margins_of_tokens
from longreach.evaluation.measures import ChosenHead, Measure, MeasureName
from longreach.model import RESERVED, Model
from longreach.positions.ids import IdPolicy
from longreach.tasks import Sample, Task

CHOICE_SAMPLES = 256
"""Samples on which the best head is chosen."""
PAIRS = 1 << 25
"""Pairs of tokens of a batch, whose dependencies are held at once."""
MarginsByLevel: TypeAlias = dict[str | None, list[Float[Tensor, "_ _"]]]
"""Margins of steps by the level of IDs, or None for tokens; a tensor for each batch, NaN where no step counts."""


@dataclass(frozen=True)
class Found:
    """Values of a cell or of a batch of it, on the CPU."""

    mass: Mass | None
    margins: MarginsByLevel


def inapplicable(
    model: Model, task: Task, policy: IdPolicy, config: EvalConfig, names: Sequence[MeasureName], trained_to: int
) -> dict[str, str]:
    """Return the reason of each measure that does not apply to a model or its task."""
    if task.open_ended:
        reason = f"{task.name} has no right answers, only more or less likely ones"
        return dict.fromkeys(names, reason)
    reasons: dict[str, str] = {}
    if "mass" in names:
        sample = draw_samples(policy, Cell(task, trained_to, {}), config, 0, 1, str(model.embed.weight.device))[0]
        try:
            mixers_of(model)
            task.depends_on(sample)
        except BadInput as error:
            reasons["mass"] = str(error)
    if "margin" in names and model.position_head is None:
        reasons["margin"] = f"IDs {policy.name} are not predicted"
    return reasons


def measure_batch(
    model: Model,
    task: Task,
    policy: IdPolicy,
    sample: Sample,
    ids: Int[Tensor, "b g t"],
    names: Sequence[MeasureName],
    reserved: int = RESERVED,
) -> Found:
    """Measure a batch in one forward pass in fp32."""
    model.check_ids(ids)
    read = sample.tokens[:, :-1]
    hook = MassHook(StepNeeds.of(task, sample)) if "mass" in names else None
    with torch.no_grad(), torch.autocast(ids.device.type, enabled=False):
        with nullcontext() if hook is None else hooked(model, hook):
            hidden = model(read, ids[:, :, :-1])
        past = model.past(hidden, read) if model.looks_back else None
        margins: MarginsByLevel = {}
        if "margin" in names and past is not None:
            levels = [level.name for level in id_levels(task, policy)]
            by_level = margins_of_ids(model, sample, ids, hidden, past, reserved)
            margins = {name: [one] for name, one in zip(levels, by_level, strict=True)}
        if "token_margin" in names:
            margins[None] = [margins_of_tokens(model, sample, hidden, past)]
    return Found(None if hook is None else mass_of(hook), margins)


def measure_cell(
    model: Model,
    policy: IdPolicy,
    cell: Cell,
    config: EvalConfig,
    names: Sequence[MeasureName],
    device: str,
    batch_tokens: int,
    progress: Callable[[int], None] = lambda samples: None,
) -> Found:
    """Measure the samples of a cell, which are those of the test; `progress` is called with samples done."""
    plain = replace(config, encoding=None)
    exchanged = nullcontext() if config.encoding is None else model.exchange_encoding(config.encoding)
    spoilt = spoil(policy, config.control)
    tokens = cell.task.max_tokens(cell.length)
    model.check_shift(config.shift)
    spoilt.check_test(cell.task, tokens)
    masses: list[Mass] = []
    margins: MarginsByLevel = {}
    done = 0
    with exchanged:
        for start, size in batches_of(cell, plain, min(batch_tokens, max(1, PAIRS // tokens))):
            sample, ids, _ = draw_samples(spoilt, cell, plain, start, size, device)
            found = measure_batch(model, cell.task, policy, sample, ids, names, RESERVED + config.shift)
            masses += [] if found.mass is None else [found.mass]
            for name, batches in found.margins.items():
                margins.setdefault(name, []).extend(batches)
            done += size
            progress(done)
    return Found(join(masses) if masses else None, margins)


def choose_heads(
    model: Model, task: Task, policy: IdPolicy, seed: int, trained_to: int, device: str, batch_tokens: int
) -> list[ChosenHead]:
    """Return the heads with the most attention on the dependencies at the longest training length.

    The samples are not those of a test with this seed, and IDs and encoding are the trained ones.  So the choice is the
    same for every test of a model.  Where steps have several dependencies, a head is chosen for each of the first few.
    """
    other = seed ^ 1
    config = EvalConfig(lengths=Lengths((trained_to,)), samples=CHOICE_SAMPLES, free_samples=0, seed=other)
    cell = Cell(task, trained_to, {})
    mass = measure_cell(model, policy, cell, config, ("mass",), device, batch_tokens).mass
    assert mass is not None
    kinds = range(mass.steps.shape[1]) if bool(mass.steps[:, 2].any()) else range(1)
    chosen = []
    for kind in kinds:
        counted = mass.steps[:, kind] > 0
        if not bool(counted.any()):
            continue
        means = mass.mean[counted][..., kind].mean(0)
        layer, head = divmod(int(means.argmax()), means.shape[1])
        of_best = min(1.0, float(means[layer, head]))
        chosen.append(
            ChosenHead(
                dependency=kind or None,
                layer=layer,
                head=head,
                mean=of_best,
                length=trained_to,
                samples=int(counted.sum()),
                seed=other,
            )
        )
    return chosen


def measures_of_cell(
    found: Found, cell: Cell, config: EvalConfig, chosen: Sequence[ChosenHead], origin: dict[str, Any]
) -> list[Measure]:
    """Return the entries of a cell: every head for the sum over all dependencies, chosen heads for each of them.

    `origin` has the fields that say where the entries come from: device, commit and date.
    """
    shared = {"length": cell.length, "overrides": cell.overrides, "ids": config.test_ids(), "test_seed": config.seed}
    shared |= origin
    entries = []
    if found.mass is not None:
        _, layers, heads, _ = found.mass.mean.shape
        wanted = [(layer, head, 0) for layer in range(layers) for head in range(heads)]
        wanted += [(one.layer, one.head, one.dependency) for one in chosen if one.dependency is not None]
        entries += [entry for one in wanted if (entry := _mass_entry(found.mass, *one, shared)) is not None]
    for level, batches in found.margins.items():
        entry = _margin_entry(batches, level, shared)
        entries += [] if entry is None else [entry]
    return entries


def _mass_entry(mass: Mass, layer: int, head: int, kind: int, shared: dict[str, Any]) -> Measure | None:
    """Return the entry of a head; None if no step counts."""
    counted = mass.steps[:, kind] > 0
    if not bool(counted.any()):
        return None
    return Measure(
        measure="mass",
        layer=layer,
        head=head,
        dependency=kind or None,
        **_over_samples(mass.mean[counted, layer, head, kind], mass.lowest[counted, layer, head, kind]),
        steps=int(mass.steps[counted, kind].sum()),
        even=min(1.0, float(mass.even[counted, kind].mean())),
        **shared,
    )


def _margin_entry(batches: list[Float[Tensor, "_ _"]], level: str | None, shared: dict[str, Any]) -> Measure | None:
    """Return the entry of a level of IDs, or of tokens; None if no step counts."""
    rows = [row[~row.isnan()] for batch in batches for row in batch]
    rows = [row for row in rows if len(row)]
    if not rows:
        return None
    steps = torch.cat(rows)
    return Measure(
        measure="token_margin" if level is None else "margin",
        level=level,
        **_over_samples(torch.stack([row.double().mean() for row in rows]), torch.stack([row.min() for row in rows])),
        steps=len(steps),
        low_quantile=float(steps.kthvalue(max(1, math.ceil(0.01 * len(steps)))).values),
        not_ahead=int((steps <= 0).sum()),
        **shared,
    )


def _over_samples(means: Float[Tensor, "n"], lowest: Float[Tensor, "n"]) -> dict[str, Any]:
    means = means.double()
    return {
        "mean": float(means.mean()),
        "deviation": float(means.std()) if len(means) > 1 else None,
        "lowest": float(lowest.double().mean()),
        "samples": len(means),
    }
