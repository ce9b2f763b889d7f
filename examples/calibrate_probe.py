"""How well does the probe find the tokens that answers depend on?  Tiny models, up to a few minutes on a CPU each.

All of them, or those that are named: python examples/calibrate_probe.py planted_1 planted_2 planted_3 planted_4
"""

import sys
from pathlib import Path

import longreach as lr
from longreach.probe import OwnModel, ProbeConfig, calibrate
from longreach.probe.calibration_figure import draw_calibrations
from longreach.tasks.planted_laws import SumMod, UniformTokens


def planted(k: int) -> lr.Planted:
    """The label is the sum of k tokens of 2..17.  Without any one of them 16 labels are equally likely, so that no
    model can know it; and p is so large that nothing wraps around."""
    return lr.Planted(k=k, vocab_size=18, q_voc=UniformTokens(low=2, high=17), g_star=SumMod(p=17 * k + 1))


TASKS = {
    "induction": (lr.Induction(symbols=12), lr.Span(6, 16), 1500),
    "copy": (lr.Copy(symbols=12), lr.Span(6, 10), 1500),
    "sparse_parity": (lr.SparseParity(k=lr.Span(1, 2)), lr.Span(12, 16), 2000),
    "planted_1": (planted(1), lr.Span(12, 16), 1000),
    "planted_2": (planted(2), lr.Span(12, 16), 2000),
    "planted_3": (planted(3), lr.Span(12, 16), 3000),
    "planted_4": (planted(4), lr.Span(12, 16), 4000),
}
unknown = set(sys.argv[1:]) - set(TASKS)
if unknown:
    sys.exit(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(TASKS)}")
found = {}
for name in sys.argv[1:] or TASKS:
    task, lengths, steps = TASKS[name]
    config = lr.RunConfig(
        task=task,
        ids=lr.Sequential(),
        model=lr.TransformerConfig(layers=2, width=64, heads=4),
        train=lr.TrainConfig(lengths=lengths, steps=steps, optimizer=lr.OptimizerConfig(lr=2e-3, warmup=100)),
        evaluate=lr.EvalConfig(lengths=lr.Lengths.parse(str(lengths.high)), samples=256, free_samples=16),
    )
    folder = Path("runs/probe") / name
    lr.run(config, out=folder, resume=folder.exists())
    _, model = lr.load_model(lr.RunFolder(folder))
    found[name] = calibrate(OwnModel(model, name), task, lengths.high, 32, ProbeConfig(), [32, 64, 128, 256, 512])
    for row in found[name]:
        print(name, row)
draw_calibrations(found, "circles: 32 to 512 masks; squares: leave one out").savefig(
    "runs/probe/calibration.png", dpi=150
)
