"""Run by test_engine_on_gpu.py in a process of its own: judges batches by recorded passes and in fp32, for models made
of all kinds of parts, and prints how they differ."""

import json
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from catalogue import ATTENTIONS, ENCODINGS

from longreach.api import (
    OptimizerConfig,
    ParityScratchpad,
    PointerConfig,
    Predicted,
    Sequential,
    Tape,
    TransformerConfig,
    build_model,
    stream,
)
from longreach.engine import judging
from longreach.engine.plan import choose
from longreach.engine.recorded_step import RecordedStep
from longreach.engine.two_passes import judge_open_rows
from longreach.evaluation import judge_in_one_pass
from longreach.execution import ExecutionConfig
from longreach.positions.encodings import Shape
from longreach.training import Step, TrainConfig, TrainingStream, build_optimizer

judging._WORK = 0
settled = []


def second_pass(model, batch, tried, reserved):
    settled.append(tried.settled.clone())
    return judge_open_rows(model, batch, tried, reserved)


judging.judge_open_rows = second_pass
STEPS, ROWS = 150, 64
PLAIN = TransformerConfig(layers=2, width=64, heads=2)


def jobs():
    for encoding in ENCODINGS:
        yield f"encoding {encoding}", replace(PLAIN, encoding=encoding), ParityScratchpad(), Sequential()
    for attention in ATTENTIONS:
        if not attention.build(Shape(64, 2, (0,), 0)).fused:
            continue  # half precision is not tried
        yield f"attention {attention}", replace(PLAIN, attention=attention), ParityScratchpad(), Sequential()
    yield "copy head", replace(PLAIN, copy_head=True), ParityScratchpad(), Sequential()
    yield "predicted IDs", replace(PLAIN, position_head=PointerConfig()), Tape(), Predicted(max_id=60)


def train(config, task, policy):
    model = build_model(config, len(task.vocabulary), 0, policy.level_sizes(task), policy.max_id, "cuda")
    settings = TrainConfig(steps=STEPS, optimizer=OptimizerConfig(lr=4e-3, warmup=20))
    data = TrainingStream(task, policy, (2, 3, 4, 5), 32, 0, "cuda")
    step = RecordedStep(Step(model, build_optimizer(settings.optimizer, model), data, settings))
    for number in range(STEPS):
        step(number)
    return model.eval()


found = {}
for name, config, task, policy in jobs():
    model = train(config, task, policy)
    plan = choose(model, ExecutionConfig(), "cuda")
    assert {"half_precision_tests", "recorded_tests"} <= set(plan.used), plan.unused
    judge, pairs = plan.new_judge(model, batches=4), []
    models = judge.models
    settled.clear()
    for seed in range(4):
        draws = stream(seed, "test", torch.arange(ROWS, device="cuda"))
        sample = task.sample(torch.full((ROWS,), 5, device="cuda"), draws, 5)
        ids = policy.evaluation_ids(task, sample)
        judge.models = models  # tried again where nothing of the first batch was settled
        pairs.append((judge(sample, ids), judge_in_one_pass(model, sample, ids)))
    found[name] = {
        "recorded": judge.recorded is not None,
        # only now: a later batch must not overwrite an earlier one
        "verdicts that differ": sum(int((one.exact_with_ids != fp32.exact_with_ids).sum()) for one, fp32 in pairs),
        "right": sum(int(fp32.exact_with_ids.sum()) for _, fp32 in pairs),
        "settled": sum(int(rows.sum()) for rows in settled),
    }
json.dump(found, sys.stdout)
