"""Exact match in one forward pass.

Where answers are unique and IDs are functions of the prefix, the greedy answer is right if and only if every
answer token is right when the true prefix is given.  So one pass scores what would take a pass per token.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from longreach.decode import generate
from longreach.model import Transformer
from longreach.positions.ids import IdPolicy
from longreach.tasks import Sample, Task

NEAR_TIE = 1e-4
"""Top two logits closer than this may fall either way under another order of summation."""


@dataclass(frozen=True)
class Judged:
    """What one pass with the true prefix says about each sample."""

    exact: Bool[Tensor, "b"]
    right_tokens: Int[Tensor, "b"]
    answer_tokens: Int[Tensor, "b"]
    margin: Float[Tensor, "b"]
    """Smallest distance between the two largest logits over the answer."""


@torch.no_grad()
def judge(model: Transformer, sample: Sample, ids: Int[Tensor, "b g t"]) -> Judged:
    """Every answer token given the true prefix, in fp32."""
    model.check_ids(ids)
    hidden = model(sample.tokens[:, :-1], ids[:, :, :-1])
    wanted = (sample.answer & ~sample.given)[:, 1:]
    top = model.logits(hidden[wanted]).float().topk(2, dim=-1)
    hit = torch.zeros_like(wanted)
    hit[wanted] = top.indices[:, 0] == sample.tokens[:, 1:][wanted]
    margin = torch.full(wanted.shape, torch.inf, device=wanted.device)
    margin[wanted] = top.values[:, 0] - top.values[:, 1]
    return Judged((hit | ~wanted).all(1), hit.sum(1), wanted.sum(1), margin.amin(1))


def free_running_exact(model: Transformer, task: Task, policy: IdPolicy, sample: Sample) -> Bool[Tensor, "b"]:
    """Whether the model, left alone with the prompt, writes the whole answer and ends it itself."""
    generated = generate(model, task, policy, sample)
    return ((generated.tokens == sample.tokens) | ~sample.answer).all(1) & generated.stopped
