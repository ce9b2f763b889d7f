"""Recorded steps against plain ones."""

from pathlib import Path

import pytest
import torch
from on_gpu import run_apart


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_recorded_steps_train_as_plain_ones_do():
    for case, found in run_apart(Path(__file__).with_name("check_recorded_on_gpu.py")).items():
        assert found["losses"] < 0.005, case
        assert found["weights"] < 0.05, case
        assert found["same bits twice"], case
