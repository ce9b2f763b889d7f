"""Table heads fitted by gradient descent."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from longreach.seeding import generator, stream
from longreach.theory.heads import SparseHead, word_mass
from longreach.theory.laws import PlantedTask
from longreach.theory.types import Types


@dataclass(frozen=True, eq=False)
class Fitted:
    head: SparseHead
    losses: list[float]
    """Cross-entropy of each step."""


def fit_head(
    task: PlantedTask,
    types: Types,
    lengths: Sequence[int],
    *,
    steps: int = 600,
    batch: int = 256,
    rate: float = 0.1,
    seed: int = 0,
) -> Fitted:
    """Fit a = exp(table) and g = softmax(table) by Adam on the cross-entropy, which is at least the error.

    Each step takes one of the lengths and fresh samples.  The rate falls linearly to 0 over the second half, so
    that the weights may first grow as far apart as they need to.  Tables start near 0: all sets alike.
    """
    if not lengths:
        raise ValueError(f"lengths must not be empty, got {list(lengths)}")
    if min(steps, batch) < 1 or not rate > 0:
        raise ValueError(f"steps, batch and rate must be positive, got {steps}, {batch} and {rate}")
    num_words = task.vocab_size**task.k
    source = generator(seed, "theory fit")
    shapes = (types.num_types(max(lengths)), num_words), (num_words, task.num_classes)
    log_a, logits = (
        (0.01 * torch.randn(shape, generator=source, dtype=torch.float64)).requires_grad_() for shape in shapes
    )
    optimizer = torch.optim.Adam([log_a, logits], lr=rate, betas=(0.9, 0.99))
    chosen = stream(seed, "theory fit lengths", torch.arange(1)).below("length", len(lengths), steps)[0].tolist()
    losses = []
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = rate * min(1.0, 2 * (1 - step / steps))
        draws = stream(seed, "theory fit samples", torch.arange(step * batch, (step + 1) * batch))
        tokens, labels, _ = task.sample(lengths[chosen[step]], draws)
        mass = word_mass(types, log_a.exp(), task.vocab_size, tokens)
        right = (mass * logits.softmax(1).T[labels]).sum(1)
        loss = (mass.sum(1).log() - right.log()).mean()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(float(loss.detach()))
    with torch.no_grad():
        return Fitted(SparseHead(types, log_a.exp(), logits.softmax(1)), losses)
