"""Steps, schedules, groups, and what stops a run."""

import math
import warnings
from dataclasses import replace

import pytest
import torch
from helpers import TINY

from longreach.api import (
    Copy,
    Coupled,
    EvalConfig,
    ExecutionConfig,
    Lengths,
    OptimizerConfig,
    ParityScratchpad,
    Pose,
    Randomized,
    RunConfig,
    Sequential,
    Span,
    SparseParity,
    TrainConfig,
    build_model,
)
from longreach.config import build, to_plain
from longreach.engine.drawing_ahead import BatchesAhead, count_steps_ahead, several_steps
from longreach.engine.recorded_step import RecordedStep
from longreach.engine.recording import put
from longreach.engine.stacked_training import MultiSeedStream, StackedStream
from longreach.errors import BadInput, RunFailed
from longreach.evaluation import make_card
from longreach.model.block import normalized
from longreach.objectives import token_targets
from longreach.runs import check, runs_together
from longreach.runs.training import check_compiler
from longreach.training import Hooks, PrimeConfig, Step, TrainingStream, build_optimizer, legal_lengths, train
from longreach.training.step import clip_gradients, learning_rate


def _hooks(**changes):
    silent = {
        "log": lambda step, values: None,
        "validate": lambda step: 0.0,
        "save": lambda step, score: None,
        "progress": lambda step, loss: None,
        "should_stop": lambda: False,
    }
    return Hooks(**{**silent, **changes})


def _train(config, seed=0, hooks=None, model=None, **execution):
    task = ParityScratchpad()
    model = model or build_model(TINY, len(task.vocabulary), seed)
    data = TrainingStream(task, Sequential(), legal_lengths(task, config.lengths), config.batch_size, seed, "cpu")
    losses = []
    hooks = hooks or _hooks(log=lambda step, values: losses.append(values["loss"]))
    execution = ExecutionConfig(**{"log_every": 1, **execution})
    step = Step(model, build_optimizer(config.optimizer, model), data, config, execution.accumulate)
    train(step, config, execution, [hooks])
    return model, losses


SHORT = TrainConfig(lengths=Span(1, 5), steps=6, batch_size=12, optimizer=OptimizerConfig(warmup=2))


def test_accumulated_parts_give_the_gradient_of_the_whole_batch():
    _, whole = _train(SHORT)
    _, parts = _train(SHORT, accumulate=4)
    assert len(whole) == 6
    torch.testing.assert_close(torch.tensor(parts), torch.tensor(whole), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_norms_compute_in_the_precision_of_their_weights(dtype):
    norm = torch.nn.RMSNorm(8, eps=1e-5)
    x = torch.linspace(-2, 3, 24).view(1, 1, 3, 8).to(dtype)
    with warnings.catch_warnings(), torch.autocast("cpu", torch.bfloat16):
        warnings.simplefilter("error")  # torch warns of mixed precisions
        found = normalized(norm, x)
    assert found.dtype == dtype
    assert torch.equal(found, norm(x.float()).to(dtype))
    assert normalized(torch.nn.Identity(), x) is x


def test_the_loss_falls():
    _, losses = _train(replace(SHORT, steps=150, batch_size=32, optimizer=OptimizerConfig(lr=3e-3, warmup=10)))
    assert losses[-1] < 0.6 * losses[0]


def test_bf16_autocast_keeps_fp32_weights_and_stays_close():
    _, exact = _train(SHORT)
    model, rough = _train(replace(SHORT, precision="bf16"))
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert rough != exact
    torch.testing.assert_close(torch.tensor(rough), torch.tensor(exact), rtol=0.02, atol=0.02)


def test_seeds_differ_and_repeat():
    assert _train(SHORT, seed=1)[1] == _train(SHORT, seed=1)[1]
    assert _train(SHORT, seed=1)[1] != _train(SHORT, seed=2)[1]


def test_training_leaves_the_global_generator_alone():
    before = torch.random.get_rng_state()
    _train(SHORT)
    assert torch.equal(before, torch.random.get_rng_state())


def test_a_step_is_a_few_calls_of_torch():
    """The same bits as the step written out: forward, cross-entropy, backward, clipping, AdamW."""
    task = ParityScratchpad()
    config = replace(SHORT, optimizer=OptimizerConfig(lr=3e-3, warmup=2, clip=0.2))
    data = TrainingStream(task, Sequential(), (2, 3, 5), 12, 0, "cpu")
    model, plain = (build_model(TINY, len(task.vocabulary), 0) for _ in range(2))
    step = Step(model, build_optimizer(config.optimizer, model), data, config)
    assert step.values == ("loss", "grad_norm")
    matrices = [module.weight for module in plain.modules() if isinstance(module, torch.nn.Linear)]
    others = [weight for weight in plain.parameters() if not any(weight is matrix for matrix in matrices)]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
        betas=(0.9, 0.98),
        eps=1e-8,
        fused=True,
    )
    for number, rate in enumerate((1.5e-3, 3e-3, 3e-3)):
        for group in optimizer.param_groups:
            group["lr"] = rate
        batch = data.batch(number)
        tokens, wanted = batch.sample.tokens, token_targets(batch.sample)
        width = int(wanted.sum(1).max())
        at = (~wanted).to(torch.uint8).argsort(dim=1, stable=True)[:, :width]
        labels = tokens[:, 1:].masked_fill(~wanted, -100).gather(1, at)
        optimizer.zero_grad()
        states = plain(tokens[:, :-1], batch.ids[:, :, :-1], at=at)
        logits = plain.head(states)
        each = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
        loss = each.view(labels.shape).sum(1).sum() / wanted.sum()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(plain.parameters(), 0.2)
        assert norm > 0.2
        optimizer.step()
        assert torch.equal(step(number), torch.stack([loss.detach(), norm])[None])
        for mine, theirs in zip(model.parameters(), plain.parameters(), strict=True):
            assert torch.equal(mine, theirs)


