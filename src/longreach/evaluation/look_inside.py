"""Inside one generation: what each step read and wrote, and which heads looked at the tokens that share its ID.

Fused attention never shows its weights.  So the model generates as usual, then reads what it wrote once more, and the
weights are formed from the queries and keys of that second reading.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from longreach.attention import Attention
from longreach.decoding import answers, generate
from longreach.errors import BadInput
from longreach.model import RESERVED, IdChoice, Model, Past
from longreach.model.position_heads.pointer import Pointer
from longreach.objectives import id_choices
from longreach.positions.encodings import Bias
from longreach.positions.ids import IdPolicy
from longreach.seeding import Draws
from longreach.tasks import Sample, Task

MOST_TOKENS = 4096
"""More are refused: a head's weights grow with the square."""
_HEADS_NAMED = 3
_LIKELIEST = 5
_MOST_ATTENDED = 10


@dataclass(frozen=True)
class Truth:
    """What is known of the right answer to one prompt."""

    answer: list[int] | None
    ids: Int[Tensor, "g t"] | None

    @classmethod
    def of_sample(cls, task: Task, policy: IdPolicy, sample: Sample, draws: Draws | None = None) -> "Truth":
        answer = sample.tokens[0, int(sample.prompt_tokens[0]) : int(sample.num_tokens[0])]
        return cls(answer.tolist(), _test_ids(task, policy, sample, draws))

    @classmethod
    def of_prompt(cls, task: Task, policy: IdPolicy, sample: Sample, draws: Draws | None = None) -> "Truth":
        """Of a prompt typed by a person, which may not decide its answer.  Nobody knows the IDs that a model should
        predict there."""
        try:
            answer = task.solve(sample, 0)
        except BadInput:
            answer = None
        predicts = policy.supplier(task) == "model"
        return cls(answer, None if predicts else _test_ids(task, policy, sample, draws))


def _test_ids(task: Task, policy: IdPolicy, sample: Sample, draws: Draws | None) -> Int[Tensor, "g t"]:
    """Return the IDs that `generate` uses with the same draws."""
    return policy.evaluation_ids(task, sample, None if draws is None else draws.child("ids"))[0].cpu()


@dataclass(frozen=True)
class Pointed:
    """Where a pointer head points for one level of IDs."""

    index: int | None
    """The token whose ID is copied; None for the reserved ID."""
    move: int
    """Steps by which the copied ID is moved."""
    probability: float


@dataclass(frozen=True)
class HeadAttention:
    """One attention head in one step.  Layers and heads are counted from 0."""

    layer: int
    head: int
    mass: float
    """Attention on the earlier tokens that share the ID of the token the step starts from."""


@dataclass(frozen=True)
class GeneratedStep:
    """One answer step: it starts from a token that was read and writes the next one."""

    number: int
    """Counted from 0."""
    index: int
    """Place of the token that the step starts from."""
    reads: str
    read_ids: list[int]
    writes: str
    given: bool
    """Whether the token written was handed to the model."""
    token_probability: float
    true_token: str | None
    ids: list[int] | None
    """Of the token written, one per level; None for the last token, which is never read."""
    id_probability: float | None
    """Of these IDs, where the model predicts them."""
    true_ids: list[int] | None
    points_at: list[Pointed]
    """One per level that grows, where a pointer predicts the IDs."""
    shares_id_with: list[int]
    """Places of the earlier tokens that have the same IDs as the token the step starts from."""
    heads: list[HeadAttention]
    """Those with the most attention on these tokens."""

    @property
    def wrong_token(self) -> bool:
        return self.true_token is not None and self.writes != self.true_token

    @property
    def wrong_id(self) -> bool:
        return self.ids is not None and self.true_ids is not None and self.ids != self.true_ids


@dataclass(frozen=True)
class Inside:
    """One generation, opened up."""

    words: list[str]
    """All tokens, the prompt's and those written."""
    prompt_tokens: int
    ids: Int[Tensor, "g read"]
    """Under which the tokens were read; the last one written is not."""
    predicts_ids: bool
    stopped: bool
    true_answer: list[str] | None
    knows_ids: bool
    """Whether the true IDs are known."""
    steps: list[GeneratedStep]
    weights: Float[Tensor, "layers heads steps read"]
    """Attention of each step on the tokens read so far."""
    token_probabilities: Float[Tensor, "steps vocabulary"]
    id_choices: list[IdChoice]
    """One per level, where the model predicts IDs."""

    @property
    def right(self) -> bool | None:
        """Whether the answer is, where the truth is known."""
        if self.true_answer is None:
            return None
        return self.stopped and self.words[self.prompt_tokens :] == self.true_answer

    @property
    def first_error(self) -> tuple[int, str] | None:
        """The first step that went wrong, and which of `token` and `ID` did.  Where both are wrong it is the token:
        the ID is chosen after it."""
        for step in self.steps:
            if step.wrong_token or step.wrong_id:
                return step.number, "token" if step.wrong_token else "ID"
        return None


