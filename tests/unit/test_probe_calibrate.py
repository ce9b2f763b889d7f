"""The probe against the truth: a task that says what its answers depend on, and a model that follows its rule."""

from dataclasses import asdict

import pytest
import torch

from longreach.api import Induction, Planted, TransformerConfig, build_model
from longreach.errors import BadInput
from longreach.probe import LanguageModel, OwnModel, ProbeConfig, calibrate
from longreach.probe.calibration_figure import draw_calibration, draw_calibrations
from longreach.tasks.planted_laws import SumMod, UniformTokens


class Rule(LanguageModel):
    """Follows a rule as far as it sees what the rule needs."""

    def __init__(self, task):
        super().__init__()
        self.task = task
        self.name, self.vocabulary_size = f"rule of {task.name} (fp32)", len(task.vocabulary)
        self.longest, self.device = None, torch.device("cpu")
        self.numbers_per_token, self.heads = 1, 1
        self.embedding = torch.nn.Embedding(self.vocabulary_size, 1)

    def scores(self, tokens, positions, keep, at):
        seen = torch.ones_like(tokens, dtype=torch.bool) if keep is None else keep[:, -1].clone()
        seen[:, -1] = True
        # so that there is a gradient to take, if not one that says anything
        return (6.0 * self.votes(tokens, seen) + 0 * self.embedding(tokens).sum((1, 2))[:, None])[:, None]


class Inducer(Rule):
    """Says what followed the last token when it was seen before, if it sees both."""

    def votes(self, tokens, seen):
        before = (tokens[:, :-2] == tokens[:, -1:]) & seen[:, :-2] & seen[:, 1:-1]
        return (torch.nn.functional.one_hot(tokens[:, 1:-1], self.vocabulary_size) * before[..., None]).sum(1)


class Summer(Rule):
    """Says the sum of the planted tokens it sees, which are those that background never has."""

    def votes(self, tokens, seen):
        number = tokens - 1  # after padding
        total = (number * ((number >= self.task.q_voc.low) & seen)).sum(1)
        return torch.nn.functional.one_hot(1 + self.task.vocab_size + total, self.vocabulary_size)


def sum_of(k):
    """No subset of the planted tokens has the sum of all: every one of them matters, always."""
    return Planted(k=k, q_voc=UniformTokens(low=2, high=3), g_star=SumMod(p=3 * k + 1))


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


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_planted_tokens_are_found_exactly_and_better_with_more_masks(k):
    task = sum_of(k)
    config = ProbeConfig(largest_k=8)
    few, many, alone, gradient, eliminated = calibrate(Summer(task), task, 12, 8, config, budgets=[8, 64])
    for exact in (alone, eliminated):
        assert (exact.precision, exact.recall, exact.ranked) == (1.0, 1.0, 1.0)
        assert exact.k_needed == exact.k_weights <= k
        assert (exact.k_error_weights, exact.k_error_participation) == (0, pytest.approx(0, abs=1e-4))
        assert exact.k_error_sufficient == 0 if k < 3 else exact.k_error_sufficient <= 1  # 4 is tried, 3 is not
    assert gradient.k_error_weights == gradient.k_needed  # for it names none
    assert few.recall < many.recall
    assert many.recall > 0.9
    assert many.precision > 0.9
    assert few.k_error_weights > many.k_error_weights


def test_tasks_are_drawn_side_by_side():
    found = {
        f"k = {k}": calibrate(Summer(sum_of(k)), sum_of(k), 8, 2, ProbeConfig(held_out=4, largest_k=2), [4, 8])
        for k in (1, 2)
    }
    precision, recall, error = draw_calibrations(found, "sums").axes
    assert [line.get_label() for line in recall.get_lines()] == [
        "k = 1", "k = 1, leave one out", "k = 2", "k = 2, leave one out"
    ]  # fmt: skip
    assert list(precision.get_lines()[1].get_ydata()) == [1.0]
    assert list(error.get_lines()[2].get_ydata()) == [row.k_error_weights for row in found["k = 2"][:2]]


def test_a_model_that_knows_no_answer_tells_nothing():
    task = Induction(symbols=8)
    model = OwnModel(build_model(TransformerConfig(layers=1, width=16, heads=2), len(task.vocabulary), 0), "new")
    with pytest.raises(BadInput, match="answers none of 3 samples"):
        calibrate(model, task, 10, 3, ProbeConfig(), budgets=[8])