@pytest.mark.parametrize(
    ("schedule", "middle", "last"), [("linear", 0.5, 0.0), ("cosine", 0.5, 0.0), ("constant", 1.0, 1.0)]
)
def test_schedules(schedule, middle, last):
    config = OptimizerConfig(lr=1.0, warmup=100, schedule=schedule)
    assert learning_rate(config, 0, 1100) == pytest.approx(0.01)
    assert learning_rate(config, 99, 1100) == 1.0
    assert learning_rate(config, 600, 1100) == pytest.approx(middle, abs=1e-3)
    assert learning_rate(config, 1099, 1100) == pytest.approx(last, abs=2e-3)


def test_only_matrices_decay():
    model = build_model(TINY, 7, 0)
    decayed, others = build_optimizer(OptimizerConfig(weight_decay=0.3), model).param_groups
    names = {id(p): name for name, p in model.named_parameters()}
    assert decayed["weight_decay"] == 0.3
    assert others["weight_decay"] == 0.0
    assert {names[id(p)].rsplit(".", 1)[1] for p in decayed["params"]} == {"weight"}
    assert all("embed" not in names[id(p)] and "norm" not in names[id(p)] for p in decayed["params"])
    assert len(decayed["params"]) + len(others["params"]) == len(names)


def test_a_loss_that_is_not_finite_stops_before_anything_is_saved():
    saved = []
    task = ParityScratchpad()
    model = build_model(TINY, len(task.vocabulary), 0)
    # a rate that overflows fp32 within a few steps
    config = replace(SHORT, steps=50, optimizer=OptimizerConfig(lr=1e30, warmup=10, clip=0.0))
    hooks = _hooks(save=lambda step, score: saved.append(_finite(model)))
    with pytest.raises(RunFailed, match=r"became (nan|inf) at step \d+"):
        _train(config, hooks=hooks, model=model, save_every=1)
    assert saved[0]
    assert all(saved)


def _finite(model):
    return all(bool(p.isfinite().all()) for p in model.parameters())


@pytest.mark.parametrize("start", [0, 4])
def test_a_step_that_does_not_read_the_host_logs_its_own_loss(start):
    """Its losses are read in passing: neither checkpoints in between nor where a run goes on may shift them."""
    logged = []
    hooks = _hooks(log=lambda step, values: logged.append((step, values["loss"])))
    execution = ExecutionConfig(log_every=5, save_every=3)
    train(_Counting(), replace(SHORT, steps=14), execution, [hooks], start_step=start)
    assert logged == [(5, 5.0), (10, 10.0), (14, 14.0)]


class _Counting:
    """Its loss is the number of steps done."""

    model, values, reads_host = torch.nn.Identity(), ("loss", "grad_norm"), False

    def __call__(self, number):
        return torch.tensor([[number + 1.0, 1.0]])

    def rates(self, number):
        return [0.1]

    def finite(self):
        return [True]


def test_asking_to_stop_saves_and_ends():
    saved = []
    asked = iter([False, False, True])
    hooks = _hooks(save=lambda step, score: saved.append(step), should_stop=lambda: next(asked))
    assert not train(_Counting(), SHORT, ExecutionConfig(), [hooks])
    assert saved == [3]


def test_every_legal_length_is_drawn_and_no_other():
    task = SparseParity(k=Span(1, 3))
    lengths = legal_lengths(task, Span(19, 31))
    assert lengths == (20, 22, 24, 26, 28, 30)
    data = TrainingStream(task, Coupled(max_id=50), lengths, 600, 0, "cpu")
    drawn = data.batch(0).sample.length
    assert sorted(set(drawn.tolist())) == list(lengths)
    assert not torch.equal(data.batch(1).sample.tokens, data.batch(0).sample.tokens)
    with pytest.raises(BadInput, match=r"no length in 7 is possible: .*must be even"):
        legal_lengths(task, Span(7, 7))


