"""What must hold for every ID policy, and for relabelling."""

import random
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch
from catalogue import POLICIES, TASKS, label
from helpers import TINY, draw, legal
from hypothesis import given
from hypothesis import strategies as st

from longreach.api import (
    Abacus,
    Addition,
    Copy,
    Coupled,
    Oracle,
    ParityScratchpad,
    Planted,
    Pose,
    Predicted,
    Program,
    Randomized,
    RandomStart,
    Sequential,
    Span,
    UniformPose,
    VariableAssignment,
    build_model,
    generate,
)
from longreach.config import LARGEST_ID
from longreach.config.registry import entries
from longreach.errors import BadInput
from longreach.positions.ids import coverage
from longreach.seeding import stream
from longreach.tasks import PAD
from longreach.tasks.relabelling import increasing


def _prompt_ids_are_known(task, policy):
    return not isinstance(policy, Predicted) or getattr(task, "query_id", "reserved") == "reserved"


SHORT = [task for task in TASKS if task.max_tokens(20) <= 500]


def _goes_with(task, policy):
    if isinstance(policy, Abacus):
        return any(word[0].isdigit() for word in task.vocabulary)
    if not isinstance(policy, Coupled):  # those that count do not look at what a task is: some tasks will do
        return task in SHORT[::12]
    by_rule = task.coupling_by_rule or not policy.needs_rule
    return task.coupling_levels and by_rule and _prompt_ids_are_known(task, policy)


PAIRS = [(task, policy) for task in TASKS for policy in POLICIES if _goes_with(task, policy)]


def test_the_catalogue_has_every_registered_policy():
    assert {type(policy) for policy in POLICIES} >= set(entries("ids").values())


@pytest.mark.parametrize(("task", "policy"), PAIRS, ids=label)
def test_relabelling_keeps_order_and_stays_in_range(task, policy):
    sample = draw(task, legal(task, [6, 9, 14, 20] * 20))
    policy.check(task, sample)
    plain = policy.assign(task, sample)
    ids = policy.relabel(task, sample, plain, stream(1, "ids", torch.arange(80)))
    assert ids.shape == plain.shape == (80, len(policy.level_sizes(task)), sample.tokens.shape[1])
    inside = torch.arange(plain.shape[2]) < sample.num_tokens[:, None]
    inside = inside[:, None].expand_as(plain)
    assert (ids[inside] >= 0).all()
    if policy.max_id:
        assert ids[inside].max() <= policy.max_id
    if isinstance(policy, Coupled):
        assert torch.equal(ids == 0, plain == 0)
    counted = inside & (plain > 0) if isinstance(policy, Coupled) else inside
    plain, order = plain.masked_fill(~counted, LARGEST_ID + 1).sort()
    neighbours = counted.gather(-1, order)[..., 1:]
    assert torch.equal(ids.gather(-1, order).diff().sign()[neighbours], plain.diff().sign()[neighbours])


@given(seed=st.integers(0, 500), m=st.integers(1, 30), room=st.integers(0, 300))
def test_the_increasing_map_is_increasing_and_fits(seed, m, room):
    ids = torch.arange(0, m + 1).expand(16, m + 1)
    image = increasing(ids, m + room, stream(seed, "r", torch.arange(16)))
    assert (image[:, 0] == 0).all()
    assert (image.diff(dim=1) >= 1).all()
    assert image.max() <= m + room


def test_the_increasing_map_trains_every_id_and_dense_gaps():
    ids = torch.arange(1, 11).expand(100_000, 10)
    image = increasing(ids, 400, stream(0, "r", torch.arange(100_000)))
    counts = torch.bincount(image.flatten(), minlength=401)[1:]
    average = counts.double().mean()
    assert counts.min() > 0.1 * average  # every single ID, the first and the last too
    assert counts[1:-1].min() > 0.3 * average
    gaps = image.diff(dim=1)
    assert (gaps == 1).double().mean() > 0.15
    assert (gaps > 20).double().mean() > 0.05


def test_pose_cuts_into_chunks_and_covers_the_range():
    task, policy = ParityScratchpad(), Pose(max_id=300, chunks=2)
    sample = draw(task, [10] * 20_000)
    ids = policy.relabel(task, sample, policy.assign(task, sample), stream(0, "p", torch.arange(20_000)))[:, 0]
    assert (ids[:, 0] == 0).all()
    steps = ids.diff(dim=1)
    assert ((steps > 1).sum(1) <= 1).all()
    assert (steps >= 1).all()
    assert ids.max() == 300
    skips = ids[:, -1] - 22
    assert abs(skips.double().mean() - 139) < 3  # uniform over 0..278
    again = policy.relabel(task, sample, policy.assign(task, sample), stream(0, "p2", torch.arange(20_000)))[:, 0]
    assert not torch.equal(ids, again)


