"""Greedy generation with a cache: the model reads a prompt and writes until its own stop token."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from longreach.errors import BadInput
from longreach.model import Transformer
from longreach.positions.ids import IdPolicy
from longreach.tasks import Sample, Task


@dataclass(frozen=True)
class Generated:
    """The whole sequences, prompts included; after the stop token there is padding."""

    tokens: Int[Tensor, "b t"]
    stopped: Bool[Tensor, "b"]
    """Whether the model ended the answer itself, with room to spare or exactly."""


@torch.no_grad()
def generate(model: Transformer, task: Task, policy: IdPolicy, sample: Sample, use_cache: bool = True) -> Generated:
    """Answer every prompt of a batch; prompts may differ in length.

    Nothing of the answers is seen: they are erased first, but for tokens marked as given.  The budget of a row
    is the sample's own size: an answer that is longer is wrong in any case.  `use_cache=False` reads everything
    again for each token: slow, and the reference that the cache is tested against.
    """
    if not policy.serves_generation(task):
        raise BadInput(f"{policy.name} reads the IDs of {task.name} off the true answer: it cannot generate")
    prompt = sample.prompt_only()
    ids = policy.evaluation_ids(task, prompt)
    model.check_ids(ids)
    tokens, rows = prompt.tokens.clone(), torch.arange(len(prompt.tokens), device=prompt.tokens.device)
    width = tokens.shape[1]
    reading = int(prompt.prompt_tokens.max())
    budget = int((prompt.num_tokens - prompt.prompt_tokens).max())
    at = prompt.prompt_tokens.clone()  # the index each row writes next
    finished = at >= prompt.num_tokens
    stopped = torch.zeros_like(finished)

    cache = None
    if use_cache:
        cache = model.new_cache(len(tokens), slots=reading + budget)
        hidden = model(tokens[:, :reading], ids[:, :, :reading], cache)
        cache.advance(prompt.prompt_tokens)
        hidden = hidden[rows, at - 1]
    for _ in range(budget):
        if cache is None:
            hidden = model(tokens, ids)[rows, at - 1]
        new = model.logits(hidden).argmax(-1)
        here = at.clamp(max=width - 1)
        new = torch.where(prompt.given[rows, here], prompt.tokens[rows, here], new)
        tokens[rows, here] = torch.where(finished, tokens[rows, here], new)
        if task.stop_token is not None:
            stopped |= ~finished & (new == task.stop_token)
        finished = finished | stopped | (at + 1 >= prompt.num_tokens)
        if bool(finished.all()):
            break
        if cache is not None:
            # a finished row reads its last token again into the same slot: harmless, and shapes stay fixed
            hidden = model(tokens[rows, here][:, None], ids[rows, :, here][:, :, None], cache)[:, 0]
            cache.advance((~finished).long())
        at = torch.where(finished, at, at + 1)
    if task.stop_token is None:
        stopped = torch.ones_like(stopped)
    return Generated(tokens, stopped)


def answers(generated: Generated, task: Task, sample: Sample) -> list[list[int]]:
    """The generated tokens of each row, up to the stop token or the end of the budget."""
    found = []
    for row, start, end in zip(generated.tokens.tolist(), sample.prompt_tokens, sample.num_tokens, strict=True):
        answer = row[int(start) : int(end)]
        if task.stop_token in answer:
            answer = answer[: answer.index(task.stop_token) + 1]
        found.append(answer)
    return found
