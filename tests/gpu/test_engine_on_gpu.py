"""Every part of the engine against the reference core, on a GPU."""

from pathlib import Path

import pytest
from catalogue import BIASES
from on_gpu import run_apart

pytest.importorskip("triton")

HERE = Path(__file__).parent
LOSSES = {"float64": 1e-6, "float32": 1e-5, "bf16": 0.01}
"""The largest relative difference of a loss; a step returns its losses in fp32."""


def test_fused_layers_are_as_close_to_fp32_as_plain_autocast():
    found = run_apart(HERE / "check_fused_layers_on_gpu.py")
    assert len(found) == 32 + 56 + 2
    for case, error in found.items():
        assert error["fused"] < 1.2 * error["plain"] < 0.02, (case, error)


def test_each_part_trains_as_the_core_does():
    found = run_apart(HERE / "check_training.py", "cuda")
    used = {part for case in found.values() for part in case["used"]}
    assert {"first_layer_by_token", "fused_layers", "short_attention", "rotary_kernel", "recorded_steps"} <= used
    assert "fused_layers" in found["llama, bf16, auto"]["used"]
    for kind in ("normalized", "equal IDs"):
        assert {"short_attention", "batches_ahead"} <= set(found[f"{kind}, bf16, auto"]["used"])
    assert "attention, float32, exact" in found
    for case, error in found.items():
        precision = case.split(", ")[1]
        assert error["losses"] < LOSSES[precision], (case, error)
        if precision == "float64":
            # a recorded step keeps the learning rate in fp32
            assert error["weights"] < (1e-6 if "recorded_steps" in error["used"] else 1e-9), (case, error)


def test_recorded_steps_train_as_plain_ones_do():
    cases = run_apart(HERE / "check_recorded_on_gpu.py")
    assert len(cases) == 10
    for case, found in cases.items():
        assert found["losses"] < 0.005, case
        assert found["weights"] < 0.05, case
        assert found["same bits twice"], case


def test_the_pointer_head_trains_as_the_core_does():
    cases = run_apart(HERE / "check_pointer_on_gpu.py")
    assert len(cases) == 6
    for case, found in cases.items():
        assert found["used"], case
        assert found["fp32"] < 1e-3, (case, found)
        assert found["fused"] < 1.3 * found["plain"] < 0.2, (case, found)
        assert found["losses"] < 0.02, (case, found)
        assert found["same bits twice"], case


def test_recorded_passes_decide_as_fp32_does():
    cases = run_apart(HERE / "check_judging_on_gpu.py")
    assert len(cases) > 20
    assert sum(found["settled"] for found in cases.values()) > 100  # other rows are judged in the plain way
    for case, found in cases.items():
        assert found["recorded"], case
        assert found["verdicts that differ"] == 0, case


def test_recorded_decoding_writes_the_same_answers():
    cases = run_apart(HERE / "check_decoding.py", "cuda")
    for case, found in cases.items():
        assert all(found.values()), (case, found)


def test_flex_attention_adds_the_bias():
    errors = run_apart(HERE.parent / "numerics" / "check_flex.py", "cuda")
    assert len(errors) == 3 * len(BIASES)
    for case, found in errors.items():
        # values, gradients of queries, keys and values, and of weights, which are sums of what nearly cancels
        bounds = (0.01, 0.02, 0.15) if "bfloat16" in case else (1e-5, 1e-4, 1e-3)  # tf32 would be off by more
        for errors_of, most in zip((found[:1], found[1:4], found[4:]), bounds, strict=True):
            assert all(error < most for error in errors_of), case