def test_priming_shows_a_few_long_samples_again_and_again():
    task = ParityScratchpad()
    prime = PrimeConfig(lengths=Span(29, 30), share=0.25, samples=5)
    plain = TrainingStream(task, Sequential(), (1, 2, 3), 2000, 0, "cpu")
    primed = replace(plain, prime=prime)
    before, after = plain.batch(3).sample, primed.batch(3).sample
    long = after.length > 3
    assert abs(long.double().mean() - 0.25) < 0.05
    assert after.length[long].min() >= 29
    assert after.tokens.shape[1] == task.max_tokens(30)
    short = before.tokens.shape[1]
    assert torch.equal(after.tokens[~long][:, :short], before.tokens[~long])  # the others are what they were
    assert len(after.tokens[long].unique(dim=0)) == 5
    known = {tuple(row) for row in after.tokens[long].tolist()}
    again = primed.batch(4).sample
    assert {tuple(row) for row in again.tokens[again.length > 3].tolist()} == known
    other = replace(primed, seed=1).batch(3).sample
    assert {tuple(row) for row in other.tokens[other.length > 3].tolist()}.isdisjoint(known)
    new = replace(plain, prime=replace(prime, samples=0)).batch(3).sample
    assert len(new.tokens[long].unique(dim=0)) == int(long.sum())
    for sample, row in ((after, int(long.int().argmax())), (new, int(long.int().argmax()))):
        assert task.solve(sample, row) == sample.tokens[row][sample.answer[row]].tolist()


def test_priming_in_a_run_is_told_and_not_tested():
    config = RunConfig(
        task=ParityScratchpad(), train=replace(SHORT, prime=PrimeConfig(lengths=Span(9, 9), share=0.5)), model=TINY
    )
    assert build(RunConfig, to_plain(config)) == config
    card = make_card(config.task, config.ids, (1, 2), config.evaluate, config.train.prime)
    assert card.primed == "at 9, 50 samples, share 0.5"
    assert card.trained_lengths == "1..2"
    with pytest.raises(BadInput, match="max_id=8 is too small: samples have 10 IDs"):
        check(replace(config, ids=Coupled(max_id=8)))
    for bad in ({"share": 0.0}, {"share": 1.5}, {"samples": -1}):
        with pytest.raises(ValueError, match=r"train\.prime\.(share|samples) must"):
            PrimeConfig(lengths=Span(9, 9), **bad)


def test_the_card_tells_how_the_ids_of_tests_are_drawn():
    task, config = ParityScratchpad(), EvalConfig(lengths=Lengths((4,)), samples=4, free_samples=0)
    card = make_card(task, Randomized(max_id=40), (1, 2), config)
    assert card.test_ids == "a random subset of 0..40 for each sample"
    assert card.ids_supplied_by == "counting tokens, in a subset of IDs that is drawn for each sample"
    assert card.length_known == "the most tokens at its length: IDs are drawn for so many"
    dense = make_card(task, Randomized(max_id=40, test="dense"), (1, 2), config)
    assert (dense.test_ids, dense.ids_supplied_by, dense.length_known) == ("plain", "counting tokens", "no")
    relabelled = make_card(task, Randomized(max_id=40), (1, 2), replace(config, relabel_ids=True))
    assert relabelled.test_ids == "relabelled"


def test_the_first_loss_is_that_of_guessing():
    _, losses = _train(SHORT)
    assert losses[0] == pytest.approx(math.log(6), abs=0.1)  # six tokens


@pytest.mark.parametrize("ahead", [1, 4])
def test_a_recorded_step_reads_batches_that_are_drawn_ahead(ahead):
    """The work of the graphs is done by hand; steps are also left out and repeated."""
    task = ParityScratchpad()
    data = TrainingStream(task, Sequential(), (2, 3, 5), 40, 0, "cpu")
    losses = []
    for wrap in (lambda step: step, lambda step: _RecordedByHand(step, ahead=ahead)):
        model = build_model(TINY, len(task.vocabulary), 0)
        config = replace(SHORT, steps=20)
        step = wrap(Step(model, build_optimizer(config.optimizer, model), data, config))
        losses.append(torch.stack([step(number)[0, 0] for number in (0, 1, 2, 3, 4, 5, 9, 10, 4, 5, 17)]))
    torch.testing.assert_close(losses[1], losses[0])


