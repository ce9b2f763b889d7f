"""What is computed again instead of kept changes nothing but the memory."""

import pytest
import torch
from catalogue import ATTENTIONS, ENCODINGS, label
from helpers import draw
from losses import token_losses

from longreach.api import AlibiConfig, Copy, Sequential, TransformerConfig, build_model
from longreach.attention import base
from longreach.engine.plan import choose
from longreach.engine.stacking import stack_models
from longreach.execution import ExecutionConfig

TASK = Copy()
SAMPLE = draw(TASK, [7, 3, 6, 7])
IDS = Sequential().evaluation_ids(TASK, SAMPLE)


def _model(**parts):
    config = TransformerConfig(layers=2, width=32, heads=2, **parts)
    return build_model(config, len(TASK.vocabulary), 0, max_id=40).double()


def _loss_and_gradients(model):
    losses = token_losses(model, SAMPLE, IDS)
    assert losses.dtype == torch.float64  # float32 anywhere would let the order of sums show
    loss = losses.sum()
    gradients = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    return [loss.detach(), *(g if g is not None else torch.zeros(()) for g in gradients)]


def _kept(model):
    """Numbers that a forward pass keeps for the backward pass."""
    found = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: found.append(x.numel()) or x, lambda x: x):
        token_losses(model, SAMPLE, IDS)
    return sum(found)


def _recomputing(model):
    plan = choose(model, ExecutionConfig(recompute=True), "cpu")
    assert "recomputed_layers" in plan.used
    return plan.training_model(model)


@pytest.mark.parametrize(
    ("attention", "encoding"),
    [
        (attention, encoding)
        for row, attention in enumerate(ATTENTIONS)
        for column, encoding in enumerate(ENCODINGS)
        if (row + column) % 3 == 0 or row == 0
    ],
    ids=label,
)
def test_attention_in_parts_is_attention(monkeypatch, attention, encoding):
    model = _model(attention=attention, encoding=encoding)
    whole = _loss_and_gradients(model)
    monkeypatch.setattr(base, "_SCORES", 4 * 2 * 16 * 3)  # a few queries at a time, or one
    for found, wanted in zip(_loss_and_gradients(model), whole, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("encoding", ENCODINGS, ids=label)
def test_recomputed_layers_are_layers(encoding):
    model = _model(encoding=encoding)
    twin = _recomputing(model)
    assert _kept(twin) < _kept(model)
    for found, wanted in zip(_loss_and_gradients(twin), _loss_and_gradients(model), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-11)


def test_recomputed_layers_of_a_stack():
    stack = stack_models([_model(), _model()])
    for found, wanted in zip(_loss_and_gradients(_recomputing(stack)), _loss_and_gradients(stack), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-11)


def test_a_bias_in_parts_keeps_no_square(monkeypatch):
    """Twice the length keeps about twice as much, and not four times."""
    monkeypatch.setattr(base, "_SCORES", 4 * 2 * 16)
    kept = []
    for length in (16, 32):
        sample = draw(TASK, [length] * 2)
        model, ids = _model(encoding=AlibiConfig()), Sequential().evaluation_ids(TASK, sample)
        found = []
        with torch.autograd.graph.saved_tensors_hooks(lambda x: found.append(x.numel()) or x, lambda x: x):  # noqa: B023
            model(sample.tokens, ids)
        kept.append(sum(found))
    assert kept[1] < 2.5 * kept[0]


def test_scores_of_tokens_in_parts(monkeypatch):
    for model in (_model(), _model(copy_head=True)):
        whole = _loss_and_gradients(model)
        with monkeypatch.context() as less:
            less.setattr("longreach.objectives.base._LOGITS", len(TASK.vocabulary) * 4 * 2)
            parts = _loss_and_gradients(model)
        for found, wanted in zip(parts, whole, strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-8)
