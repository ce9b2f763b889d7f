"""Predicted IDs: the heads, their losses, and generation that feeds IDs back."""

import itertools
from dataclasses import replace

import pytest
import torch
from catalogue import label
from helpers import TINY, draw
from hypothesis import given, settings
from hypothesis import strategies as st
from losses import losses

from longreach.api import (
    Addition,
    AlibiConfig,
    FireConfig,
    GraphWalk,
    IdLoss,
    LearnedConfig,
    LearnedRopeConfig,
    OptimizerConfig,
    ParityScratchpad,
    PointerChasing,
    PointerConfig,
    Predicted,
    RopeConfig,
    SamplingConfig,
    SinusoidalConfig,
    Span,
    TableConfig,
    Tape,
    TrainConfig,
    VariableAssignment,
    build_model,
    stream,
)
from longreach.config.registry import entries
from longreach.decoding import generate
from longreach.errors import BadInput
from longreach.evaluation import judge, run_free
from longreach.evaluation.exact_match import NEAR_TIE
from longreach.execution import ExecutionConfig
from longreach.model import IdChoice, Past
from longreach.objectives import id_choices, id_targets, token_targets
from longreach.positions.encodings import NoEncodingConfig
from longreach.training import Hooks, Step, TrainingStream, build_optimizer, train

HEADS = [
    TableConfig(),
    TableConfig(see_token=False),
    TableConfig(tied=True),
    PointerConfig(),
    PointerConfig(moves=2, see_token=False),
    PointerConfig(kind_first=True),
    PointerConfig(kind_first=True, across_levels=True),
]
ENCODINGS = [NoEncodingConfig(), LearnedConfig(), SinusoidalConfig(), RopeConfig(), RopeConfig(spectrum="random")]
ENCODINGS += [LearnedRopeConfig(spectrum="random"), AlibiConfig(), FireConfig()]
TASKS = [
    ParityScratchpad(),
    Tape(steps=Span(2, 6)),
    PointerChasing(num_names=40, hops=Span(1, 3)),
    GraphWalk(num_names=40, steps=Span(1, 3)),
    VariableAssignment(num_names=40, hops=Span(1, 3), name_tokens=2, echo=True, end="marked"),
]
POLICY = Predicted(max_id=120)


def _model(task, head, encoding=None, seed=5):
    usual = LearnedRopeConfig() if isinstance(head, TableConfig) else RopeConfig()
    config = replace(TINY, encoding=encoding or usual, position_head=head)
    model = build_model(config, len(task.vocabulary), seed, POLICY.level_sizes(task), POLICY.max_id).eval()
    with torch.no_grad():  # decisive scores: near-ties would hide or feign differences
        model.head.weight.mul_(40)
        for parameter in model.position_head.parameters():
            if parameter.dim() > 1:
                parameter.mul_(10)
    return model


def _fits(head, encoding):
    """A table must know IDs absolutely, and a tied one needs the other table."""
    if not isinstance(head, TableConfig):
        return True
    return isinstance(encoding, (LearnedConfig, LearnedRopeConfig) + ((SinusoidalConfig,) if not head.tied else ()))


def test_every_registered_head_is_tested():
    assert {type(head) for head in HEADS} >= set(entries("position_head").values())


MODELS = [pair for pair in itertools.product(HEADS, ENCODINGS) if _fits(*pair)]
TIED = TableConfig(tied=True)
TURNS = [
    (*pair, TASKS[(turn + more) % len(TASKS)])
    for turn, pair in enumerate(MODELS)
    for more in (range(len(TASKS)) if pair[0] == TIED else (0, 2))
]
"""Each pair with two of the tasks, in turn; a tied table, which goes with few encodings, with all."""


def test_every_head_and_every_encoding_meets_every_task():
    for parts, place in ((HEADS, 0), (ENCODINGS, 1)):
        assert {(parts.index(turn[place]), TASKS.index(turn[2])) for turn in TURNS} == {
            *itertools.product(range(len(parts)), range(len(TASKS)))
        }