def _pose_by_its_authors(num_tokens, max_id, rng):
    """A window's IDs, drawn one after another as the authors' code does."""
    first, skip = rng.randint(1, (num_tokens + 1) // 2), rng.randint(0, max_id + 1 - num_tokens)
    return first, [index + skip * (index >= first) for index in range(num_tokens)]


def test_pose_limits_the_first_chunk_as_its_authors_do():
    task, policy = ParityScratchpad(), Pose(max_id=300, first_chunk="half")
    sample = draw(task, [10] * 20_000)  # of 23 tokens
    ids = policy.training_ids(task, sample, stream(0, "p", torch.arange(20_000)))[:, 0]
    cuts = ((ids - torch.arange(23)) > 0).int().argmax(1)[ids[:, -1] > 22]
    rng = random.Random(0)
    theirs = [first for first, drawn in (_pose_by_its_authors(23, 300, rng) for _ in range(20_000)) if drawn[-1] > 22]
    assert {int(cut) for cut in cuts} == set(theirs) == set(range(1, 13))
    ours, expected = torch.bincount(cuts, minlength=13)[1:], len(cuts) / 12
    assert ((ours - expected) ** 2 / expected).sum() < 40  # 11 degrees of freedom: p = 4e-5
    any_cut = Pose(max_id=300).training_ids(task, sample, stream(0, "p", torch.arange(20_000)))[:, 0]
    assert ((any_cut - torch.arange(23)) > 0).int().argmax(1).max() == 22
    with pytest.raises(ValueError, match="half needs chunks: 2, got 3"):
        Pose(max_id=300, chunks=3, first_chunk="half")


def test_pose_skips_grow_from_chunk_to_chunk():
    task, policy = ParityScratchpad(), Pose(max_id=300, chunks=3)
    sample = draw(task, [10] * 500)
    ids = policy.relabel(task, sample, policy.assign(task, sample), stream(0, "p", torch.arange(500)))[:, 0]
    assert (ids.diff(dim=1) >= 1).all()
    assert ((ids.diff(dim=1) > 1).sum(1) <= 2).all()
    assert ids.max() <= 300


def test_random_start_is_uniform_and_plain_in_evaluation():
    task, policy = ParityScratchpad(), RandomStart(max_id=122)
    sample = draw(task, [10] * 20_000)
    plain = policy.assign(task, sample)
    starts = policy.relabel(task, sample, plain, stream(0, "s", torch.arange(20_000)))[:, 0, 0]
    assert (plain[:, 0, 0] == 0).all()
    assert starts.min() == 0
    assert starts.max() == 100
    assert abs(starts.double().mean() - 50) < 1


def test_randomized_ids_are_uniform_subsets_in_order():
    task, policy = ParityScratchpad(), Randomized(max_id=9)
    sample = draw(task, [1, 2] * 20_000, max_length=3)
    ids = policy.training_ids(task, sample, stream(0, "r", torch.arange(40_000)))[::2, 0]
    assert (ids[:, :5].diff(dim=1) > 0).all()
    assert not ids[:, 5:].any()
    subsets = torch.bincount((2 ** ids[:, :5]).sum(1))
    subsets = subsets[subsets > 0]
    assert len(subsets) == 252  # 10 choose 5
    assert abs(subsets.double().mean() - 20_000 / 252) < 1
    assert ((subsets - 20_000 / 252) ** 2 / (20_000 / 252)).sum() < 340  # 251 degrees of freedom: p = 2e-4


def _test_draws(count, start=0):
    return stream(0, "tests", torch.arange(start, start + count))


def test_randomized_tests_draw_uniform_subsets_in_order():
    task, policy = ParityScratchpad(), Randomized(max_id=9)
    sample = draw(task, [1, 2] * 10_000, max_length=3)
    ids = policy.evaluation_ids(task, sample, _test_draws(20_000))[::2, 0]
    assert (ids[:, :5].diff(dim=1) > 0).all()
    assert not ids[:, 5:].any()
    subsets = torch.bincount((2 ** ids[:, :5]).sum(1))
    subsets = subsets[subsets > 0]
    assert len(subsets) == 252  # 10 choose 5
    assert ((subsets - 10_000 / 252) ** 2 / (10_000 / 252)).sum() < 340  # 251 degrees of freedom: p = 2e-4


def test_randomized_test_ids_belong_to_the_sample_alone():
    task, policy = ParityScratchpad(), Randomized(max_id=90)
    sample, wide = draw(task, [3, 7, 3]), draw(task, [3, 7, 3], max_length=12)
    ids = policy.evaluation_ids(task, sample, _test_draws(3))
    assert torch.equal(policy.evaluation_ids(task, wide, _test_draws(3))[:, :, : ids.shape[2]], ids)
    for row in range(3):
        alone = policy.evaluation_ids(task, sample.rows(row, row + 1), _test_draws(1, start=row))
        assert torch.equal(alone[0], ids[row])
    assert not torch.equal(ids[0], ids[2])


def test_randomized_test_ids_do_not_tell_how_long_the_answer_is():
    """The same prompt with answers of other sizes has the same IDs, those of the longest sample."""
    task, policy = VariableAssignment(num_names=40, hops=Span(1, 3)), Randomized(max_id=90)
    sample = draw(task, [8] * 40)
    assert len(sample.num_tokens.unique()) == 3
    ids = policy.evaluation_ids(task, sample, _test_draws(40))[:, 0]
    longest = replace(sample, num_tokens=torch.full_like(sample.num_tokens, task.max_tokens(8)))
    as_if = policy.evaluation_ids(task, longest, _test_draws(40))[:, 0]
    inside = torch.arange(ids.shape[1]) < sample.num_tokens[:, None]
    assert torch.equal(ids, as_if.where(inside, 0))


def test_dense_tests_of_randomized_ids_count():
    task, policy = ParityScratchpad(), Randomized(max_id=9, test="dense")
    sample = draw(task, [3, 6])  # of 9 and 15 tokens
    assert policy.evaluation_ids(task, sample)[1, 0].tolist() == list(range(15))
    assert not policy.draws_test_ids
    with pytest.raises((TypeError, ValueError), match="sparse"):  # types are checked in tests only
        Randomized(max_id=9, test="sparse")


def test_randomized_tests_that_cannot_be_drawn_are_refused():
    task, policy = ParityScratchpad(), Randomized(max_id=14)
    assert policy.evaluation_ids(task, draw(task, [6]), _test_draws(1))[0, 0].tolist() == list(range(15))
    with pytest.raises(BadInput, match="max_id=14 is too small to test samples of 17 tokens"):
        policy.evaluation_ids(task, draw(task, [7]), _test_draws(1))
    with pytest.raises(BadInput, match="give draws that number the samples"):
        policy.evaluation_ids(task, draw(task, [6]))


def test_a_bounded_level_is_never_relabelled():
    task = VariableAssignment(num_names=60, name_tokens=2)
    policy = Oracle(max_id=500)
    sample = draw(task, [9] * 10)
    plain = policy.assign(task, sample)
    ids = policy.relabel(task, sample, plain, stream(0, "i", torch.arange(10)))
    assert torch.equal(ids[:, 1], plain[:, 1])
    assert not torch.equal(ids[:, 0], plain[:, 0])


@pytest.mark.parametrize(
    ("task", "policy", "complaint"),
    [
        (Planted(), Coupled(max_id=9), "planted has no known coupling"),
        (VariableAssignment(num_names=60), Coupled(max_id=99), "depend on the answer"),
        (VariableAssignment(num_names=60, query_id="given"), Predicted(max_id=99), "give a part of the answer away"),
        (ParityScratchpad(), Coupled(max_id=9), "samples have 11 IDs"),
        (ParityScratchpad(), Pose(max_id=9), "too small for samples of 23 tokens"),
    ],
)
def test_what_a_policy_cannot_serve_it_refuses(task, policy, complaint):
    with pytest.raises(BadInput, match=complaint):
        policy.check(task, draw(task, [10]))


@pytest.mark.parametrize("policy", [RandomStart(max_id=60), Pose(max_id=60)], ids=label)
def test_padding_never_has_an_id_beyond_the_range(policy):
    task = ParityScratchpad()
    sample = draw(task, [1, 28] * 200)
    ids = policy.training_ids(task, sample, stream(0, "t", torch.arange(400)))
    assert ids.max() <= 60
    index = torch.arange(ids.shape[2])
    assert not ids.masked_fill((index < sample.num_tokens[:, None])[:, None], 0).any()


def test_the_longest_possible_sample_is_what_counts():
    task = VariableAssignment(num_names=60, hops=Span(1, 8))
    with pytest.raises(BadInput, match="samples of 35 tokens"):
        Pose(max_id=32).check(task, draw(task, [12]))


def test_every_span_up_to_the_whole_range_is_drawn():
    ids = torch.arange(1, 6).expand(20_000, 5)
    image = increasing(ids, 10, stream(0, "s", torch.arange(20_000)))
    spans = torch.bincount(image[:, -1] - image[:, 0] + 1, minlength=11)
    assert spans[:5].sum() == 0
    assert spans[5:].min() > 1000


def test_coverage_counts_by_parts_of_the_range():
    ids = torch.tensor([[[0, 1, 5, 10, 10]]])
    assert coverage(ids, max_id=10, bins=2) == [2, 2]


def test_sequential_counts():
    sample = draw(ParityScratchpad(), [3])
    assert Sequential().assign(ParityScratchpad(), sample)[0, 0].tolist() == list(range(9))


def test_abacus_counts_the_digits_of_each_number():
    task = Addition()
    prompt = task.prompt_batch(task.parse("37 + 8"), 5)
    assert Abacus(max_id=9).assign(task, prompt)[0, 0].tolist() == [0, 1, 2, 0, 1, 2, 0, 0, 0, 0, 0, 0]
    sample = draw(task, [2, 6])
    ids = Abacus(max_id=30).assign(task, sample)
    assert ids[0, 0].tolist()[:11] == [0, 1, 2, 0, 1, 2, 0, 1, 2, 3, 0]
    moved = Abacus(max_id=30).relabel(task, sample, ids, stream(0, "ids", torch.arange(2)))
    change = (moved - ids)[ids > 0]
    assert len(change.unique()) <= 2
    assert (moved == 0).eq(ids == 0).all()
    with pytest.raises(BadInput, match="has none"):
        Abacus(max_id=9).check(Copy(), draw(Copy(), [4]))
    with pytest.raises(BadInput, match="numbers have 7 digits"):
        Abacus(max_id=6).check(task, draw(task, [6]))


@pytest.mark.parametrize("use_cache", [True, False])
def test_abacus_ids_follow_from_what_the_model_writes(use_cache):
    task, policy = Addition(), Abacus(max_id=90)
    sample = draw(task, [4, 9, 7, 12])
    model = build_model(TINY, len(task.vocabulary), 3).eval()
    written = generate(model, task, policy, sample, use_cache=use_cache, shift=5)
    read = torch.arange(sample.tokens.shape[1]) < sample.num_tokens[:, None] - 1  # the last is never read
    again = replace(sample, tokens=written.tokens)
    expected = policy.evaluation_ids(task, again) + 5
    unstopped = read & (written.tokens != PAD)
    assert unstopped.sum() > sample.prompt_tokens.sum()
    assert torch.equal(written.ids[:, 0][unstopped], expected[:, 0][unstopped])


def test_uniform_pose_trains_all_distances_alike():
    """The share of samples that show a distance at all: PoSE shows the largest rarely."""
    sample = draw(ParityScratchpad(), [10] * 4000)
    shares = {}
    for policy in (Pose(max_id=200), UniformPose(max_id=200)):
        plain = policy.assign(ParityScratchpad(), sample)
        ids = policy.relabel(ParityScratchpad(), sample, plain, stream(0, "ids", torch.arange(4000)))[:, 0]
        far = (ids[:, :, None] - ids[:, None, :]).clamp(min=0)
        shown = torch.zeros(4000, 201, dtype=torch.bool).scatter_(1, far.flatten(1), True)
        shares[policy.name] = shown[:, 1:].double().mean(0)
        assert ids.max() == 200
    far = {name: share[22:] for name, share in shares.items()}  # a sample has 23 tokens
    skips = (200 - 22) // 22 + 1
    assert (far["uniform_pose"] - 1 / skips).abs().max() < 5 * (1 / skips / 4000) ** 0.5  # standard deviations
    assert far["pose"].max() > 10 * far["pose"].min()


@dataclass(frozen=True, kw_only=True)
class _TwoCursors(Program):
    """Two cursors over one region, and one over another."""

    alphabet = ("a", "b")
    cursors: ClassVar = {"here": "items", "start": "items"}

    def prompt(self, rng, length):
        return {"items": rng.choices(self.alphabet, k=length), "others": rng.choices(self.alphabet, k=length)}

    def run(self, here, start, others, write):
        while not here.at_end:
            write(others.read())
            here.step()
            start.jump(here)


@pytest.mark.parametrize("policy", [Oracle(max_id=500), Predicted(max_id=500)], ids=label)
def test_levels_of_one_space_are_relabelled_as_one(policy):
    task = _TwoCursors()
    assert [level.space for level in task.coupling_levels] == ["items", "items", ""]
    numbers = torch.arange(64)
    sample = task.sample(3 + numbers % 5, stream(0, "s", numbers), 7)
    ids = policy.training_ids(task, sample, stream(1, "ids", numbers))
    plain = task.coupling(sample, "aligned")
    assert torch.equal(ids[:, 0], ids[:, 1])  # the two cursors stand at the same places
    assert not torch.equal(ids[:, 0], plain[:, 0])
    prompt = torch.arange(ids.shape[2]) < 3  # the first items: the same places in both regions, relabelled apart
    assert not torch.equal(ids[:, 0, prompt], ids[:, 2, 8:11])
