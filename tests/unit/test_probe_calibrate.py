"""The probe against the truth: a task that says what its answers depend on, and a model that follows its rule."""

from dataclasses import asdict

import pytest
import torch

from longreach.api import Induction, TransformerConfig, build_model
from longreach.errors import BadInput
from longreach.probe import LanguageModel, OwnModel, ProbeConfig, calibrate
from longreach.probe.calibration_figure import draw_calibration


class Inducer(LanguageModel):
    """Says what followed the last token when it was seen before, if it sees both."""

    def __init__(self, task):
        super().__init__()
        self.name, self.vocabulary_size = "inducer (fp32)", len(task.vocabulary)
        self.longest, self.device = None, torch.device("cpu")
        self.numbers_per_token, self.heads = 1, 1
        self.embedding = torch.nn.Embedding(self.vocabulary_size, 1)

    def scores(self, tokens, positions, keep, at):
        size = tokens.shape[1]
        seen = torch.ones(len(tokens), size, size, dtype=torch.bool) if keep is None else keep
        last = seen[:, -1].clone()
        last[:, -1] = True
        before = (tokens[:, :-2] == tokens[:, -1:]) & last[:, :-2] & last[:, 1:-1]
        followed = torch.nn.functional.one_hot(tokens[:, 1:-1], self.vocabulary_size) * before[..., None]
        # so that there is a gradient to take, if not one that says anything
        return (6.0 * followed.sum(1) + 0 * self.embedding(tokens).sum((1, 2))[:, None])[:, None]


def test_methods_are_measured_against_what_the_task_needs():
    task = Induction(symbols=8)
    config = ProbeConfig(held_out=16, largest_k=4, tau=0.3)
    rows = calibrate(Inducer(task), task, 12, 6, config, budgets=[64, 192])
    by_name = {(row.method, row.masks): row for row in rows}
    assert list(by_name) == [
        ("masks", 64), ("masks", 192), ("leave_one_out", None), ("gradient", None), ("elimination", None)
    ]  # fmt: skip
    exact = by_name["leave_one_out", None]
    assert (exact.precision, exact.recall, exact.ranked) == (1.0, 1.0, 1.0)
    assert exact.k_weights == exact.k_needed == exact.k_sufficient
    assert by_name["elimination", None].recall == 1.0
    assert by_name["masks", 192].recall >= by_name["masks", 64].recall > 0.5
    assert by_name["masks", 192].faithfulness > 0.5
    assert by_name["gradient", None].recall == 0
    assert by_name["masks", 192].tokens == 192 * 12
    assert asdict(exact)["answers"] > 0
    recall = draw_calibration(rows, "inducer").axes[1]
    curve, *marks = recall.get_lines()
    assert curve.get_xdata().tolist() == [64 * 12, 192 * 12]
    assert [mark.get_ydata()[0] for mark in marks] == [row.recall for row in rows[2:]]


def test_a_model_that_knows_no_answer_tells_nothing():
    task = Induction(symbols=8)
    model = OwnModel(build_model(TransformerConfig(layers=1, width=16, heads=2), len(task.vocabulary), 0), "new")
    with pytest.raises(BadInput, match="answers none of 3 samples"):
        calibrate(model, task, 10, 3, ProbeConfig(), budgets=[8])