@torch.no_grad()
def look_inside(
    model: Model, task: Task, policy: IdPolicy, sample: Sample, truth: Truth, draws: Draws | None = None
) -> Inside:
    """Let the model answer the one prompt of `sample`, and open up every step.

    A policy that draws the IDs of tests needs `draws`, the same as `truth` was made with.
    """
    if int(sample.prompt_tokens[0]) > MOST_TOKENS:  # before anything is generated
        raise _too_many(int(sample.prompt_tokens[0]))
    generated = generate(model, task, policy, sample, draws=draws)
    assert generated.ids is not None
    answer, start = answers(generated, task, sample)[0], int(sample.prompt_tokens[0])
    read = start + len(answer) - 1  # the last token written is never read
    if read > MOST_TOKENS:
        raise _too_many(read)
    tokens, ids = generated.tokens[:, : read + 1], generated.ids[:, :, : read + 1]
    hidden, weights = watch(model, tokens[:, :-1], ids[:, :, :-1], first=start - 1)
    past = model.past(hidden, tokens[:, :-1])
    visible = torch.arange(start, read + 1, device=ids.device)[None]
    probabilities = model.logits(hidden[:, start - 1 :], visible, past)[0].float().softmax(-1).cpu()
    predicts = policy.supplier(task) == "model"
    growing = torch.tensor([size == 0 for size in policy.level_sizes(task)])
    inside = Inside(
        words=task.words(tokens[0].tolist()),
        prompt_tokens=start,
        ids=ids[0, :, :-1].cpu(),
        predicts_ids=predicts,
        stopped=bool(generated.stopped[0]),
        true_answer=None if truth.answer is None else task.words(truth.answer),
        knows_ids=truth.ids is not None,
        steps=[],
        weights=weights,
        token_probabilities=probabilities,
        id_choices=_id_choices(model, sample, tokens, ids, hidden, past) if predicts else [],
    )
    given = sample.given[0].tolist()
    written = [
        _step(inside, truth, number, token, given[start + number], growing, model)
        for number, token in enumerate(answer)
    ]
    return replace(inside, steps=written)


def _too_many(tokens: int) -> BadInput:
    return BadInput(f"{tokens} tokens are too many to look inside: at most {MOST_TOKENS}")


def _id_choices(
    model: Model,
    sample: Sample,
    tokens: Int[Tensor, "1 t"],
    ids: Int[Tensor, "1 g t"],
    hidden: Float[Tensor, "1 s w"],
    past: Past,
) -> list[IdChoice]:
    """Per level, what the model could choose from at every step."""
    size = tokens.shape[1]
    written = replace(sample, tokens=tokens, answer=sample.answer[:, :size], given=sample.given[:, :size])
    at = torch.arange(int(sample.prompt_tokens[0]) - 1, size - 1, device=ids.device)[None]
    choices = id_choices(model, written, ids, hidden, at, past)
    return [IdChoice(choice.ids.cpu(), choice.logits.cpu()) for choice in choices]


def watch(
    model: Model, tokens: Int[Tensor, "1 t"], ids: Int[Tensor, "1 g t"], first: int
) -> tuple[Float[Tensor, "1 t w"], Float[Tensor, "layers heads steps t"]]:
    """The hidden states of one sequence, and the attention weights of its tokens from index `first` on."""
    kept = []

    def keep(mix: Attention, seen: tuple[Any, ...], mixed: Tensor) -> None:
        q, k, _, visible, mask, bias = seen
        kept.append(attention_weights(mix, q, k, visible, mask, bias)[0, :, first:].cpu())

    mixers = [module for module in model.modules() if isinstance(module, Attention)]
    if not mixers:
        raise BadInput(f"a {type(model).__name__.lower()} model has no attention to look at")
    hooks = [mix.register_forward_hook(keep) for mix in mixers]
    try:
        hidden = model(tokens, ids)
    finally:
        for hook in hooks:
            hook.remove()
    return hidden, torch.stack(kept)


def attention_weights(
    mix: Attention,
    q: Float[Tensor, "b h q d"],
    k: Float[Tensor, "b h k d"],
    visible: Int[Tensor, "#b q"],
    mask: Bool[Tensor, "b 1 q k"] | None,
    bias: Bias | None,
) -> Float[Tensor, "b h q k"]:
    """By what `mix` weighs the values, given the same arguments."""
    if type(mix).forward is not Attention.forward:
        raise BadInput(f"{type(mix).__name__} mixes values in a way of its own: its weights are not known")
    every_query = slice(0, q.shape[2])
    return mix.weights(q, k, visible, mask, bias, every_query)


def sharing(ids: Int[Tensor, "g t"], index: int, growing: Bool[Tensor, "g"]) -> list[int]:
    """Places of the earlier tokens with the same ID at every level; none for a token that stands nowhere."""
    own = ids[:, index]
    if bool((own[growing] == RESERVED).any()):
        return []
    return [int(place) for place in (ids[:, :index] == own[:, None]).all(0).nonzero()[:, 0]]


