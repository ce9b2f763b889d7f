"""How well does the probe find the tokens that answers depend on?  Three tiny models, a few minutes on a CPU each."""

from pathlib import Path

import longreach as lr
from longreach.probe import OwnModel, ProbeConfig, calibrate

TASKS = {
    "induction": (lr.Induction(symbols=12), lr.Span(6, 16), 1500),
    "copy": (lr.Copy(symbols=12), lr.Span(6, 10), 1500),
    "sparse_parity": (lr.SparseParity(k=lr.Span(1, 2)), lr.Span(12, 16), 2000),
}
for name, (task, lengths, steps) in TASKS.items():
    config = lr.RunConfig(
        task=task,
        ids=lr.Sequential(),
        model=lr.TransformerConfig(layers=2, width=64, heads=4),
        train=lr.TrainConfig(lengths=lengths, steps=steps, optimizer=lr.OptimizerConfig(lr=2e-3, warmup=100)),
        evaluate=lr.EvalConfig(lengths=lr.Lengths.parse(str(lengths.high)), samples=256, free_samples=16),
    )
    lr.run(config, out=f"runs/probe/{name}")
    _, model = lr.load_model(lr.RunFolder(Path("runs/probe") / name))
    for row in calibrate(OwnModel(model, name), task, lengths.high, 32, ProbeConfig(), [32, 64, 128, 256, 512]):
        print(name, row)
