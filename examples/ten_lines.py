"""How far does a small transformer reach on parity, trained at up to 10 bits?"""

import longreach as lr

scores = lr.run(
    task="parity_scratchpad",
    ids={"name": "coupled", "form": "aligned", "max_id": 200},
    model={"layers": 2, "width": 64, "heads": 2, "attention": "scaled_softmax"},
    train={"lengths": (1, 10), "steps": 300, "optimizer": {"lr": 4e-3, "warmup": 50}},
    evaluate={"lengths": [10, 20, 40, 80], "samples": 128, "free_samples": 32},
    out="runs/ten_lines",
)
print("reach@0.9:", lr.reach_at([score for score in scores if score.metric == "token_em_free"], 0.9))
