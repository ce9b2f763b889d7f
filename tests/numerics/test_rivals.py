"""What predicted IDs are compared with: a recurrent net, a copying head, supervision without feedback, index hints."""

from dataclasses import replace

import pytest
import torch
from helpers import TINY, draw, execute_in
from losses import losses

from longreach.api import (
    Addition,
    DependencyLoss,
    EvalConfig,
    ExecutionConfig,
    IndexHints,
    Lengths,
    OptimizerConfig,
    ParityScratchpad,
    Planted,
    PointerConfig,
    Pose,
    Predicted,
    RecurrentConfig,
    RunConfig,
    Sample,
    Sequential,
    Span,
    SparseParity,
    Tape,
    TrainConfig,
    VariableAssignment,
    build_model,
)
from longreach.decoding import generate
from longreach.errors import BadInput
from longreach.evaluation.look_inside import Truth, look_inside
from longreach.objectives import token_targets
from longreach.runs import check

GRU = RecurrentConfig(layers=2, width=32)
COPYING = replace(TINY, copy_head=True)
BY_COSINE = replace(COPYING, copy_scores="cosine")
BY_ID = replace(TINY, id_heads=1)
POINTING = replace(TINY, dependency_head=True)
ASSIGNMENT = VariableAssignment(num_names=40, hops=Span(1, 3), name_tokens=2)


def _decisive(config, task):
    """A model whose choices are clear: near-ties would hide or feign differences."""
    model = build_model(config, len(task.vocabulary), 5).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.startswith(("head", "copy_head", "dependency_head")) and parameter.dim() > 1:
                parameter.mul_(40)
    return model


@pytest.mark.parametrize(
    "config", [GRU, replace(GRU, tie_embeddings=True), COPYING, BY_COSINE, POINTING, BY_ID], ids=str
)
@pytest.mark.parametrize("task", [ParityScratchpad(), ASSIGNMENT, SparseParity(k=Span(1, 3))], ids=str)
def test_cached_equals_uncached_and_batched_equals_one_by_one(config, task):
    model = _decisive(config, task)
    sample = draw(task, [6, 10, 8, 14])  # ragged prompts
    cached = generate(model, task, Sequential(), sample)
    assert torch.equal(cached.tokens, generate(model, task, Sequential(), sample, use_cache=False).tokens)
    for row in range(4):
        alone = generate(model, task, Sequential(), sample.rows(row, row + 1))
        assert torch.equal(alone.tokens[0], cached.tokens[row])


def test_a_recurrent_net_reads_one_token_at_a_time_and_no_ids():
    model = build_model(GRU, 9, 0).eval()
    tokens = torch.randint(0, 9, (2, 7), generator=torch.Generator().manual_seed(0))
    ids = torch.arange(7).expand(2, 1, 7)
    whole = model(tokens, ids)
    cache = model.new_cache(2, 7)
    steps = []
    for at in range(7):
        steps.append(model(tokens[:, at : at + 1], ids[:, :, at : at + 1], cache))
        cache.advance(torch.tensor([1, 1]))
    torch.testing.assert_close(torch.cat(steps, dim=1), whole)
    assert torch.equal(model(tokens, 5 * ids), whole)


@pytest.mark.parametrize("config", [COPYING, BY_COSINE], ids=str)
def test_a_copying_head_mixes_the_vocabulary_with_what_was_read(config):
    model = _decisive(config, ParityScratchpad())
    tokens = torch.tensor([[2, 3, 3, 1, 2]])
    ids = torch.arange(5).expand(1, 1, 5)
    hidden = model(tokens, ids)
    found = model.all_logits(tokens, ids).exp()
    torch.testing.assert_close(found.sum(-1), torch.ones(1, 5))
    past = model.past(hidden, tokens)
    for at in range(5):
        state = hidden[0, at]
        gate = model.copy_head.gate(state).sigmoid()
        growth = 1 + model.copy_head.look_back.slope * torch.tensor(at + 1.0).log()
        query, memory = model.copy_head.look_back.query(state), past.memory[0, : at + 1]
        if config.copy_scores == "cosine":
            products = 10 * torch.nn.functional.cosine_similarity(query[None], memory, dim=1)
        else:
            products = memory @ query / 32**0.5
        weights = (growth * products).softmax(0)
        expected = (1 - gate) * model.head(state).softmax(0)
        for earlier in range(at + 1):
            expected[tokens[0, earlier]] += gate[0] * weights[earlier]
        torch.testing.assert_close(found[0, at], expected)


