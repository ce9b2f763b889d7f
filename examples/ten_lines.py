"""How far does a small transformer reach on parity, trained at up to 10 bits?"""

import longreach as lr

config = lr.RunConfig(
    task=lr.ParityScratchpad(),
    ids=lr.Coupled(form="aligned", max_id=200),
    model=lr.TransformerConfig(layers=2, width=64, heads=2, attention=lr.ScaledSoftmaxConfig()),
    train=lr.TrainConfig(lengths=lr.Span(1, 10), steps=300, optimizer=lr.OptimizerConfig(lr=4e-3, warmup=50)),
    evaluate=lr.EvalConfig(lengths=lr.Lengths.parse("10,20,40,80"), samples=128, free_samples=32),
)
scores = lr.run(config, out="runs/ten_lines")
print("reach@0.9:", lr.reach([score for score in scores if score.metric == "token_em_free"], 0.9))
