"""Inside one generation: what each step read and wrote, and which heads attend to the tokens that share its ID.

Fused attention never shows its weights.  So the model generates as usual, then reads what it wrote once more, and the
weights are formed from the queries and keys of that second reading.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from longreach.attention import Attention
from longreach.decoding import answers, generate
from longreach.errors import BadInput
from longreach.evaluation.inside import Detail, GeneratedStep, HeadAttention, Inside, LevelStep, Pointed
from longreach.model import RESERVED, IdChoice, Model, Past
from longreach.model.position_heads.pointer import Pointer
from longreach.objectives import id_choices
from longreach.positions.encodings import Bias
from longreach.positions.ids import Coupled, IdPolicy
from longreach.seeding import Draws
from longreach.tasks import Level, Sample, Task

T = TypeVar("T")

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
    depends_on: list[list[int]] | None = None
    """For each token of the answer: places of the tokens that it depends on."""

    @classmethod
    def of_sample(cls, task: Task, policy: IdPolicy, sample: Sample, draws: Draws | None = None) -> "Truth":
        answer = sample.tokens[0, int(sample.prompt_tokens[0]) : int(sample.num_tokens[0])]
        return cls(answer.tolist(), _test_ids(task, policy, sample, draws), _dependencies(task, sample))

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


def _dependencies(task: Task, sample: Sample) -> list[list[int]] | None:
    """Return the dependencies of each answer token; None if the task states none or the sample is too long."""
    start, size = int(sample.prompt_tokens[0]), int(sample.num_tokens[0])
    if size > MOST_TOKENS:
        return None
    try:
        needs = task.depends_on(sample)[0]
    except BadInput:
        return None
    return [needs[index].nonzero()[:, 0].tolist() for index in range(start, size)]


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
    inside = Inside(
        words=task.words(tokens[0].tolist()),
        prompt_tokens=start,
        ids=ids[0, :, :-1].cpu(),
        levels=id_levels(task, policy),
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
    written = [_step(inside, truth, number, token, given[start + number], model) for number, token in enumerate(answer)]
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

    with hooked(model, keep):
        hidden = model(tokens, ids)
    return hidden, torch.stack(kept)


@contextmanager
def hooked(model: Model, keep: Callable[[Attention, tuple[Any, ...], Tensor], None]) -> Iterator[None]:
    """Call `keep` with every attention of a forward pass, its arguments and its output."""
    mixers = mixers_of(model)
    hooks = [mix.register_forward_hook(keep) for mix in mixers]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def mixers_of(model: Model) -> list[Attention]:
    """Return the attentions of a model; raise BadInput if it has none, or one whose weights are not known."""
    mixers = [module for module in model.modules() if isinstance(module, Attention)]
    if not mixers:
        raise BadInput(f"a {type(model).__name__.lower()} model has no attention to look at")
    for mix in mixers:
        _check_weights(mix)
    return mixers


def attention_weights(
    mix: Attention,
    q: Float[Tensor, "b h q d"],
    k: Float[Tensor, "b h k d"],
    visible: Int[Tensor, "#b q"],
    mask: Bool[Tensor, "b 1 q k"] | None,
    bias: Bias | None,
    queries: slice | None = None,
) -> Float[Tensor, "b h _ k"]:
    """Return the weights by which `mix` mixes values, given the same arguments, for some queries or for all."""
    _check_weights(mix)
    # a slice with two ends: of slice(None) a bias would be kept
    return mix.weights(q, k, visible, mask, bias, slice(0, q.shape[2]) if queries is None else queries)


def _check_weights(mix: Attention) -> None:
    if type(mix).forward is not Attention.forward:
        raise BadInput(f"{type(mix).__name__} mixes values in a way of its own: its weights are not known")


def id_levels(task: Task, policy: IdPolicy) -> tuple[Level, ...]:
    """Return the levels of the IDs that a policy assigns."""
    if isinstance(policy, Coupled):
        return task.coupling_levels
    sizes = policy.level_sizes(task)
    names = ["position"] if len(sizes) == 1 else [f"level {number}" for number in range(len(sizes))]
    return tuple(Level(name, size) for name, size in zip(names, sizes, strict=True))


def matching(ids: Int[Tensor, "t"], index: int) -> list[int]:
    """Return the places of the earlier tokens with the same ID at one level; none for the reserved ID."""
    own = ids[index]
    return [] if own == RESERVED else [int(place) for place in (ids[:index] == own).nonzero()[:, 0]]


def sharing(ids: Int[Tensor, "g t"], index: int, growing: Bool[Tensor, "g"]) -> list[int]:
    """Return the places of the earlier tokens with the same ID at every level.

    A token with the reserved ID at a level that grows shares its ID with none.
    """
    own = ids[:, index]
    if bool((own[growing] == RESERVED).any()):
        return []
    return [int(place) for place in (ids[:, :index] == own[:, None]).all(0).nonzero()[:, 0]]


def _step(inside: Inside, truth: Truth, number: int, token: int, given: bool, model: Model) -> GeneratedStep:
    index = inside.prompt_tokens + number - 1
    is_read = index + 1 < inside.ids.shape[1]
    ids = inside.ids[:, index + 1].tolist() if is_read else None
    true_ids = _true_ids(inside, truth, number)
    levels = [_level(inside, model, number, level, index, ids, true_ids) for level in range(len(inside.levels))]
    chosen = [level.id_probability for level in levels if level.id_probability is not None]
    shared = sharing(inside.ids, index, torch.tensor([level.grows for level in inside.levels]))
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
        # given the state and the token, the IDs of all levels are chosen independently
        id_probability=math.prod(chosen) if chosen else None,
        true_ids=true_ids,
        depends_on=_at(truth.depends_on, number),
        levels=levels,
        shares_id_with=shared,
        heads=_heads(inside.weights[:, :, number], shared),
    )


def _level(
    inside: Inside,
    model: Model,
    number: int,
    level: int,
    index: int,
    ids: list[int] | None,
    true_ids: list[int] | None,
) -> LevelStep:
    predicted = ids is not None and inside.predicts_ids
    matches = matching(inside.ids[level], index)
    return LevelStep(
        level=inside.levels[level].name,
        read_id=int(inside.ids[level, index]),
        id=_at(ids, level),
        id_probability=_id_probability(inside.id_choices[level], number, ids[level]) if predicted and ids else None,
        true_id=_at(true_ids, level),
        points_at=_pointed(inside, model, level, number, index) if predicted else None,
        matches=matches,
        heads=_heads(inside.weights[:, :, number], matches),
    )


def _at(items: Sequence[T] | None, number: int) -> T | None:
    return items[number] if items is not None and number < len(items) else None


def _true_ids(inside: Inside, truth: Truth, number: int) -> list[int] | None:
    """Of the token that a step should write; nothing for the last one."""
    if truth.ids is None or (inside.true_answer is not None and number >= len(inside.true_answer) - 1):
        return None
    return truth.ids[:, inside.prompt_tokens + number].tolist()


def _id_probability(choice: IdChoice, number: int, chosen: int) -> float:
    target = torch.full(choice.logits.shape[:2], chosen)
    return float(choice.log_probability(target)[0, number].exp())


def _pointed(inside: Inside, model: Model, level: int, number: int, index: int) -> Pointed | None:
    head, choice = model.position_head, inside.id_choices[level]
    if not isinstance(head, Pointer) or level not in head.growing:
        return None
    # candidates: the reserved ID; every token under the first move, under the second, ...; every move of another level
    probability, best = choice.logits[0, number].softmax(-1).max(-1)
    if int(best) == 0:
        return Pointed(None, 0, float(probability))
    moves = len(head.moves)
    others = [other for other in head.growing if other != level] if head.across_levels else []
    read = (choice.logits.shape[-1] - 1) // moves - len(others)
    move, place = divmod(int(best) - 1, read)
    if move < moves:
        return Pointed(place, head.moves[move], float(probability))
    other, move = divmod(int(best) - 1 - moves * read, moves)
    return Pointed(index, head.moves[move], float(probability), inside.levels[others[other]].name)


def _heads(weights: Float[Tensor, "layers heads read"], places: list[int]) -> list[HeadAttention]:
    """Return the heads with the most attention on the tokens at `places`."""
    if not places:
        return []
    among = weights[:, :, places]
    mass, most = among.sum(-1), among.argmax(-1)
    top = mass.flatten().topk(min(_HEADS_NAMED, mass.numel()))
    found = [divmod(int(place), mass.shape[1]) for place in top.indices]
    return [
        HeadAttention(layer, head, float(mass[layer, head]), places[int(most[layer, head])]) for layer, head in found
    ]


def detail(inside: Inside, task: Task, number: int) -> Detail:
    if not 0 <= number < len(inside.steps):
        raise BadInput(f"there is no step {number}: the answer has steps 0..{len(inside.steps) - 1}")
    step, (tokens, ids) = inside.steps[number], likeliest(inside, task, number)
    weights = inside.weights[:, :, number, : step.index + 1]
    most = weights.amax((0, 1)).topk(min(_MOST_ATTENDED, step.index + 1)).indices.sort().values
    return Detail(
        step=number,
        tokens=tokens,
        ids=ids,
        attended=most.tolist(),
        weights=weights[:, :, most].tolist(),
        matched=[weights[:, :, level.matches].sum(-1).tolist() for level in step.levels],
    )


def likeliest(inside: Inside, task: Task, number: int) -> tuple[list[tuple[str, float]], list[list[tuple[int, float]]]]:
    """Return the likeliest tokens of a step and, per level, its likeliest IDs, with their probabilities.

    Levels are left out where the model predicts no ID.
    """
    probabilities = inside.token_probabilities[number]
    top = probabilities.topk(min(_LIKELIEST, len(probabilities)))
    tokens = list(zip(task.words(top.indices.tolist()), top.values.tolist(), strict=True))
    read = inside.steps[number].ids is not None
    return tokens, [_likeliest_ids(choice, number) for choice in inside.id_choices] if read else []


def _likeliest_ids(choice: IdChoice, number: int) -> list[tuple[int, float]]:
    """Several candidates may stand for one ID: their probabilities add up."""
    probability = choice.logits[0, number].softmax(-1)
    ids, which = choice.ids.expand(choice.logits.shape)[0, number].unique(return_inverse=True)  # type: ignore[no-untyped-call]
    summed = torch.zeros(len(ids)).index_add(0, which, probability)
    top = summed.topk(min(_LIKELIEST, len(ids)))
    return list(zip(ids[top.indices].tolist(), top.values.tolist(), strict=True))