def test_the_loss_of_a_dependency_head_is_the_cross_entropy_to_what_is_needed():
    model = _decisive(POINTING, ASSIGNMENT)
    sample = draw(ASSIGNMENT, [6, 9])
    ids = Sequential().evaluation_ids(ASSIGNMENT, sample)
    needs = ASSIGNMENT.depends_on(sample)
    found = losses(model, sample, ids, task=ASSIGNMENT)
    hidden = model(sample.tokens, ids)
    keys = model.dependency_head.remember(hidden, model.embed(sample.tokens))
    expected = 0.0
    for row, at in token_targets(sample).nonzero().tolist():
        log_weights = model.dependency_head(hidden[row, at][None, None], torch.tensor([[at + 1]]), keys[row][None])
        expected -= log_weights[0, 0][needs[row, at + 1]].mean()
    torch.testing.assert_close(found["dependencies"].sum(), expected)
    assert losses(build_model(TINY, len(ASSIGNMENT.vocabulary), 5), sample, ids).keys() == {"tokens"}


CONFIG = RunConfig(
    task=ParityScratchpad(),
    model=TINY,
    train=TrainConfig(lengths=Span(1, 5), steps=4, batch_size=8, optimizer=OptimizerConfig(warmup=2)),
    evaluate=EvalConfig(lengths=Lengths((5, 8)), samples=4, free_samples=4),
    execution=ExecutionConfig(log_every=2),
)


@pytest.mark.parametrize("model", [GRU, COPYING, POINTING], ids=str)
def test_a_run_with_it_trains_tests_and_logs(tmp_path, model):
    folder = execute_in(tmp_path / "run", replace(CONFIG, model=model))
    assert {score.metric for score in folder.scores()} >= {"token_em_tf", "token_em_free"}
    logged = (folder.path / "metrics.jsonl").read_text()
    assert ("dependency_loss" in logged) == (model is POINTING)
    assert folder.config().model == model


def test_the_weight_of_the_dependency_loss_counts(tmp_path):
    def logged(weight):
        train = replace(CONFIG.train, objectives=[DependencyLoss(weight=weight)])
        folder = execute_in(tmp_path / str(len(list(tmp_path.iterdir()))), replace(CONFIG, model=POINTING, train=train))
        return [(line["loss"], line["grad_norm"]) for line in folder.metrics() if "loss" in line]

    assert logged(1.0) == logged(1.0) != logged(5.0)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"model": GRU, "ids": Pose(max_id=90)}, "reads no position IDs"),
        ({"train": replace(CONFIG.train, objectives=[DependencyLoss()])}, "dependencies needs model.dependency_head"),
        ({"task": IndexHints(of=ParityScratchpad(), num_hints=3)}, "needs 7 hints, num_hints is 3"),
    ],
    ids=str,
)
def test_what_would_make_no_difference_is_refused(change, complaint):
    with pytest.raises(BadInput, match=complaint):
        check(replace(CONFIG, **change))


def test_predicted_ids_and_a_dependency_head_go_together(tmp_path):
    model = replace(POINTING, position_head=PointerConfig())
    folder = execute_in(tmp_path / "run", replace(CONFIG, ids=Predicted(max_id=50), model=model))
    assert {"id_loss", "dependency_loss"} <= set(next(iter(folder.metrics())))