def _step(
    inside: Inside, truth: Truth, number: int, token: int, given: bool, growing: Bool[Tensor, "g"], model: Model
) -> GeneratedStep:
    index = inside.prompt_tokens + number - 1
    is_read = index + 1 < inside.ids.shape[1]
    ids = inside.ids[:, index + 1].tolist() if is_read else None
    shared = sharing(inside.ids, index, growing)
    predicted = is_read and inside.predicts_ids
    return GeneratedStep(
        number=number,
        index=index,
        reads=inside.words[index],
        read_ids=inside.ids[:, index].tolist(),
        writes=inside.words[index + 1],
        given=given,
        token_probability=float(inside.token_probabilities[number, token]),
        true_token=_at(inside.true_answer, number),
        ids=ids,
        id_probability=_id_probability(inside.id_choices, number, ids) if predicted and ids is not None else None,
        true_ids=_true_ids(inside, truth, number),
        points_at=_pointed(model, inside.id_choices, number) if predicted else [],
        shares_id_with=shared,
        heads=_heads(inside.weights[:, :, number, shared].sum(-1)) if shared else [],
    )


def _at(words: list[str] | None, number: int) -> str | None:
    return words[number] if words is not None and number < len(words) else None


def _true_ids(inside: Inside, truth: Truth, number: int) -> list[int] | None:
    """Of the token that a step should write; nothing for the last one."""
    if truth.ids is None or (inside.true_answer is not None and number >= len(inside.true_answer) - 1):
        return None
    return truth.ids[:, inside.prompt_tokens + number].tolist()


def _id_probability(choices: list[IdChoice], number: int, ids: list[int]) -> float:
    """Of all levels together: given the state and the token they are chosen independently."""
    total = 0.0
    for choice, chosen in zip(choices, ids, strict=True):
        target = torch.full(choice.logits.shape[:2], chosen)
        total += float(choice.log_probability(target)[0, number])
    return float(torch.tensor(total).exp())


def _pointed(model: Model, choices: list[IdChoice], number: int) -> list[Pointed]:
    head = model.position_head
    if not isinstance(head, Pointer):
        return []
    found = []
    for level in head.growing:
        # candidates are the reserved ID, then every token under the first move, under the second, ...
        probability, best = choices[level].logits[0, number].softmax(-1).max(-1)
        if int(best) == 0:
            found.append(Pointed(None, 0, float(probability)))
            continue
        read = (choices[level].logits.shape[-1] - 1) // len(head.moves)
        move, index = divmod(int(best) - 1, read)
        found.append(Pointed(index, head.moves[move], float(probability)))
    return found


def _heads(mass: Float[Tensor, "layers heads"]) -> list[HeadAttention]:
    top = mass.flatten().topk(min(_HEADS_NAMED, mass.numel()))
    return [
        HeadAttention(*divmod(int(place), mass.shape[1]), float(value))
        for value, place in zip(top.values, top.indices, strict=True)
    ]


@dataclass(frozen=True)
class Detail:
    """More of one step."""

    step: int
    tokens: list[tuple[str, float]]
    """The likeliest tokens and their probabilities."""
    ids: list[list[tuple[int, float]]]
    """Per level the likeliest IDs and their probabilities, where the model predicts them."""
    attended: list[int]
    """Places of the tokens that any head attends to most, in their order."""
    weights: list[list[list[float]]]
    """Per layer and head the attention on these tokens."""


def detail(inside: Inside, task: Task, number: int) -> Detail:
    if not 0 <= number < len(inside.steps):
        raise BadInput(f"there is no step {number}: the answer has steps 0..{len(inside.steps) - 1}")
    step, probabilities = inside.steps[number], inside.token_probabilities[number]
    top = probabilities.topk(min(_LIKELIEST, len(probabilities)))
    weights = inside.weights[:, :, number, : step.index + 1]
    most = weights.amax((0, 1)).topk(min(_MOST_ATTENDED, step.index + 1)).indices.sort().values
    return Detail(
        step=number,
        tokens=list(zip(task.words(top.indices.tolist()), top.values.tolist(), strict=True)),
        ids=[_likeliest_ids(choice, number) for choice in inside.id_choices] if step.ids is not None else [],
        attended=most.tolist(),
        weights=weights[:, :, most].tolist(),
    )


def _likeliest_ids(choice: IdChoice, number: int) -> list[tuple[int, float]]:
    """Several candidates may stand for one ID: their probabilities add up."""
    probability = choice.logits[0, number].softmax(-1)
    ids, which = choice.ids.expand(choice.logits.shape)[0, number].unique(return_inverse=True)  # type: ignore[no-untyped-call]
    summed = torch.zeros(len(ids)).index_add(0, which, probability)
    top = summed.topk(min(_LIKELIEST, len(ids)))
    return list(zip(ids[top.indices].tolist(), top.values.tolist(), strict=True))
