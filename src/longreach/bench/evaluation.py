"""Exact match: one pass that is given the true prefix, beside a pass for every token; and a whole grid of scores."""

from dataclasses import replace
from functools import partial

from longreach.bench import rivals
from longreach.bench.comparison import SpeedComparison
from longreach.bench.flops import forward_flops
from longreach.bench.machine import Peak, wait_for
from longreach.bench.scribble import Scribble, scribbled
from longreach.bench.timing import Effort, Side, take_turns
from longreach.bench.train import new_model
from longreach.bench.workload import Workload
from longreach.engine.judging import FastJudge
from longreach.engine.plan import choose, judges, write_fast
from longreach.evaluation import cells, evaluate, run_free
from longreach.execution import ExecutionConfig
from longreach.model import Transformer
from longreach.positions.ids import Sequential
from longreach.runs import load_recipe
from longreach.training import OptimizerConfig, Step, TrainConfig, TrainingStream, build_optimizer

_STEPS = 100
_SHORT = 8
"""Tokens of the prompts, and of the answers, that a model learns from."""


def time_evaluation(workload: Workload, device: str, against: str, effort: Effort, peak: Peak) -> SpeedComparison:
    """The workload's length is the number of answer tokens; prompts are as long.  The model has learned its task: an
    untrained one is in doubt about every answer, and would measure how long it takes to settle doubts."""
    forms = rivals.choose_rivals(against, rivals.DECODING, device)
    task, policy = Scribble(prompt_tokens=workload.length, repeats=True), Sequential()
    sample = scribbled(task, workload.batch, workload.length, device)
    ids = policy.evaluation_ids(task, sample)
    model = learned_to_repeat(workload, device)
    plan = choose(model, ExecutionConfig(), device)
    judge = FastJudge(plan.test_model(model), plan.half_model(model), record="recorded_tests" in plan.used)
    judged = judge(sample, ids)
    settled = 0 if judge.settled is None else int(judge.settled.sum())
    tokens = workload.batch * workload.length
    sides = [
        Side("one pass", lambda: judge(sample, ids), tokens),
        Side("decoding", lambda: run_free(model, task, policy, sample, write=plan.write), tokens),
    ]
    for form in forms:
        prompt = sample.tokens[:, : workload.length]
        sides.append(Side(rivals.DECODING[form], rivals.writing(form, model, prompt, workload.length), tokens))
    needed = forward_flops(
        model.config, len(task.vocabulary), workload.batch, task.max_tokens(workload.length) - 1, predicted=tokens
    )
    return SpeedComparison(
        name=f"eval {workload}",
        timings=tuple(take_turns(sides, effort, lambda: wait_for(device))),
        flops_per_token=needed / tokens,
        peak=peak,
        notes=(
            f"{workload.length} answer tokens after prompts of {workload.length}",
            f"the model learned in {_STEPS} steps to repeat the prompt's last letter",
            f"one pass: {int(judged.exact.sum())} of {workload.batch} answers right,"
            f" {settled} settled in fp16, the rest in fp32",
            "decoding: fp32",
        ),
    )


def learned_to_repeat(workload: Workload, device: str) -> Transformer:
    """A model that says the letter it has just read, with confidence and at any length."""
    task = Scribble(prompt_tokens=_SHORT, repeats=True)
    model = new_model(workload, task, device)
    config = TrainConfig(steps=_STEPS, optimizer=OptimizerConfig(lr=3e-3, warmup=_STEPS // 10))
    data = TrainingStream(task, Sequential(), (_SHORT,), batch_size=32, seed=0, device=device)
    step = Step(model.train(), build_optimizer(config.optimizer, model), data, config)
    for number in range(_STEPS):
        step(number)
    return model.eval()


def time_grid(workload: Workload, samples: int, device: str, effort: Effort, peak: Peak) -> SpeedComparison:
    """All scores of the recipe `sparse_parity`, of an untrained model: its wall time, the first call included."""
    config = load_recipe("sparse_parity", only=["K8"]).variants["K8"]
    grid = replace(config.evaluate, samples=samples)
    model = new_model(workload, config.task, device)
    tested = cells(config.task, grid)[0]
    lengths = [cell.task.max_tokens(cell.length) - 1 for cell in tested]
    tokens = samples * sum(lengths)
    execution = config.execution
    test = partial(
        evaluate,
        batch_tokens=execution.batch_tokens,
        new_judge=judges(execution, device),
        write=write_fast(execution, device),
        seed=0,
        device=device,
    )
    side = Side("longreach", lambda: test(model, config.task, config.ids, grid), tokens)
    needed = sum(
        forward_flops(model.config, len(config.task.vocabulary), samples, length, predicted=samples)
        for length in lengths
    )
    (timing,) = take_turns([side], effort, lambda: wait_for(device), warm_up=0)
    return SpeedComparison(
        name=f"eval grid {workload.layers},{workload.width},{workload.heads}",
        timings=(timing,),
        flops_per_token=needed / tokens,
        peak=peak,
        notes=(f"{len(tested)} cells of sparse parity with {samples} samples each: {timing.typical:.1f} s",),
        unit="seconds",
    )