class _DrawnByHand(BatchesAhead):
    """Draws on a CPU, as late as it may."""

    def record(self):
        return self.held.map(torch.clone), lambda: None

    def start_drawing(self, number):
        self.drawn_from = number
        self.first.fill_(number)

    def wait_for_drawing(self):
        put(self._draw().tensors(), self.drawn.tensors())


class _RecordedByHand(RecordedStep):
    """Computes on a CPU what a graph replays."""

    def make_places(self):
        self.ahead = _DrawnByHand(self.step, self.steps_ahead)
        self.ready = self.ahead.batch_of_a_step(0).map(torch.clone)

    def record(self):
        for group in self.step.optimizer.param_groups:
            group["capturable"] = False  # a CPU knows no graphs

        def replay():
            self.result = self.step.update(self.step.differentiate(self.prepare()))

        return replay


@pytest.mark.parametrize("kind", ["alone", "seeds", "tasks"])
def test_batches_of_several_steps_are_those_of_each_step(kind):
    alone = TrainingStream(SparseParity(k=Span(2, 4)), Pose(max_id=90), (20, 24, 30), 6, 5, "cpu")
    data = alone
    if kind == "seeds":
        data = MultiSeedStream.of(alone, (7, 9))
    if kind == "tasks":
        other = replace(alone, task=SparseParity(k=Span(2, 8)), seed=11)
        data = StackedStream((MultiSeedStream.of(alone, (7,)), MultiSeedStream.of(other, ())))
    batch = several_steps(data, 3).batch(8)
    for number in range(3):
        rows = slice(number * len(batch.ids) // 3, (number + 1) * len(batch.ids) // 3)
        for found, wanted in zip(batch.tensors(), data.batch(8 + number).tensors(), strict=True):
            assert torch.equal(found[rows], wanted)


def test_a_task_whose_samples_depend_on_their_batch_is_drawn_step_by_step():
    class Shifting(Copy):
        def sample(self, length, draws, max_length):
            sample = super().sample(length, draws, max_length)
            return replace(sample, tokens=sample.tokens.roll(len(length) // 40, dims=1))

    for task, held in ((Copy(), 4), (Shifting(), 1)):
        data = TrainingStream(task, Sequential(), (2, 3, 5), 40, 0, "cpu")
        model = build_model(TINY, len(task.vocabulary), 0)
        step = Step(model, build_optimizer(SHORT.optimizer, model), data, SHORT)
        step.reads_host = False
        assert _DrawnByHand(step, 4).count == held


def test_how_many_steps_are_drawn_at_once():
    data = TrainingStream(ParityScratchpad(), Sequential(), (2, 40), 128, 0, "cpu")
    assert count_steps_ahead(data) == 16
    assert count_steps_ahead(replace(data, batch_size=1024)) == (1 << 19) // (1024 * data.width)
    assert count_steps_ahead(replace(data, batch_size=1 << 15)) == 1
    own = type("Own", (TrainingStream,), {})
    assert count_steps_ahead(own(data.task, data.policy, data.lengths, 128, 0, "cpu")) == 1


@pytest.mark.parametrize(
    ("changes", "together"),
    [
        ({}, 8),
        ({"train": {"lengths": "1..6", "batch_size": 1 << 20}}, 2),
        ({"train": {"lengths": "1..6", "batch_size": 1 << 30}}, 1),
    ],
)
def test_how_many_runs_a_gpu_trains_as_one(changes, together):
    base = {"task": "copy", "model": {"layers": 1, "width": 16, "heads": 2}, "train": {"lengths": "1..6"}}
    config = build(RunConfig, {**base, **changes})
    assert runs_together(config, "cuda") == together
    assert runs_together(config, "cpu") == 1


@pytest.mark.parametrize("look", [True, False])
@pytest.mark.parametrize("most", [0.1, 1e3, math.inf])
def test_clipping_is_torchs(most, look):
    weights = [[torch.nn.Parameter(torch.zeros(3, 2)), torch.nn.Parameter(torch.zeros(4))] for _ in range(2)]
    for one in weights:
        for parameter in one:
            parameter.grad = torch.arange(1.0, 1 + parameter.numel()).view(parameter.shape)
    norm = clip_gradients(weights[0], most, look)
    assert torch.equal(norm, torch.nn.utils.clip_grad_norm_(weights[1], most))
    for found, wanted in zip(*weights, strict=True):
        torch.testing.assert_close(found.grad, wanted.grad)


def test_a_compiler_that_is_wrong_is_refused():
    with pytest.raises(BadInput, match=r"execution.compile on a CPU needs torch 2.12 or newer: 2.11.0\+cu130"):
        check_compiler("cpu", "2.11.0+cu130")
    for device, version in (("cuda:1", "2.11.0"), ("cpu", "2.12.0"), ("cpu", "2.13.0+cpu")):
        check_compiler(device, version)
