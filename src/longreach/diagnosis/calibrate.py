"""How often a diagnosis is right: planted tasks with known k, span and look-alikes, heads of the theory fitted to them,
and what the probe and the extrapolation say of these heads."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from longreach.diagnosis.estimates import Estimate, over_samples
from longreach.diagnosis.growth import extend
from longreach.diagnosis.needs import most
from longreach.diagnosis.probe import CHANGE, influence
from longreach.seeding import stream
from longreach.theory import GapTypes, PlantedTask, TheoryHead, err_mc, fit_head
from longreach.theory.instances import parity_task

_ROWS = 48  # samples that the probe looks at, of each length
_SAMPLES = 512  # samples of each length that losses are measured on
FAR = (2, 4, 16)
"""Times the longest training length, at which losses are forecast."""


@dataclass(frozen=True)
class Case:
    """One planted task, what is true of it and what was found."""

    k: int
    w: int
    rho: float
    """Probability that a background token looks like a planted one."""
    found_k: Estimate
    span: float
    """The span that nine in ten planted sets do not exceed."""
    found_span: Estimate
    trained_loss: float
    """Of the fitted head at the longest training length."""
    measured: dict[int, float]
    """Losses at longer lengths."""
    forecast: dict[int, Estimate]

    @property
    def right_k(self) -> bool:
        return self.found_k.value == self.k

    @property
    def right_span(self) -> bool:
        return abs(self.found_span.value - self.span) <= 1

    def within(self, length: int) -> bool:
        """Whether the measured loss is in the forecast's interval."""
        return self.forecast[length].low <= self.measured[length] <= self.forecast[length].high


def calibrate(cases: int, seed: int, progress: Callable[[int, str], None] = lambda done, note: None) -> Iterator[Case]:
    """Fresh tasks: k from 1 to 4, w from k to 8, look-alikes none, one or three in a hundred."""
    draws = stream(seed, "diagnose calibrate", torch.arange(cases))
    for number in range(cases):
        k = 1 + number % 4
        w = k + int(draws.below("w", 9 - k, 1)[number])
        rho = (0.0, 0.01, 0.03)[int(draws.below("rho", 3, 1)[number])]
        progress(number, f"k {k}, w {w}, look-alikes {rho}")
        yield _case(k, w, rho, seed * 1000 + number)


def _case(k: int, w: int, rho: float, seed: int) -> Case:
    task, types = parity_task(k, w, rho), GapTypes(k, w)
    lengths = [3 * w + 4 * step for step in range(4)]
    head = fit_head(task, types, lengths, seed=seed).head
    sizes, spans, rows = [], [], list[Tensor]()
    for length in lengths[-2:]:
        tokens, _, _ = task.sample(length, stream(seed, f"diagnose probe/{length}", torch.arange(_ROWS)))
        found = influence(_predictor(head), tokens, stream(seed, "diagnose case", torch.arange(_ROWS)))[:, 0] > CHANGE
        sizes.append(found.sum(1).double())
        spans.append(_spans(found))
        rows.append(torch.arange(_ROWS) + len(rows) * _ROWS)
    losses = {length: _losses(head, task, length, seed) for length in lengths}
    far = [factor * lengths[-1] for factor in FAR]
    return Case(
        k,
        w,
        rho,
        over_samples(torch.cat(sizes), torch.cat(rows), torch.median),
        float(most(_true_spans(task, lengths[-1]).double())),
        over_samples(torch.cat(spans).double(), torch.cat(rows), most),
        float(losses[lengths[-1]].mean()),
        {length: err_mc(head, task, length, 2000, seed).mean for length in far},
        extend(losses, 0.5, far, seed),
    )


def _predictor(head: TheoryHead) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda tokens, rows: head.forward(tokens)[:, None]


def _losses(head: TheoryHead, task: PlantedTask, length: int, seed: int) -> Tensor:
    tokens, labels, _ = task.sample(length, stream(seed, f"diagnose errors/{length}", torch.arange(_SAMPLES)))
    return head.loss(tokens, labels)


def _spans(found: Tensor) -> Int[Tensor, "b"]:
    place = torch.arange(found.shape[1])
    last = torch.where(found, place, -1).amax(1)
    first = torch.where(found, place, found.shape[1]).amin(1)
    return (last - first).clamp(min=0)


def _true_spans(task: PlantedTask, length: int) -> Int[Tensor, "n"]:
    _, _, positions = task.sample(length, stream(0, "diagnose spans", torch.arange(4000)))
    return positions.amax(1) - positions.amin(1)
