"""How a trained model errs at its training lengths, and what that makes of longer ones."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from longreach.diagnosis.estimates import Estimate, share
from longreach.diagnosis.findings import OWN, Diagnosis, Forecast
from longreach.diagnosis.growth import extend
from longreach.diagnosis.models import losses
from longreach.evaluation import judge
from longreach.model import Model
from longreach.objectives import token_targets
from longreach.positions.ids import IdPolicy
from longreach.seeding import stream
from longreach.tasks import Sample, Task


def rungs(longest: int, target: int) -> list[int]:
    """Lengths from the longest trained to the target, each about 1.4 times the one before."""
    steps = max(1, round(2 * math.log2(target / longest)))
    return sorted({round(longest * (target / longest) ** (step / steps)) for step in range(steps + 1)})


class MeasuredErrors(NamedTuple):
    """What a model does at one length."""

    length: int
    losses: Float[Tensor, "n"]
    hits: int
    wrong_tokens: int
    answers: Int[Tensor, "m"]
    """All tokens of all answers."""


def measure_errors(
    model: Model,
    task: Task,
    policy: IdPolicy,
    lengths: list[int],
    samples: int,
    seed: int,
    report: Callable[[int, str], None] = lambda done, note: None,
) -> list[MeasuredErrors]:
    found = []
    report(0, "")
    for done, length in enumerate(lengths, start=1):
        draws = stream(seed, f"diagnose errors/{length}", torch.arange(samples))
        sample = _distinct(task.sample(torch.full((samples,), length), draws, length))
        ids = policy.evaluation_ids(task, sample, draws.rows(0, len(sample.tokens)).child("ids"))
        judged = judge(model, sample, ids)
        right = judged.exact_with_ids if model.position_head is not None else judged.exact
        answers = sample.tokens[:, 1:][token_targets(sample)]
        wrong = int((judged.answer_tokens - judged.right_tokens).sum())
        found.append(MeasuredErrors(length, losses(model, sample, ids), int(right.sum()), wrong, answers))
        report(done, f"length {length}")
    return found


def _distinct(sample: Sample) -> Sample:
    """Rows of a file once each: drawing one again says nothing new."""
    if "number" not in sample.hidden:
        return sample
    seen = {int(number): row for row, number in enumerate(sample.hidden["number"])}
    keep = torch.tensor(sorted(seen.values()))
    return sample.map(lambda tensor: tensor[keep])


def make_forecast(errors: list[MeasuredErrors], found: Diagnosis, seed: int) -> tuple[dict[int, Forecast], list[str]]:
    """Losses beyond training, and exact match as if the answer's tokens erred independently."""
    frequency = torch.bincount(torch.cat([part.answers for part in errors])).double()
    chance = 1 - float(((frequency / frequency.sum()) ** 2).sum())
    if chance == 0:
        return {}, ["all answers are the same token: there is nothing to forecast"]
    longest = max(part.length for part in errors)
    limit = _limit(found, longest)
    asked = [length for length in rungs(longest, found.target) if length <= limit]
    # the size of an answer goes on as it does: level, or on a line
    sizes = torch.tensor([[1.0, part.length, len(part.answers) / len(part.losses)] for part in errors])
    line = torch.linalg.lstsq(sizes[:, :2], sizes[:, 2:]).solution[:, 0].tolist()
    by_length = {part.length: part.losses for part in errors}
    forecast = {}
    for length, loss in extend(by_length, chance, asked, seed).items():
        size = max(1.0, line[0] + line[1] * length)
        wrong = [min(1.0, a * b) for a, b in zip(_wrong_per_loss(errors), loss, strict=True)]
        exact, best, worst = ((1 - part) ** size for part in wrong)
        forecast[length] = Forecast(loss, Estimate(exact, worst, best))
    seen = sum(len(part.losses) for part in errors)
    lines = [
        "the forecast extends how errors grow within training, and says nothing about a break, or about failures in"
        f" fewer than {3 / seen:.1g} of samples"
    ]
    fitted = extend(by_length, chance, list(by_length), seed)
    stray = [length for length, values in by_length.items() if float(values.mean()) > 3 * fitted[length].high]
    if stray:
        lines.append(f"losses at {', '.join(map(str, stray))} are far above the line that the others make")
    if limit < found.target:
        lines.append(f"no forecast beyond {limit}: the model's own IDs do not cover what is needed there")
    return forecast, lines


def _wrong_per_loss(errors: list[MeasuredErrors]) -> Estimate:
    """Wrong tokens for each unit of loss: a token may be right with a probability below 1, and is wrong at most twice
    as often as the loss says."""
    tokens = sum(len(part.answers) for part in errors)
    loss = sum(float(part.losses.mean()) * len(part.answers) for part in errors) / tokens
    wrong = share(sum(part.wrong_tokens for part in errors), tokens)
    return Estimate(*(min(2.0, value / max(loss, 1e-300)) for value in wrong))


def _limit(found: Diagnosis, longest: int) -> int:
    """Up to where training covers what is needed under the model's own IDs; what happens from half to whole is taken
    to happen again."""
    own = next(report for report in found.schemes if report.scheme == OWN)
    if own.covered_to == found.long_at:
        return found.target
    return max(longest, own.covered_to)