@pytest.mark.parametrize(("head", "encoding", "task"), TURNS, ids=label)
def test_cached_equals_uncached_and_batched_equals_one_by_one(task, head, encoding):
    model = _model(task, head, encoding).double()  # a pointer sees equal tokens almost alike: fp32 would toss coins
    sample = draw(task, [6, 10, 8])  # ragged prompts
    cached = generate(model, task, POLICY, sample)
    naive = generate(model, task, POLICY, sample, use_cache=False)
    assert torch.equal(cached.tokens, naive.tokens)
    assert torch.equal(cached.ids, naive.ids)
    for row in range(3):
        alone = generate(model, task, POLICY, sample.rows(row, row + 1))
        assert torch.equal(alone.tokens[0], cached.tokens[row])
        assert torch.equal(alone.ids[0], cached.ids[row])


@pytest.mark.parametrize("kind_first", [False, True])
def test_a_level_may_take_the_current_tokens_id_at_another_level(kind_first):
    task = PointerChasing(num_names=40, hops=Span(1, 3))
    across = PointerConfig(kind_first=kind_first, across_levels=True)
    model = _model(task, across).double()
    sample = draw(task, [6, 10])
    ids = POLICY.training_ids(task, sample, stream(0, "ids", torch.arange(2)))
    at = sample.prompt_tokens[:, None] + torch.arange(2)  # names: they have IDs at both levels
    read = sample.tokens[:, :-1]
    hidden = model(read, ids[:, :, :-1])
    choices = id_choices(model, sample, ids, hidden, at, model.past(hidden, read))
    current = ids.gather(2, at[:, None].expand(-1, 2, -1))  # [b, level, a]
    for level, other in ((0, 1), (1, 0)):
        candidates, taken = choices[level].ids, current[:, other]
        assert torch.equal(candidates[..., -2], taken)  # the last three are other's moves: down, none, up
        assert choices[level].reaches(taken).equal(taken > 0)
        forced = replace(
            choices[level], logits=choices[level].logits.index_fill(2, torch.tensor([candidates.shape[2] - 2]), 99.0)
        )
        assert torch.equal(forced.best(), taken)
    with torch.no_grad():  # what the other level says is out of reach where it is reserved
        reserved = ids.clone()
        reserved[:, 1] = 0
        hidden = model(read, reserved[:, :, :-1])
        first = id_choices(model, sample, reserved, hidden, at, model.past(hidden, read))[0]
    assert (first.logits[..., -3:] == -torch.inf).all()


@pytest.mark.parametrize("spectrum", ["geometric", "random"])
@settings(max_examples=10)
@given(shift=st.integers(1, 5_000_000), seed=st.integers(0, 50))
def test_shifting_all_ids_shifts_predicted_ids_and_changes_no_token(spectrum, shift, seed):
    task = VariableAssignment(num_names=40, hops=Span(1, 3))
    model = _model(task, PointerConfig(), RopeConfig(spectrum=spectrum), seed)
    sample = draw(task, [6, 10, 8], seed)
    plain = generate(model, task, POLICY, sample)
    shifted = generate(model, task, POLICY, sample, shift=shift)
    assert torch.equal(shifted.tokens, plain.tokens)
    assert torch.equal(shifted.ids, plain.ids + shift)
    hidden = [model(plain.tokens, ids) for ids in (plain.ids, plain.ids + shift)]
    assert torch.equal(*hidden)  # to the last bit


@pytest.mark.parametrize("task", TASKS, ids=label)
@pytest.mark.parametrize("head", [TableConfig(), PointerConfig()], ids=label)
def test_the_loss_is_that_of_one_step_at_a_time(task, head):
    model = _model(task, head)
    sample = draw(task, [6, 9])
    ids = POLICY.training_ids(task, sample, stream(0, "ids", torch.arange(2)))
    found = losses(model, sample, ids)
    token = position = 0.0
    for row in range(2):
        for at in range(int(sample.prompt_tokens[row]), int(sample.num_tokens[row])):
            prefix, prefix_ids = sample.tokens[row : row + 1, :at], ids[row : row + 1, :, :at]
            cache = model.new_cache(1, at)
            hidden = model(prefix, prefix_ids, cache)[:, -1:]
            past = Past(prefix, cache.memory)
            if not sample.given[row, at]:
                token -= model.logits(hidden, torch.tensor([[at]]), past).log_softmax(-1)[0, 0, sample.tokens[row, at]]
            if at == sample.num_tokens[row] - 1:
                continue  # nobody reads the last token
            reserved = torch.zeros_like(prefix_ids[:, :, 0])
            rungs = [
                sorted({int(i) for i in ids[row, g, : int(sample.prompt_tokens[row])]} - {0})
                for g in range(ids.shape[1])
            ]
            reachable = tuple(
                torch.tensor([[[_step(rungs[g], int(i), move) for i in prefix_ids[0, g]] for move in (-1, 0, 1)]])
                for g in range(ids.shape[1])
            )
            choices = model.choose_ids(
                hidden,
                sample.tokens[row : row + 1, at : at + 1],
                torch.tensor([[at]]),
                past,
                reachable,
                reserved,
            )
            for level, choice in enumerate(choices):
                position -= choice.log_probability(ids[row : row + 1, level, at : at + 1])[0, 0]
    torch.testing.assert_close(found["tokens"].sum(), token)
    torch.testing.assert_close(found["predicted_ids"].sum(), position)


