"""Generation: cached equals uncached, batched equals one by one, one pass equals free-running."""

from dataclasses import replace

import pytest
import torch
from catalogue import ATTENTIONS, ENCODINGS, label
from helpers import TINY, draw

from longreach.api import (
    Coupled,
    LearnedConfig,
    OptimizerConfig,
    Oracle,
    ParityScratchpad,
    Randomized,
    RopeConfig,
    SamplingConfig,
    ScaledSoftmaxConfig,
    Sequential,
    SoftmaxConfig,
    Span,
    SparseParity,
    TrainConfig,
    VariableAssignment,
    build_model,
)
from longreach.decoding import Generated, Writing, answers, generate, write_answers
from longreach.errors import BadInput
from longreach.evaluation import judge, run_free
from longreach.execution import ExecutionConfig
from longreach.seeding import stream
from longreach.tasks import PAD
from longreach.training import Hooks, Step, TrainingStream, build_optimizer, train

PAIRS = [(encoding, ScaledSoftmaxConfig()) for encoding in ENCODINGS] + [(RopeConfig(), other) for other in ATTENTIONS]
JOBS = [
    (ParityScratchpad(), Coupled(max_id=90)),
    (ParityScratchpad(), Sequential()),
    (VariableAssignment(num_names=40, hops=Span(1, 3), name_tokens=2), Sequential()),
    (SparseParity(k=Span(1, 3)), Coupled(max_id=90)),
]


def _random_model(task, policy, encoding, attention):
    config = replace(TINY, encoding=encoding, attention=attention)
    model = build_model(config, len(task.vocabulary), 5, policy.level_sizes(task), policy.max_id).eval()
    with torch.no_grad():
        model.head.weight.mul_(40)  # decisive logits: near-ties would hide or feign differences
    return model


@pytest.mark.parametrize(
    ("encoding", "attention", "task", "policy"),
    [(*pair, *JOBS[(turn + more) % len(JOBS)]) for turn, pair in enumerate(PAIRS) for more in (0, 2)],
    ids=label,
)
def test_cached_equals_uncached_and_batched_equals_one_by_one(encoding, attention, task, policy):
    """Each pair of parts with two of the jobs, in turn."""
    model = _random_model(task, policy, encoding, attention)
    sample = draw(task, [6, 10, 8, 14])  # ragged prompts
    cached = generate(model, task, policy, sample)
    assert torch.equal(cached.tokens, generate(model, task, policy, sample, use_cache=False).tokens)
    for row in range(4):
        alone = generate(model, task, policy, sample.rows(row, row + 1))
        assert torch.equal(alone.tokens[0], cached.tokens[row])


def test_the_cache_holds_the_same_hidden_states():
    model = build_model(TINY, 9, 0).eval()
    tokens = torch.randint(0, 9, (2, 12), generator=torch.Generator().manual_seed(0))
    ids = torch.tensor([[5, 3, 3, 9, 1, 2, 800, 801, 4, 4, 7, 6]]).expand(2, 1, 12)
    whole = model(tokens, ids)
    cache = model.new_cache(2, 12)
    parts = []
    for start, stop in ((0, 5), (5, 6), (6, 9), (9, 12)):
        parts.append(model(tokens[:, start:stop], ids[:, :, start:stop], cache))
        cache.advance(torch.tensor([stop - start] * 2))
    torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match="cache has 12 slots"):
        model(tokens[:, :1], ids[:, :, :1], cache)


@pytest.mark.parametrize(("encoding", "attention"), PAIRS, ids=label)
def test_a_cache_of_fixed_shape_changes_nothing(encoding, attention):
    task, policy = ParityScratchpad(), Coupled(max_id=90)
    model = _random_model(task, policy, encoding, attention)
    sample = draw(task, [6, 10, 8])
    prompt = sample.prompt_only()
    ids = policy.evaluation_ids(task, prompt)
    writing = Writing(model, task.stop_token, prompt, ids, None, SamplingConfig(), None, use_cache=True)
    writing.cache.fix()
    with torch.no_grad():
        write_answers(writing)
    assert torch.equal(writing.tokens, generate(model, task, policy, sample).tokens)