def test_a_copying_head_generates_from_any_mixture_of_prompts_and_budgets():
    """The longest prompt and the longest answer stand in different rows: together they are wider than the sample."""
    task = ParityScratchpad()
    model = _decisive(COPYING, task)
    long, short = draw(task, [8]), draw(task, [1])
    tokens = torch.zeros(2, 12, dtype=torch.long)
    tokens[0, :10], tokens[1, :3] = long.tokens[0, :10], short.tokens[0, :3]
    answer = torch.arange(12) >= torch.tensor([[10], [3]])
    sizes = torch.tensor([12, 12])
    sample = Sample(tokens, answer, torch.zeros_like(answer), torch.tensor([8, 1]), sizes, torch.tensor([10, 3]))
    cached = generate(model, task, Sequential(), sample)
    assert torch.equal(cached.tokens, generate(model, task, Sequential(), sample, use_cache=False).tokens)


def test_a_recurrent_net_has_no_attention_to_look_at():
    task, policy = ParityScratchpad(), Sequential()
    sample = draw(task, [5])
    with pytest.raises(BadInput, match="has no attention"):
        look_inside(_decisive(GRU, task), task, policy, sample, Truth.of_sample(task, policy, sample))


def test_hints_name_the_coupled_ids_and_the_answer_repeats_them():
    task = IndexHints(of=ParityScratchpad(), num_hints=30)
    sample = draw(task, [3, 5])
    size = int(sample.num_tokens[0])
    words = task.words(sample.tokens[0, :size].tolist())
    assert words[1::2] == task.of.words(draw(task.of, [3, 5]).tokens[0, : size // 2].tolist())
    start = int(sample.prompt_tokens[0])
    in_prompt, in_answer = words[:start:2], words[start::2]
    assert in_answer[-1] == "#0"  # the stop token stands nowhere
    assert in_answer[:-1] == in_prompt[:3]
    numbers = [int(hint[1:]) for hint in in_answer[:-1]]
    assert numbers == sorted(set(numbers))
    many = draw(task, [3] * 2000)
    assert set(range(task._zero, task._zero + 31)) <= set(many.tokens[:, 0:10:2].flatten().tolist()) | {task._zero}


def test_no_hint_tells_where_a_drawn_move_leads():
    task = IndexHints(of=Tape(), num_hints=30)
    sample = draw(task, [6] * 20)
    before_given = sample.given & (sample.tokens >= task._zero)
    assert before_given.any()
    assert (sample.tokens[before_given] == task._zero).all()
    predicted = sample.answer & ~sample.given & (sample.tokens >= task._zero)
    assert (sample.tokens[predicted] > task._zero).all()


def test_a_typed_prompt_gets_hints_and_known_answers_only():
    parity = IndexHints(of=ParityScratchpad(), num_hints=30)
    tokens = parity.parse("1 0 1")
    assert parity.words(tokens)[:6] == ["#2", "1", "#3", "0", "#4", "1"]
    answer = parity.solve(parity.prompt_batch(tokens, 8), 0)
    assert parity.words(answer) == ["#2", "1", "#3", "1", "#4", "0", "#0", "."]
    assignment = IndexHints(of=ASSIGNMENT, num_hints=30)
    prompt = assignment.prompt_batch(assignment.parse("a a b b ? a a"), 8)
    with pytest.raises(BadInput, match="depend on the answer"):
        assignment.solve(prompt, 0)
    with pytest.raises(BadInput, match="index_hints needs a task with a coupling"):
        IndexHints(of=Planted())
    with pytest.raises(BadInput, match="length 12 needs 14 hints, num_hints is 5"):
        IndexHints(of=ParityScratchpad(), num_hints=5).parse("1 0 1 1 0 0 1 0 1 1 0 0")
    with pytest.raises(BadInput, match="num_hints must be at least 1"):
        IndexHints(of=Addition(), num_hints=0)
