"""Run by test_judging.py in a process of its own, for shape checks would hide the kernels' source: judges batches by
recorded passes and in fp32, for models made of all kinds of parts, and prints how they differ."""

import json
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from catalogue import ATTENTIONS, ENCODINGS, label

from longreach.api import (
    ObjectiveConfig,
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
from longreach.evaluate import Judge, judge_in_one_pass, judging
from longreach.train import TrainingStream, build_optimizer
from longreach.train.step import Stepper

judging._WORK = 0
STEPS, ROWS = 150, 64
PLAIN = TransformerConfig(layers=2, width=64, heads=2)


def jobs():
    for encoding in ENCODINGS:
        yield f"encoding {label(encoding)}", replace(PLAIN, encoding=encoding), ParityScratchpad(), Sequential()
    for attention in ATTENTIONS:
        yield f"attention {label(attention)}", replace(PLAIN, attention=attention), ParityScratchpad(), Sequential()
    yield "copy head", replace(PLAIN, copy_head=True), ParityScratchpad(), Sequential()
    yield "predicted IDs", replace(PLAIN, position_head=PointerConfig()), Tape(), Predicted(max_id=60)


def train(config, task, policy):
    model = build_model(config, len(task.vocabulary), 0, policy.level_sizes(task), policy.max_id, "cuda")
    optimizer = OptimizerConfig(lr=4e-3, warmup=20)
    data = TrainingStream(task, policy, (2, 3, 4, 5), 32, 0, "cuda")
    step = Stepper(
        model, build_optimizer(optimizer, model), data, optimizer, ObjectiveConfig(), STEPS, 1, bf16=False, record=True
    )
    for number in range(STEPS):
        step(number)
    return model.eval()


found = {}
for name, config, task, policy in jobs():
    model = train(config, task, policy)
    judge, differ, settled, right = Judge(model), 0, 0, 0
    for seed in range(4):
        draws = stream(seed, "test", torch.arange(ROWS, device="cuda"))
        sample = task.sample(torch.full((ROWS,), 5, device="cuda"), draws, 5)
        ids = policy.evaluation_ids(task, sample)
        judged, plain = judge(sample, ids), judge_in_one_pass(model, sample, ids)
        differ += int((judged.exact_with_ids != plain.exact_with_ids).sum())
        settled, right = settled + int(judged.quick.sum()), right + int(plain.exact_with_ids.sum())
    written_out = not judge.fused
    found[name] = {
        "recorded": judge.recorded is not None or written_out,
        "verdicts that differ": differ,
        "right": right,
        "settled": settled,
    }
json.dump(found, sys.stdout)
