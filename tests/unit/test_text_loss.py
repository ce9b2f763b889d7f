"""Loss by context and position: equal to a pass per token, the same tokens for every context."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from longreach.api import Sequential, TransformerConfig, build_model
from longreach.config.spans import Lengths
from longreach.errors import BadInput
from longreach.evaluation import ContextLoss, EvalConfig, HoldsTo, evaluate_text, next_tokens, over_documents
from longreach.evaluation.context import BLOCK, choose_targets, loss_by_context, loss_by_position, predicted_at_once
from longreach.evaluation.text import check_text_test, sizes_held
from longreach.tasks import Text
from longreach.text import Split

VOCABULARY = 11


def made_up(sizes: list[int]) -> Split:
    """Documents of these sizes, of random tokens."""
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    tokens = np.random.default_rng(0).integers(2, VOCABULARY, starts[-1]).astype(np.uint16)
    tokens[starts[1:] - 1] = 1
    return Split("test", tokens, starts)


def small_model() -> torch.nn.Module:
    return build_model(TransformerConfig(layers=2, width=16, heads=2), VOCABULARY, seed=3).eval()


@torch.no_grad()
def predict_each(model, tokens: list[int]) -> float:
    """The last token's loss, in a pass of its own."""
    row = torch.tensor([tokens])
    logits = model.all_logits(row[:, :-1], torch.arange(len(tokens) - 1)[None, None])
    return float(torch.nn.functional.cross_entropy(logits[:, -1], row[:, -1]))


@given(st.lists(st.integers(1, 400), min_size=1, max_size=8), st.integers(1, 120))
def test_targets_lie_in_one_document_behind_their_context(sizes: list[int], context: int) -> None:
    split = made_up(sizes)
    if max(sizes) < context + BLOCK:
        with pytest.raises(BadInput, match=f"no document has {context} tokens of context"):
            choose_targets(split, 512, context, seed=0)
        return
    targets = choose_targets(split, 512, context, seed=0)
    first, last = split.starts[targets.document], split.starts[targets.document + 1]
    assert bool((targets.start.numpy() - context >= first).all())
    assert bool((targets.start.numpy() + BLOCK <= last).all())


@pytest.mark.parametrize("context", [1, 5, 16, 100])
def test_loss_equals_a_pass_per_token(context: int) -> None:
    split, model = made_up([300, 250]), small_model()
    targets = choose_targets(split, 2 * BLOCK, 100, seed=0)
    predict = next_tokens(model, Text(), Sequential())
    found = loss_by_context(predict, split, targets, [context], batch_tokens=700, device="cpu")
    stride = predicted_at_once(context)
    assert stride <= max(1, context / 8)
    for number in range(0, 2 * BLOCK, 7):
        place = int(found.place[number])
        begin = place - number % stride - context  # the window that this token is predicted in
        expected = predict_each(model, split.tokens[begin : place + 1].tolist())
        assert float(found.nats[0, number]) == pytest.approx(expected, abs=1e-5)


def test_every_context_predicts_the_same_tokens_and_batches_do_not_matter() -> None:
    split, model = made_up([300, 250, 400]), small_model()
    targets = choose_targets(split, 3 * BLOCK, 128, seed=0)
    predict = next_tokens(model, Text(), Sequential())
    one = loss_by_context(predict, split, targets, [8, 128], batch_tokens=1, device="cpu")
    many = loss_by_context(predict, split, targets, [8, 128], batch_tokens=100_000, device="cpu")
    assert torch.equal(one.token, torch.from_numpy(split.tokens[one.place.numpy()].astype(np.int64)))
    torch.testing.assert_close(one.nats, many.nats)
    assert torch.equal(one.right, many.right)


@pytest.mark.parametrize(
    ("curve", "held"),
    [([5.0, 4.0, 4.04, 4.06, 3.0], 3), ([5.0, 4.0, 4.04, 4.049], 4), ([1.0, 2.0, 0.5], 1), ([3.0], 1), ([2.0, 1.0], 2)],
)
def test_a_loss_holds_up_to_its_first_rise_above_the_least(curve: list[float], held: int) -> None:
    assert sizes_held(torch.tensor([curve, curve]).T.double()).tolist() == [held, held]


