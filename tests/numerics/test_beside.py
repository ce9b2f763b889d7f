"""Gradients of weights that come after the backward pass."""

from pathlib import Path

import pytest
from on_gpu import run_apart

pytest.importorskip("triton")


def test_only_the_optimizer_waits_for_gradients_of_weights():
    found = run_apart(Path(__file__).with_name("check_beside.py"), interpreted=True)
    assert len(found["late"]) == 6
    for case, late in found["late"].items():
        # twelve of each of two layers and two of the last norm, or seven and one: all but embeddings and head
        count = 15 if case.startswith("Llama") else 26
        assert late == {"late": count, "found right": True, "same": True}, case
    assert [change for change, right in found["found right"].items() if right] == ["as it is"]