@pytest.mark.parametrize("head", [PointerConfig(), PointerConfig(normalise=False), PointerConfig(kind_first=True)])
def test_gradients_are_finite_and_probabilities_add_up(head):
    task = Tape(steps=Span(2, 6))
    model = _model(task, head)
    sample = draw(task, [6, 9])
    ids = POLICY.training_ids(task, sample, stream(0, "ids", torch.arange(2)))
    sum(losses(model, sample, ids).values()).sum().backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.position_head.parameters())
    hidden = model(sample.tokens[:, :-1], ids[:, :, :-1])
    at = torch.arange(hidden.shape[1]).expand(hidden.shape[:2])
    (choice,) = id_choices(model, sample, ids, hidden, at, model.past(hidden, sample.tokens[:, :-1]))
    if head.kind_first:  # there the candidates' scores are log-probabilities as they are
        torch.testing.assert_close(choice.logits.logsumexp(-1), torch.zeros(at.shape), atol=1e-5, rtol=0)


def _step(rungs, start, move):
    if start == 0 or move == 0:
        return start
    if start > rungs[-1]:
        return start + move
    place = rungs.index(start) + move
    return rungs[-1] + 1 if place >= len(rungs) else rungs[max(place, 0)]


def test_the_probability_of_an_id_sums_over_all_ways_to_it():
    choice = IdChoice(torch.tensor([[[4, 7, 4, 9]]]), torch.tensor([[[1.0, 2.0, 0.5, -torch.inf]]]))
    weights = torch.tensor([1.0, 2.0, 0.5]).exp()
    for target, mass in ((4, weights[0] + weights[2]), (7, weights[1])):
        expected = (mass / weights.sum()).log()
        torch.testing.assert_close(choice.log_probability(torch.tensor([[target]]))[0, 0], expected)
    assert choice.log_probability(torch.tensor([[9]])).item() == -torch.inf
    assert choice.best().item() == 7


def test_ids_are_wanted_for_all_answer_tokens_that_are_read():
    task = Tape(steps=Span(2, 2))
    sample = draw(task, [4])
    words = task.words(sample.tokens[0].tolist())
    wanted = [words[i + 1] for i in range(len(words) - 1) if id_targets(sample)[0, i]]
    assert wanted == words[int(sample.prompt_tokens[0]) : -1]  # moves too, but not the stop token
    predicted = [words[i + 1] for i in range(len(words) - 1) if token_targets(sample)[0, i]]
    assert len(predicted) == 3
    assert all(word.isalpha() for word in predicted)
    everywhere = id_targets(sample, "all")
    assert everywhere.sum() == sample.num_tokens[0] - 2


def _trained(task, head, steps=60, objectives=(), policy=POLICY, encoding=None):
    config = replace(TINY, width=64, position_head=head, encoding=encoding or RopeConfig(spectrum="random"))
    model = build_model(config, len(task.vocabulary), 0, policy.level_sizes(task), policy.max_id)
    config = TrainConfig(
        lengths=Span(2, 8),
        steps=steps,
        batch_size=32,
        optimizer=OptimizerConfig(lr=4e-3, warmup=20),
        objectives=list(objectives),
    )
    data = TrainingStream(task, policy, tuple(range(2, 9)), 32, 0, "cpu")
    seen = []
    hooks = Hooks(
        lambda step, values: seen.append(values), lambda step: 0.0, lambda *a: None, lambda *a: None, lambda: False
    )
    step = Step(model, build_optimizer(config.optimizer, model), data, config)
    train(step, config, ExecutionConfig(), [hooks])
    return model.eval(), seen


