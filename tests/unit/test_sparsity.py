"""Does k explain how a loss changes with context?  On numbers whose truth is known."""

import numpy as np
import pytest
import torch

from longreach.api import LlamaConfig, build_model
from longreach.evaluation import ContextLoss, choose_targets, loss_by_context, next_tokens, resampled_documents
from longreach.positions.ids import Sequential
from longreach.probe import OwnModel, ProbeConfig, predicting, probe_targets, summarise_sparsity
from longreach.probe.sparsity import CONTROLS, changes_by_k, slopes, sufficiency
from longreach.tasks import Text
from longreach.text import Corpus

TOKENS = 4000


def made_up(of_k: float, of_entropy: float) -> tuple[ContextLoss, dict[str, torch.Tensor]]:
    """Losses that grow with log2(1 + k) and with entropy, where entropy and k go together; 40 documents."""
    random = np.random.default_rng(1)
    k = torch.from_numpy(random.choice([0, 1, 3, 7, 20, 50], TOKENS)).float()
    doubling = torch.log2(1 + k)
    entropy = doubling + torch.from_numpy(random.normal(size=TOKENS)).float()
    base = torch.from_numpy(random.normal(3, 1, TOKENS)).float()
    longer = base + of_k * doubling + of_entropy * entropy + 0.1 * torch.from_numpy(random.normal(size=TOKENS))
    document = torch.arange(TOKENS) % 40
    index = torch.arange(TOKENS)
    losses = ContextLoss(
        (64, 256), torch.stack([base, longer.float()]), torch.zeros(2, TOKENS).bool(), index, index, document
    )
    noise = {name: torch.from_numpy(random.normal(size=TOKENS)).float() for name in CONTROLS}
    ks = dict.fromkeys(("k_sufficient", "k_weights", "k_participation"), k)
    return losses, {**noise, **ks, "entropy": entropy}


def slope_of(losses, facts, controlled: bool):
    (found,) = [
        row for row in slopes(losses, facts, 64) if row.definition == "k_sufficient" and row.controlled == controlled
    ]
    return found


def test_slopes_are_found() -> None:
    found = slope_of(*made_up(of_k=0.3, of_entropy=0), controlled=False)
    assert found.context == 256
    assert found.low < 0.3 < found.high
    assert found.high - found.low < 0.05


def test_what_goes_with_k_does_not_pass_for_k() -> None:
    """The change comes from entropy alone: k seems to explain it until entropy is held equal."""
    losses, facts = made_up(of_k=0, of_entropy=0.5)
    assert slope_of(losses, facts, controlled=False).low > 0.3
    controlled = slope_of(losses, facts, controlled=True)
    assert controlled.low < 0 < controlled.high


def test_changes_are_told_by_bins_of_k() -> None:
    losses, facts = made_up(of_k=1, of_entropy=0)
    found = {(row.k, row.context): row for row in changes_by_k(losses, facts, 64)}
    assert [row.nats for (_, context), row in found.items() if context == 64] == [0] * 5
    assert found["0", 256].nats == pytest.approx(0, abs=0.02)
    assert found["1-2", 256].nats == pytest.approx(1, abs=0.02)
    assert found["over 32", 256].nats == pytest.approx(np.log2(51), abs=0.02)
    assert sum(row.tokens for (_, context), row in found.items() if context == 64) == TOKENS


def test_documents_are_drawn_whole() -> None:
    document = torch.tensor([3, 3, 8, 8, 8, 9])
    weights = resampled_documents(document)
    assert torch.equal(weights[:, 0], weights[:, 1])
    assert torch.equal(weights[:, 2], weights[:, 4])
    assert (weights[:, [0, 2, 5]].sum(1) == 3).all()


def test_a_model_from_end_to_end(corpus: str) -> None:
    opened = Corpus.open(corpus)
    model = build_model(LlamaConfig(layers=2, width=32, heads=2), opened.meta.vocabulary, seed=0)
    asked = OwnModel(model, "tiny")
    split = opened.split("test")
    targets = choose_targets(split, 128, 128, seed=0)
    losses = loss_by_context(predicting(asked), split, targets, [96, 128], 4096, "cpu")
    ours = loss_by_context(next_tokens(model, Text(corpus=corpus), Sequential()), split, targets, [96, 128], 999, "cpu")
    torch.testing.assert_close(losses.nats, ours.nats, atol=1e-5, rtol=0)
    probed = probe_targets(asked, opened, split, targets, 96, ProbeConfig(masks=16, held_out=8, largest_k=4))
    summary, facts = summarise_sparsity(asked, split, opened.split("train"), probed, losses, 96)
    # a window of 96 tokens: the last 64 are predicted from 32 to 95 of them
    assert facts["loss"][63] == pytest.approx(float(probed[0].loss[63]))
    assert summary["tokens"] == len(losses.token) == 128
    assert [row["k"] for row in sufficiency(probed, losses.document)] == [0, 1, 2, 4]
    assert 0 <= summary["few"]["k_sufficient"][0] <= 1
