"""States at some places are those that a pass over all places gives there."""

import pytest
import torch
from helpers import draw
from hypothesis import given
from hypothesis import strategies as st
from losses import token_losses

from longreach.api import (
    AlibiConfig,
    Copy,
    EntmaxConfig,
    LlamaConfig,
    RecurrentConfig,
    ScaledSoftmaxConfig,
    Sequential,
    TransformerConfig,
    build_model,
)
from longreach.model import at_places
from longreach.objectives import select, token_targets

CONFIGS = {
    "parallel": TransformerConfig(layers=2, width=16, heads=2),
    "one after the other": TransformerConfig(layers=2, width=16, heads=2, parallel_residual=False),
    "looped": TransformerConfig(layers=2, width=16, heads=2, loops=3, inject=True, attention=ScaledSoftmaxConfig()),
    "biases and entmax": TransformerConfig(
        layers=1, width=16, heads=2, encoding=AlibiConfig(), attention=EntmaxConfig()
    ),
    "llama": LlamaConfig(layers=2, width=16, heads=4, kv_heads=2),
    "recurrent": RecurrentConfig(layers=2, width=16),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_places_and_their_loss(name):
    task = Copy()
    sample = draw(task, [3, 7, 5])
    ids = Sequential().evaluation_ids(task, sample)
    model = build_model(CONFIGS[name], len(task.vocabulary), 0).double()
    everywhere = model(sample.tokens[:, :-1], ids[:, :, :-1])
    at, valid = select(token_targets(sample))
    some = model(sample.tokens[:, :-1], ids[:, :, :-1], at=at)
    torch.testing.assert_close(some, at_places(everywhere, at), rtol=1e-10, atol=1e-12)
    scores = model.all_logits(sample.tokens[:, :-1], ids[:, :, :-1]).log_softmax(-1)
    right = scores.gather(2, sample.tokens[:, 1:, None])[..., 0].masked_fill(~token_targets(sample), 0)
    torch.testing.assert_close(token_losses(model, sample, ids), -right.sum(1), rtol=1e-10, atol=1e-12)
    assert bool(valid.any())


@given(st.lists(st.lists(st.booleans(), min_size=5, max_size=5), min_size=1, max_size=4))
def test_wanted_places_come_first_and_in_order(rows):
    wanted = torch.tensor(rows)
    at, valid = select(wanted)
    assert torch.equal(at, (~wanted).to(torch.uint8).argsort(dim=1, stable=True)[:, : at.shape[1]])
    assert torch.equal(valid, wanted.gather(1, at))
    assert at.shape[1] == int(wanted.sum(1).max())
