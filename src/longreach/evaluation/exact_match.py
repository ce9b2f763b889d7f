"""Exact match in one forward pass, and on the model's own.

Where answers are unique and IDs are functions of the prefix, the greedy answer is right if and only if every
answer token is right when the true prefix is given.  So one pass scores what would take a pass per token.  With
predicted IDs, tokens *and* IDs right under the true prefix imply a right answer of the model's own, not the reverse:
a wrong ID may do no harm.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from longreach.decoding import Writing, generate, write_answers
from longreach.model import RESERVED, Model, Past, at_places
from longreach.objectives import id_choices, id_targets, select, token_targets
from longreach.positions.ids import IdPolicy
from longreach.seeding import Draws
from longreach.tasks import Sample, Task

NEAR_TIE = 1e-4
"""Top two logits closer than this may fall either way under another order of summation."""

_PAIRS = 1 << 27
"""Scores of (answer place, token read) that are held at once."""


@dataclass(frozen=True)
class Judged:
    """What one pass with the true prefix says about each sample."""

    exact: Bool[Tensor, "b"]
    right_tokens: Int[Tensor, "b"]
    answer_tokens: Int[Tensor, "b"]
    margin: Float[Tensor, "b"]
    """How close the closest decision of the answer was: the distance of the two largest logits, of tokens or IDs."""
    right_ids: Int[Tensor, "b"]
    predicted_ids: Int[Tensor, "b"]
    """How many IDs were to be predicted: none without a position head."""

    @property
    def exact_with_ids(self) -> Bool[Tensor, "b"]:
        return self.exact & (self.right_ids == self.predicted_ids)

    def tensors(self) -> list[Tensor]:
        return [getattr(self, field.name) for field in fields(self)]

    def map(self, change: Callable[[Tensor], Tensor]) -> "Judged":
        """Apply a function to every tensor."""
        return Judged(*map(change, self.tensors()))


@dataclass(frozen=True)
class Asked:
    """The places after which a token, and the IDs of one, must be predicted; rows that want fewer have others too."""

    tokens: Int[Tensor, "b a"]
    ids: Int[Tensor, "b c"]

    @classmethod
    def of(cls, model: Model, sample: Sample) -> "Asked":
        """Waits for the device, so that nothing has to later."""
        wanted = token_targets(sample)
        tokens, _ = select(wanted, int(wanted.sum(1).max()))
        if model.position_head is None:
            return cls(tokens, tokens[:, :0])
        wanted = id_targets(sample)
        return cls(tokens, select(wanted, int(wanted.sum(1).max()))[0])

    def map(self, change: Callable[[Tensor], Tensor]) -> "Asked":
        """Apply a function to both."""
        return Asked(change(self.tokens), change(self.ids))


@torch.no_grad()
def judge_in_one_pass(
    model: Model, sample: Sample, ids: Int[Tensor, "b g t"], reserved: int = RESERVED, asked: Asked | None = None
) -> Judged:
    """Every answer token, and every ID where the model predicts them, given the true prefix.  In fp32, unless autocast
    says otherwise."""
    asked = asked or Asked.of(model, sample)
    read = sample.tokens[:, :-1]
    wanted, places = token_targets(sample), asked.tokens
    hidden = model(read, ids[:, :, :-1], at=None if model.looks_back else places)
    past = model.past(hidden, read) if model.looks_back else None
    right_tokens = torch.zeros_like(sample.length)
    closest = torch.full(right_tokens.shape, torch.inf, device=right_tokens.device)
    for part in parts_of(places, wanted, copies=max(1, len(model.embed.weight) // wanted.shape[1])):
        at = places[:, part]
        valid = wanted.gather(1, at)
        states = hidden[:, part] if past is None else at_places(hidden, at)
        top = model.logits(states, at + 1, past).float().topk(2, dim=-1)
        right_tokens += (valid & (top.indices[..., 0] == sample.tokens[:, 1:].gather(1, at))).sum(1)
        largest, second = top.values.unbind(-1)
        margin = (largest - second).masked_fill(largest.isinf(), torch.nan)  # nothing follows from an overflow
        margin = margin.masked_fill(~valid, torch.inf)
        closest = closest.minimum(margin.amin(1))
    right_ids = predicted = torch.zeros_like(sample.length)
    if model.position_head is not None and past is not None:
        right_ids, predicted, of_ids = _judge_ids(model, sample, ids, asked.ids, hidden, past, reserved)
        closest = closest.minimum(of_ids)
    answer_tokens = wanted.sum(1)
    exact = right_tokens == answer_tokens
    return Judged(exact, right_tokens, answer_tokens, closest, right_ids, predicted)


def judge(model: Model, sample: Sample, ids: Int[Tensor, "b g t"], reserved: int = RESERVED) -> Judged:
    """Judge a batch in fp32, after a check that the model has an entry for every ID."""
    model.check_ids(ids)
    with torch.autocast(ids.device.type, enabled=False):
        return judge_in_one_pass(model, sample, ids, reserved)


Judge = Callable[[Sample, Tensor, int], Judged]
"""Judges a batch: a sample, its IDs and the reserved ID."""


def plain_judge(model: Model, batches: int) -> Judge:
    """Return `judge` for one model; an engine may judge several batches faster."""
    return partial(judge, model)


def parts_of(places: Int[Tensor, "b a"], wanted: Bool[Tensor, "b t"], copies: int) -> Iterator[slice]:
    """The places of each row, from the first on, in parts: so that a few `copies` of what each of them is scored
    against fit into memory."""
    size = max(1, _PAIRS // (wanted.numel() * copies))
    for start in range(0, places.shape[1], size):
        yield slice(start, start + size)


def _judge_ids(
    model: Model,
    sample: Sample,
    ids: Int[Tensor, "b g t"],
    places: Int[Tensor, "b c"],
    hidden: Float[Tensor, "b s w"],
    past: Past,
    reserved: int,
) -> tuple[Int[Tensor, "b"], Int[Tensor, "b"], Float[Tensor, "b"]]:
    """How many IDs are right, how many there are, and the smallest margin.  A token's IDs at all levels count as
    one."""
    wanted = id_targets(sample)
    right = torch.zeros_like(sample.length)
    closest = torch.full(right.shape, torch.inf, device=right.device)
    for part in parts_of(places, wanted, copies=4):
        at = places[:, part]
        hit = wanted.gather(1, at)
        for level, choice in enumerate(id_choices(model, sample, ids, hidden, at, past, reserved)):
            hit = hit & (choice.best() == ids[:, level, 1:].gather(1, at))
            margin = choice.margin().masked_fill(~wanted.gather(1, at), torch.inf)
            closest = closest.minimum(margin.amin(1))
        right = right + hit.sum(1)
    return right, wanted.sum(1), closest


@dataclass(frozen=True)
class FreeRun:
    """What the model does on its own."""

    exact: Bool[Tensor, "b"]
    """The whole answer is right and the model ended it itself."""
    first_error: Int[Tensor, "b"]
    """The answer's first wrong place, token or ID, counted from 0; -1 where there is none."""
    token_first: Bool[Tensor, "b"]
    """Whether the token is wrong there.  If so its ID, chosen after it, says nothing."""


