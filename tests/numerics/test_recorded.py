"""Recorded steps against plain ones."""

from pathlib import Path

import pytest
import torch
from on_gpu import run_apart

pytest.importorskip("triton")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_recorded_steps_train_as_plain_ones_do():
    cases = run_apart(Path(__file__).with_name("check_recorded_on_gpu.py"))
    assert len(cases) == 4
    for case, found in cases.items():
        assert found["losses"] < 0.005, case
        assert found["weights"] < 0.05, case
        assert found["same bits twice"], case
