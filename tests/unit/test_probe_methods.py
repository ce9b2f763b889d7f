"""The ways to measure influence, on a model whose answers are known: a rule instead of a network."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longreach.errors import BadInput
from longreach.probe import LanguageModel, Passage, ProbeConfig, probe, total_steps
from longreach.probe.faithfulness import rank_correlation
from longreach.probe.masks import always_seen, draw_masks
from longreach.probe.regression import Gram, choose_by_held_out, lasso, noise_level
from longreach.probe.sufficiency import top_tokens, tried_sizes

SIZE = 24
TARGET = SIZE - 1


class Rule(LanguageModel):
    """Says 1 with a log-odds that is a function of which tokens it sees; says nothing about other places."""

    def __init__(self, log_odds):
        super().__init__()
        self.name, self.vocabulary_size, self.longest, self.device = "rule (fp32)", 2, None, torch.device("cpu")
        self.numbers_per_token, self.heads = 1, 1
        self.log_odds, self.embedding = log_odds, torch.nn.Embedding(2, 1)

    def scores(self, tokens, positions, keep, at):
        size = tokens.shape[1]
        seen = torch.ones(len(tokens), size, size) if keep is None else keep.float()
        seen = torch.maximum(seen.tril(), torch.eye(size))
        embedded = self.embedding(tokens)[..., 0]
        odds = self.log_odds(seen[:, at] * (embedded / embedded.detach())[:, None])
        return torch.stack([torch.zeros_like(odds), odds], dim=-1)


def _probe(log_odds, **settings):
    config = ProbeConfig(**{"masks": 256, "held_out": 64, "largest_k": 8} | settings)
    tokens = torch.ones(SIZE, dtype=torch.long)
    return probe(Rule(log_odds), Passage("rule", tokens, ("1",) * SIZE), torch.tensor([TARGET]), config)


def _additive(seen):
    return 1.0 * seen[..., 3] + 2.0 * seen[..., 10] - 1.0 * seen[..., 15] - 1


def _all_of_three(seen):
    return 4 * (seen[..., 2] * seen[..., 9] * seen[..., 17]) - 2


def _either_of_two(seen):
    return 4 * torch.maximum(seen[..., 5], seen[..., 12]) - 2


@pytest.mark.parametrize("method", ["masks", "leave_one_out", "gradient"])
def test_tokens_that_add_up_are_found_by_every_method(method):
    found = _probe(_additive, method=method)
    assert set(found.influential[0].tolist()) == {3, 10, 15}
    assert found.weights[0, 15] < 0 < found.weights[0, 3] < found.weights[0, 10]
    assert found.span.tolist() == [TARGET - 3]
    assert found.faithfulness[0] > 0.8
    assert found.k_sufficient.tolist() == [1]  # the first makes up for the harm that the third does


@pytest.mark.parametrize("method", ["masks", "leave_one_out", "elimination"])
def test_tokens_that_matter_only_together_are_found(method):
    found = _probe(_all_of_three, method=method)
    assert set(found.influential[0].tolist()) == {2, 9, 17}
    assert found.k_sufficient.tolist() == [4]  # of the sizes that were tried


def test_of_two_tokens_that_say_the_same_elimination_keeps_one_and_leave_one_out_none():
    kept = _probe(_either_of_two, method="elimination")
    assert kept.k_weights.tolist() == [1]
    assert kept.influential[0].item() in (5, 12)
    assert _probe(_either_of_two, method="leave_one_out").k_weights.tolist() == [0]
    assert set(_probe(_either_of_two, method="masks").influential[0].tolist()) == {5, 12}


def test_a_parity_is_hidden_from_random_masks_and_not_from_elimination():
    def parity(seen):
        return 4 * (1 - 2 * seen[..., 4]) * (1 - 2 * seen[..., 11]) * (1 - 2 * seen[..., 18]) * -1

    assert set(_probe(parity, method="elimination").influential[0].tolist()) == {4, 11, 18}
    assert _probe(parity, method="masks", keep=0.5).k_weights.tolist() == [0]
    assert set(_probe(parity, method="masks", keep=0.9).influential[0].tolist()) >= {4, 11, 18}


def test_costs_are_those_of_the_method():
    costs = {method: _probe(_additive, method=method).cost for method in ("masks", "leave_one_out", "gradient")}
    assert (costs["masks"].forwards, costs["masks"].tokens) == (256, 256 * (SIZE - 1))
    assert costs["leave_one_out"].forwards == SIZE - 3
    assert (costs["gradient"].forwards, costs["gradient"].backwards) == (1, 1)


def test_a_window_is_never_hidden():
    found = _probe(_additive, window=12)
    assert found.weights[0, 11:].abs().max() == 0
    assert found.always[0].nonzero()[:, 0].tolist() == [0, *range(11, 23)]
    assert set(found.influential[0].tolist()) == {3, 10}


@settings(max_examples=8)
@given(st.integers(0, 2**32), st.sampled_from([0.02, 0.1, 0.3]))
def test_lasso_is_that_of_coordinate_descent(seed, penalty):
    draws = torch.Generator().manual_seed(seed)
    kept = torch.rand(40, 12, generator=draws) < 0.5
    outcomes = kept.float() @ torch.randn(12, 3, generator=draws) + 0.1 * torch.randn(40, 3, generator=draws)
    allowed = torch.rand(12, 3, generator=draws) < 0.8
    found = lasso(Gram.of(kept, outcomes), torch.full((3,), penalty), allowed)
    x, y = kept.double() - kept.double().mean(0), outcomes.double() - outcomes.double().mean(0)
    for column in range(3):
        w = torch.zeros(12, dtype=torch.double)
        for _ in range(60):
            for j in allowed[:, column].nonzero()[:, 0]:
                rest = y[:, column] - x @ w + x[:, j] * w[j]
                slope = x[:, j] @ rest / 40
                w[j] = slope.sign() * (slope.abs() - penalty).clamp(min=0) / (x[:, j] @ x[:, j] / 40)
        torch.testing.assert_close(found[:, column].double(), w, rtol=1e-2, atol=2e-3)


def test_the_penalty_is_chosen_for_every_outcome_alone():
    """One outcome has a few strong causes, the other is noise: the second gets next to nothing."""
    draws = torch.Generator().manual_seed(0)
    kept = torch.rand(96, 30, generator=draws) < 0.5
    outcomes = torch.randn(96, 2, generator=draws)
    outcomes[:, 0] = kept[:, 4] * 3.0 - kept[:, 20] * 2.0 + 0.1 * outcomes[:, 0]
    data = kept[:64], outcomes[:64], kept[64:], outcomes[64:]
    weights = choose_by_held_out(*data, torch.ones(30, 2).bool())
    noise = noise_level(weights, *data)
    assert weights[[4, 20], 0].tolist() == pytest.approx([3, -2], abs=0.2)
    assert (weights[:, 1].abs() > 3 * noise[1]).sum() == 0
    assert noise[1].item() == pytest.approx(1 / (64 * 0.25) ** 0.5, rel=0.3)
    assert noise[0] < 0.1


def test_noise_is_a_threshold_for_chance_and_no_interval_for_weights():
    """Of 200 outcomes with ten equal causes each, noise bounds the weights of other tokens.  Intervals of 1.96 times
    the noise cover small causes more often than 95%, large ones less often."""
    covered = {}
    for cause in (0.15, 0.5):
        draws = torch.Generator().manual_seed(0)
        kept = torch.rand(192, 40, generator=draws) < 0.5
        outcomes = cause * kept[:, :10].float().sum(1, keepdim=True) + torch.randn(192, 200, generator=draws)
        data = kept[:128], outcomes[:128], kept[128:], outcomes[128:]
        weights = choose_by_held_out(*data, torch.ones(40, 200).bool())
        noise = noise_level(weights, *data)
        assert (weights[10:].abs() > 3 * noise).double().mean() < 0.003
        assert weights[:10].mean() < 0.8 * cause  # shrunken
        covered[cause] = ((weights[:10] - cause).abs() < 1.96 * noise).double().mean()
    assert covered[0.15] > 0.98
    assert covered[0.5] < 0.92


def test_rank_correlation_shares_ranks_among_equals():
    one, other = torch.tensor([[1.0, 2, 2, 5]]), torch.tensor([[10.0, 30, 20, 40]])
    ranks = torch.tensor([[1.0, 2.5, 2.5, 4], [1, 3, 2, 4]])
    assert rank_correlation(one, other).item() == pytest.approx(torch.corrcoef(ranks)[0, 1].item())
    assert rank_correlation(one, torch.ones(1, 4)).isnan().all()


def test_rounding_breaks_no_tie_of_a_rank_correlation():
    """Equal masks give equal outcomes up to the order of sums."""
    outcomes = torch.tensor([[-3.0, -3.0, -1.0, -1.0, -1.0, -7.0]])
    rounding = torch.tensor([[2.0, -1.0, 0.0, 3.0, -2.0, 1.0]]) * 1e-7
    other = torch.tensor([[1.0, 2.0, 4.0, 3.0, 0.0, 5.0]])
    exact = rank_correlation(outcomes, other)
    for sign in (1, -1):
        assert torch.equal(rank_correlation(outcomes * (1 + sign * rounding), other), exact)
    assert rank_correlation(torch.full((1, 6), -3.0) * (1 + rounding), other).isnan().all()
    endless = torch.tensor([[1.0, torch.inf, torch.inf, 2.0, 3.0, 4.0]])
    assert torch.equal(rank_correlation(endless, other), rank_correlation(endless.clamp(max=9.0), other))


@given(st.integers(2, 60), st.integers(1, 5), st.sampled_from(["fixed", "range"]))
def test_a_mask_depends_on_its_number_alone(count, window, kind):
    config = ProbeConfig(keep=0.7, mask_kind=kind)
    many = draw_masks(config, "masks", count, 50)
    assert torch.equal(many[:2], draw_masks(config, "masks", 2, 50))
    assert torch.equal(many[:, :9], draw_masks(config, "masks", count, 9))
    assert not torch.equal(many, draw_masks(config, "held out", count, 50))
    always = always_seen(torch.tensor([1, 30]), 50, window)
    assert always[:, 0].all()
    assert always[1, 30 - window : 30].all()
    assert always[1].sum() == 1 + window


def test_masks_keep_what_they_say():
    fixed = draw_masks(ProbeConfig(keep=0.7), "masks", 400, 100).double().mean(1)
    assert fixed.mean().item() == pytest.approx(0.7, abs=0.01)
    ranging = draw_masks(ProbeConfig(keep=0.2, mask_kind="range"), "masks", 400, 100).double().mean(1)
    assert ranging.mean().item() == pytest.approx(0.6, abs=0.03)
    assert ranging.std() > 4 * fixed.std()


def test_sizes_double_and_end_where_told():
    assert tried_sizes(1) == (0, 1)
    assert tried_sizes(8) == (0, 1, 2, 4, 8)
    assert tried_sizes(6) == (0, 1, 2, 4, 6)


def test_top_tokens_help_and_are_earlier():
    weights = torch.tensor([[0, 0.5, -3.0, 0, 1.0, 0, 0, 0]])
    targets, never = torch.tensor([6]), torch.zeros(1, 8).bool()
    always = always_seen(targets, 8, 1)
    assert top_tokens(weights, targets, always, 2)[0].nonzero()[:, 0].tolist() == [1, 4]
    assert top_tokens(weights, targets, always, 3)[0].nonzero()[:, 0].tolist() == [1, 3, 4]
    assert top_tokens(weights, targets, always, 99)[0].nonzero()[:, 0].tolist() == [1, 2, 3, 4]
    assert torch.equal(top_tokens(weights, targets, always, 0), never)


def test_targets_must_lie_in_the_text():
    with pytest.raises(BadInput, match=r"targets must be in 1..23, got 0..0"):
        probe(Rule(_additive), Passage("", torch.ones(SIZE).long(), ("",) * SIZE), torch.tensor([0]), ProbeConfig())


@pytest.mark.parametrize("method", ["masks", "leave_one_out", "gradient", "elimination"])
def test_progress_ends_where_it_was_said_to(method):
    config, targets = ProbeConfig(method=method, masks=8, held_out=4, largest_k=2), torch.tensor([9, 20])
    told = []
    text = Passage("rule", torch.ones(SIZE, dtype=torch.long), ("1",) * SIZE)
    probe(Rule(lambda seen: seen[..., 3] + 0.0), text, targets, config, told.append)
    assert sum(told) == total_steps(config, targets)