def run_free(
    model: Model,
    task: Task,
    policy: IdPolicy,
    sample: Sample,
    prompt_ids_only: bool = False,
    shift: int = 0,
    draws: Draws | None = None,
    write: Callable[[Writing], None] = write_answers,
) -> FreeRun:
    """Let the model answer, and compare with the truth.  `draws` numbers the rows, for policies that draw test IDs;
    `write` runs the loop over tokens."""
    generated = generate(
        model, task, policy, sample, draws=draws, prompt_ids_only=prompt_ids_only, shift=shift, write=write
    )
    wrong_token = (generated.tokens != sample.tokens) & sample.answer
    wrong = wrong_token
    if policy.supplier(task) == "model" and generated.ids is not None:
        true_ids = policy.evaluation_ids(task, sample) + shift
        read = torch.nn.functional.pad(id_targets(sample), (1, 0))
        wrong = wrong | ((generated.ids != true_ids).any(1) & read)
    first = wrong.int().argmax(1)  # of the first place that is wrong
    erred = wrong.any(1)
    at = first[:, None]
    return FreeRun(
        exact=~wrong_token.any(1) & generated.stopped,
        first_error=torch.where(erred, first - sample.prompt_tokens, -1),
        token_first=erred & wrong_token.gather(1, at)[:, 0],
    )