@pytest.mark.parametrize(
    ("task", "head", "steps", "policy", "encoding"),
    [
        (Tape(), PointerConfig(), 60, POLICY, None),
        (Addition(), PointerConfig(), 200, POLICY, None),
        (Tape(), TableConfig(), 300, Predicted(max_id=20), LearnedRopeConfig(spectrum="random")),
        (Tape(), TableConfig(tied=True), 300, Predicted(max_id=20), LearnedConfig()),
    ],
    ids=label,
)
def test_right_tokens_and_ids_in_one_pass_imply_a_right_answer_on_its_own(task, head, steps, policy, encoding):
    model, _ = _trained(task, head, steps, policy=policy, encoding=encoding)
    sample = draw(task, list(range(2, 14)) * 12)
    judged = judge(model, sample, policy.evaluation_ids(task, sample))
    free = run_free(model, task, policy, sample)
    clear = judged.margin > NEAR_TIE
    assert (free.exact | ~judged.exact_with_ids)[clear].all()
    assert torch.equal(judged.exact_with_ids[clear], (free.first_error == -1)[clear])
    right = judged.exact_with_ids[clear].double().mean()
    assert 0.03 < right < 0.97  # always or never right would prove nothing
    assert clear.double().mean() > 0.9


def test_given_tokens_are_kept_and_get_predicted_ids():
    task = Tape()
    model, _ = _trained(task, PointerConfig())
    sample = draw(task, [6, 9])
    generated = generate(model, task, POLICY, sample)
    assert torch.equal(generated.tokens[sample.given], sample.tokens[sample.given])
    other = replace(sample, tokens=torch.where(sample.answer & ~sample.given, 1, sample.tokens))
    again = generate(model, task, POLICY, other)
    assert torch.equal(again.tokens, generated.tokens)  # nothing of the answer is seen
    assert torch.equal(again.ids, generated.ids)


def test_feeding_predicted_ids_changes_what_is_read_and_not_what_is_asked():
    task = ParityScratchpad()
    model = _model(task, PointerConfig())
    sample = draw(task, [6, 9])
    draws = stream(0, "ids", torch.arange(2))
    ids = POLICY.training_ids(task, sample, draws)
    feeding = IdLoss(feed_predicted=1.0, feed_from=0.5)
    assert feeding.feeding(0.5) == 0.0
    assert feeding.feeding(0.75) == 0.5
    plain = losses(model, sample, ids)["tokens"]
    before = losses(model, sample, ids, feeding, draws=draws, progress=0.2)["tokens"]
    after = losses(model, sample, ids, feeding, draws=draws, progress=1.0)["tokens"]
    assert torch.equal(plain, before)
    assert not torch.equal(plain, after)
    # a model that predicts every ID is fed the true ones
    model, _ = _trained(task, PointerConfig(), steps=150)
    assert judge(model, sample, POLICY.evaluation_ids(task, sample)).exact_with_ids.all()
    plain_ids = POLICY.evaluation_ids(task, sample)
    fed = losses(model, sample, plain_ids, feeding, draws=draws, progress=1.0)["tokens"]
    assert torch.equal(fed, losses(model, sample, plain_ids)["tokens"])


def test_training_with_fed_ids_learns_and_logs_both_losses():
    _, seen = _trained(ParityScratchpad(), PointerConfig(), 100, [IdLoss(feed_predicted=0.5, feed_from=0.2)])
    assert seen[-1]["id_loss"] < seen[0]["id_loss"]
    assert seen[-1]["loss"] < seen[0]["loss"]


def test_only_ids_of_the_prompt_if_asked():
    task = ParityScratchpad()
    model = _model(task, TableConfig())
    sample = draw(task, [6, 9, 12, 4])
    free = generate(model, task, POLICY, sample)
    bound = generate(model, task, POLICY, sample, prompt_ids_only=True)
    written = sample.answer[:, None]
    for row in range(4):
        known = {0, *free.ids[row, 0, : int(sample.prompt_tokens[row])].tolist()}
        assert not set(free.ids[row][written[row]].tolist()) <= known
        assert set(bound.ids[row][written[row]].tolist()) <= known


