"""How far does a small transformer reach on parity, trained at up to 10 bits?"""

from longreach.api import (
    Coupled,
    EvalConfig,
    Lengths,
    ModelConfig,
    OptimizerConfig,
    ParityScratchpad,
    RunConfig,
    ScaledSoftmaxConfig,
    Span,
    TrainConfig,
    reach,
    run,
)

config = RunConfig(
    task=ParityScratchpad(),
    ids=Coupled(form="aligned", max_id=200),
    model=ModelConfig(layers=2, width=64, heads=2, attention=ScaledSoftmaxConfig()),
    train=TrainConfig(lengths=Span(1, 10), steps=300, batch_size=64, optimizer=OptimizerConfig(lr=4e-3, warmup=50)),
    evaluate=EvalConfig(lengths=Lengths.parse("10,20,40,80"), samples=128, free_samples=32),
)
scores = run(config, out="runs/ten_lines")
print("reach@0.9:", reach([score for score in scores if score.metric == "token_em_free"], 0.9))