def test_holds_to_has_an_interval_over_documents() -> None:
    # 9 documents hold to 32, one rises at once: seldom drawn three times, which it takes to lift the mean
    nats = torch.tensor([[3.0] * 10, [2.0] * 9 + [3.3], [1.9] * 9 + [3.2], [2.9] * 10]).repeat_interleave(4, 1)
    document = torch.arange(10).repeat_interleave(4)
    place = torch.arange(40)
    losses = ContextLoss((8, 16, 32, 64), nats, nats > 0, place, place, document)
    assert str(HoldsTo.of(losses)) == "32 (32 to 32)"
    risen = ContextLoss((8, 16, 32, 64), nats + torch.tensor([0, 0, 0.1, 0])[:, None], nats > 0, place, place, document)
    assert str(HoldsTo.of(risen)) == "32 (32 to 32)"
    split = nats.clone()
    split[1, 20:] = 4.1  # of one half of the documents
    found = HoldsTo.of(ContextLoss((8, 16, 32, 64), split, nats > 0, place, place, document))
    assert (found.low, found.high) == (8, 32)
    alone = ContextLoss((8, 16, 32, 64), nats, nats > 0, place, place, torch.zeros(40, dtype=torch.long))
    assert str(HoldsTo.of(alone)) == "32"


def test_loss_by_position_is_the_mean_over_each_bucket() -> None:
    split, model = made_up([300, 250]), small_model()
    targets = choose_targets(split, 2 * BLOCK, 60, seed=0)
    predict = next_tokens(model, Text(), Sequential())
    found = loss_by_position(predict, split, targets, 60, batch_tokens=64, device="cpu")
    assert found.edges[0] == 1
    assert found.edges[-1] == 60
    end = int(targets.start[0]) + BLOCK
    window = split.tokens[end - 60 : end].tolist()
    each = [predict_each(model, window[: position + 1]) for position in range(1, 60)]
    for bucket, (low, high) in enumerate(zip(found.edges[:-1], found.edges[1:], strict=True)):
        expected = sum(each[low - 1 : high - 1]) / (high - low)
        assert float(found.nats[0, bucket]) == pytest.approx(float(expected), abs=1e-4)


def test_results_survive_a_file(tmp_path) -> None:
    split, model = made_up([300, 250]), small_model()
    config = EvalConfig(lengths=Lengths((8, 16)), samples=8 * BLOCK, free_samples=0)
    result = evaluate_text(next_tokens(model, Text(), Sequential()), split, config, seed=4, device="cpu")
    result.by_context.save(tmp_path / "losses.safetensors")
    again = ContextLoss.load(tmp_path / "losses.safetensors")
    assert again.contexts == (8, 16)
    assert torch.equal(again.nats, result.by_context.nats)
    by_context = [loss for loss in result.losses if loss.by == "context"]
    assert [loss.size for loss in by_context] == [8, 16]
    assert by_context[0].nats == pytest.approx(float(again.nats[0].mean()), abs=1e-6)
    assert by_context[0].low <= by_context[0].nats <= by_context[0].high
    assert [score.hits for score in result.scores] == again.right.sum(1).tolist()


def test_documents_are_the_unit_of_intervals() -> None:
    """Many tokens of two unlike documents: the mean is as uncertain as two draws."""
    document = torch.tensor([0] * 500 + [1] * 500)
    values = document.double() + torch.zeros(1000, dtype=torch.double)
    mean, low, high = over_documents(values, document)
    assert (float(mean), float(low), float(high)) == (0.5, 0, 1)
    alone = over_documents(values, torch.zeros_like(document))
    assert torch.isnan(alone[1])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"free_samples": 4}, "set evaluate.free_samples to 0"),
        ({"free_samples": 0, "control": "shuffled"}, "evaluate.control does not concern text"),
        ({"free_samples": 0, "axes": {"split": ["test"]}}, "evaluate.axes does not concern text"),
    ],
)
def test_settings_without_use_are_refused(changes, message) -> None:
    with pytest.raises(BadInput, match=message):
        check_text_test(EvalConfig(**changes))
