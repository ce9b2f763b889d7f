"""Generation with a cache: the model reads a prompt and writes until its own stop token.

With predicted IDs it writes pairs: a token, then the position ID the token gets, and both are read in the next step.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from longreach.decode.sampling import Sampling
from longreach.errors import BadInput
from longreach.model import RESERVED, Transformer, prompt_ladders
from longreach.positions.ids import IdPolicy
from longreach.seeding import Draws
from longreach.tasks import Sample, Task


@dataclass(frozen=True)
class Generated:
    """The whole sequences, prompts included; after the stop token there is padding."""

    tokens: Int[Tensor, "b t"]
    stopped: Bool[Tensor, "b"]
    """Whether the model ended the answer itself, with room to spare or exactly."""
    ids: Int[Tensor, "b g t"] | None = None
    """The IDs under which the tokens were read; the last token of an answer is never read."""


@torch.no_grad()
def generate(
    model: Transformer,
    task: Task,
    policy: IdPolicy,
    sample: Sample,
    use_cache: bool = True,
    sampling: Sampling | None = None,
    draws: Draws | None = None,
    prompt_ids_only: bool = False,
    shift: int = 0,
) -> Generated:
    """Answer every prompt of a batch; prompts may differ in length.

    Nothing of the answers is seen: they are erased first, but for tokens marked as given.  The budget of a row
    is the sample's own size: an answer that is longer is wrong in any case.  `use_cache=False` reads everything
    again for each token: slow, and the reference that the cache is tested against.  `sampling` needs `draws` that
    number the rows.  Of predicted IDs the likeliest is taken; `prompt_ids_only` allows only those that the prompt has.
    `shift` adds a constant to all IDs, the reserved one included.
    """
    if not policy.serves_generation(task):
        raise BadInput(f"{policy.name} reads the IDs of {task.name} off the true answer: it cannot generate")
    sampling = sampling or Sampling()
    prompt = sample.prompt_only()
    ids = policy.evaluation_ids(task, prompt) + shift
    model.check_ids(ids)
    writer = _IdWriter(model, ids, prompt, prompt_ids_only, shift) if policy.supplier(task) == "model" else None
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
    for step in range(budget):
        if cache is None:
            states = model(tokens, ids)
            hidden = states[rows, at - 1]
        new = sampling.choose(model.logits(hidden), None if draws is None else draws.child(f"step {step}"))
        here = at.clamp(max=width - 1)
        new = torch.where(prompt.given[rows, here], prompt.tokens[rows, here], new)
        tokens[rows, here] = torch.where(finished, tokens[rows, here], new)
        if writer is not None:
            memory, read = (cache.memory, cache.key_ids) if cache is not None else (model.remember(states, tokens), ids)
            columns = cache.columns if cache is not None else width
            chosen = writer.choose(hidden, new, at, memory[:, :columns], read[:, :, :columns])
            ids[rows, :, here] = torch.where(finished[:, None], ids[rows, :, here], chosen)
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
    return Generated(tokens, stopped, ids)


class _IdWriter:
    """Chooses the IDs of the tokens that are written."""

    def __init__(
        self, model: Transformer, ids: Int[Tensor, "b g t"], prompt: Sample, prompt_ids_only: bool, shift: int
    ) -> None:
        if model.position_head is None:
            raise BadInput("predicted IDs need a model with a position head")
        self.model, self.head = model, model.position_head
        self.reserved = torch.full_like(ids[:, :, 0], RESERVED + shift)
        self.ladders = prompt_ladders(ids, prompt.prompt_tokens, self.reserved)
        self.prompt_ids_only = prompt_ids_only

    def choose(
        self,
        hidden: Float[Tensor, "b w"],
        token: Int[Tensor, "b"],
        visible: Int[Tensor, "b"],
        memory: Float[Tensor, "b t m"],
        read: Int[Tensor, "b g t"],
    ) -> Int[Tensor, "b g"]:
        reachable = self.head.reachable(read, self.ladders, self.reserved)
        choices = self.model.choose_ids(
            hidden[:, None], token[:, None], visible[:, None], memory, reachable, self.reserved
        )
        if self.prompt_ids_only:
            choices = [
                choice.only(ladder, self.reserved[:, level])
                for level, (choice, ladder) in enumerate(zip(choices, self.ladders, strict=True))
            ]
        return torch.stack([choice.best()[:, 0] for choice in choices], dim=1)


def answers(generated: Generated, task: Task, sample: Sample) -> list[list[int]]:
    """The generated tokens of each row, up to the stop token or the end of the budget."""
    found = []
    for row, start, end in zip(generated.tokens.tolist(), sample.prompt_tokens, sample.num_tokens, strict=True):
        answer = row[int(start) : int(end)]
        if task.stop_token in answer:
            answer = answer[: answer.index(task.stop_token) + 1]
        found.append(answer)
    return found