def test_a_pointer_never_says_an_id_that_the_encoding_has_no_entry_for():
    task, policy = ParityScratchpad(), Predicted(max_id=13)
    config = replace(TINY, encoding=LearnedConfig(), position_head=PointerConfig())
    model = build_model(config, len(task.vocabulary), 5, policy.level_sizes(task), policy.max_id).eval()
    with torch.no_grad():
        model.position_head.levels[0].move.bias.copy_(torch.tensor([0.0, 0.0, 50.0]))  # always one up
    assert generate(model, task, policy, draw(task, [12, 12])).ids.max() == 13


def test_drawing_tokens():
    task = VariableAssignment(num_names=40, hops=Span(1, 3))
    model = _model(task, PointerConfig())
    sample = draw(task, [6, 10, 8])
    draws = stream(3, "decode", torch.arange(3))
    greedy = generate(model, task, POLICY, sample)
    for same in (
        SamplingConfig(temperature=1e-6),
        SamplingConfig(temperature=3.0, top_k=1),
        SamplingConfig(temperature=3.0, top_p=1e-9),
    ):
        assert torch.equal(generate(model, task, POLICY, sample, sampling=same, draws=draws).tokens, greedy.tokens)
    hot = SamplingConfig(temperature=30.0)
    drawn = generate(model, task, POLICY, sample, sampling=hot, draws=draws)
    assert not torch.equal(drawn.tokens, greedy.tokens)
    assert torch.equal(drawn.tokens, generate(model, task, POLICY, sample, sampling=hot, draws=draws).tokens)
    alone = generate(model, task, POLICY, sample.rows(1, 2), sampling=hot, draws=draws.rows(1, 2))
    assert torch.equal(alone.tokens[0], drawn.tokens[1])


def test_tokens_are_drawn_by_their_probability():
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0]).expand(40_000, 4)
    draws = stream(0, "d", torch.arange(40_000))
    expected = (logits[0] / 2).softmax(-1)
    shares = torch.bincount(SamplingConfig(temperature=2.0).choose(logits, draws), minlength=4) / 40_000
    torch.testing.assert_close(shares, expected, atol=0.01, rtol=0)
    for cut, kept in ((SamplingConfig(temperature=2.0, top_k=2), 2), (SamplingConfig(temperature=2.0, top_p=0.7), 2)):
        shares = torch.bincount(cut.choose(logits, draws), minlength=4) / 40_000
        torch.testing.assert_close(shares[:kept], expected[:kept] / expected[:kept].sum(), atol=0.01, rtol=0)
        assert shares[kept:].sum() == 0


@pytest.mark.parametrize("setting", [{"temperature": -1.0}, {"top_k": -1}, {"top_p": 0.0}, {"top_k": 3}], ids=str)
def test_impossible_sampling_is_refused(setting):
    with pytest.raises(ValueError, match="|".join(setting)):
        SamplingConfig(**setting)


def test_ids_beyond_the_prompt_go_on_by_one_in_training():
    task = VariableAssignment(num_names=40)
    sample = draw(task, [6] * 200)
    ids = POLICY.assign(task, sample)
    ids[:, 0, -2] = 8  # the prompt has 1..6
    relabelled = POLICY.relabel(task, sample, ids, stream(0, "r", torch.arange(200)))[:, 0]
    top = relabelled[:, : int(sample.prompt_tokens[0])].amax(1)
    assert torch.equal(relabelled[:, -2], top + 2)
    assert relabelled.max() <= POLICY.max_id


def test_a_table_without_its_ids_is_refused():
    task = ParityScratchpad()
    with pytest.raises(BadInput, match="needs max_id"):
        build_model(replace(TINY, position_head=TableConfig()), 6, 0)
    with pytest.raises(BadInput, match="tied needs the encoding"):
        build_model(replace(TINY, encoding=SinusoidalConfig(), position_head=TableConfig(tied=True)), 6, 0, max_id=9)
    with pytest.raises(BadInput, match="knows only differences"):
        build_model(replace(TINY, position_head=TableConfig()), 6, 0, max_id=9)
    model = _model(task, TableConfig())
    with pytest.raises(BadInput, match="beyond the table"):
        judge(model, draw(task, [130]), POLICY.evaluation_ids(task, draw(task, [130])))