@pytest.fixture(scope="module")
def half_trained():
    """A model that is right sometimes: one that is always or never right would prove nothing."""
    task, policy = ParityScratchpad(), Coupled(max_id=120)
    model = build_model(replace(TINY, width=64), len(task.vocabulary), 0)
    config = TrainConfig(lengths=Span(1, 8), steps=50, batch_size=32, optimizer=OptimizerConfig(lr=4e-3, warmup=20))
    data = TrainingStream(task, policy, tuple(range(1, 9)), 32, 0, "cpu")
    nothing = lambda *args: None  # noqa: E731
    hooks = Hooks(nothing, lambda step: 0.0, nothing, nothing, lambda: False)
    step = Step(model, build_optimizer(config.optimizer, model), data, config)
    train(step, config, ExecutionConfig(), [hooks])
    return task, policy, model.eval()


def test_one_pass_exact_match_is_free_running_exact_match(half_trained):
    task, policy, model = half_trained
    sample = draw(task, list(range(1, 41)) * 10)
    one_pass = judge(model, sample, policy.assign(task, sample)).exact
    free = run_free(model, task, policy, sample).exact
    assert torch.equal(one_pass, free)
    assert 0.1 < free.double().mean() < 0.9


def test_randomized_tests_judge_and_generate_with_the_same_ids():
    task, policy = VariableAssignment(num_names=40, hops=Span(1, 3)), Randomized(max_id=90)
    model = _random_model(task, policy, LearnedConfig(max_id=90), ScaledSoftmaxConfig())
    sample, draws = draw(task, [6, 10, 8, 14]), stream(0, "test", torch.arange(4))
    written = generate(model, task, policy, sample, draws=draws)
    assert torch.equal(written.ids, policy.evaluation_ids(task, sample, draws.child("ids")))
    assert torch.equal(written.tokens, generate(model, task, policy, sample, use_cache=False, draws=draws).tokens)
    for row in range(4):
        alone = generate(model, task, policy, sample.rows(row, row + 1), draws=draws.rows(row, row + 1))
        assert torch.equal(alone.tokens[0], written.tokens[row])
    # one pass finds the model's own answer right, up to where the model ended it
    truth = replace(sample, tokens=written.tokens, answer=sample.answer & (written.tokens != PAD))
    assert judge(model, truth, policy.evaluation_ids(task, truth, draws.child("ids"))).exact.all()


def test_an_answer_that_runs_on_is_wrong(half_trained):
    task, policy, model = half_trained
    sample = draw(task, [3] * 50)
    silenced = torch.zeros(len(task.vocabulary))
    silenced[task.stop_token] = -1e9
    hook = model.head.register_forward_hook(lambda module, args, output: output + silenced)
    generated = generate(model, task, policy, sample)
    assert not generated.stopped.any()
    assert not run_free(model, task, policy, sample).exact.any()
    hook.remove()


def test_generation_never_sees_the_answer(half_trained):
    task, policy, model = half_trained
    sample = draw(task, [5, 7])
    spoilt = replace(sample, tokens=torch.where(sample.answer, 1, sample.tokens))
    assert torch.equal(generate(model, task, policy, sample).tokens, generate(model, task, policy, spoilt).tokens)


def test_padding_inside_an_answer_is_not_passed_over(half_trained):
    task, _, _ = half_trained
    sample = draw(task, [3])
    written = sample.tokens.clone()
    written[0, int(sample.prompt_tokens[0]) + 1] = 0
    found = answers(Generated(written, torch.tensor([True])), task, sample)[0]
    assert len(found) == 4
    assert found[1] == 0


def test_given_tokens_are_kept(half_trained):
    task, policy, model = half_trained
    sample = draw(task, [6])
    at = int(sample.prompt_tokens[0]) + 2
    forced = sample.tokens.clone()
    forced[0, at] = task.vocabulary.index(";")  # nothing a model would write
    given = torch.zeros_like(sample.given)
    given[0, at] = True
    for use_cache in (True, False):
        generated = generate(model, task, policy, replace(sample, tokens=forced, given=given), use_cache)
        assert generated.tokens[0, at] == forced[0, at]


def test_an_oracle_cannot_generate():
    task, policy = VariableAssignment(num_names=40), Oracle(max_id=90)
    model = _random_model(task, policy, RopeConfig(), SoftmaxConfig())
    with pytest.raises(BadInput, match="reads the IDs of variable_assignment off the true answer"):
        generate(model, task, policy, draw(task, [6]))
