"""Coverage by several lengths and of a part of the planted sets, the bounds that follow, and plans made with it."""

import math

import pytest
import torch

from longreach.seeding import stream
from longreach.theory import (
    AbsoluteTypes,
    AnchoredTypes,
    CoupledTypes,
    GapTypes,
    ListedPositions,
    TypeLaw,
    blocks,
    coverage,
    err_exact,
    master_bound,
    pair_bound,
    partial_bound,
    partial_coverage,
    rank_couplings,
    shortest_training,
    spread,
)
from longreach.theory.instances import margin_head, parity_task, random_instance


def changing(types, *laws):
    """Types by one law up to a length, by another beyond it: pairs of a length and the probabilities of types."""

    def support(length):
        probabilities = next(law for last, law in laws if length <= last)
        return TypeLaw(types, torch.tensor(probabilities, dtype=torch.float64)).support(length)

    return ListedPositions(support)


def with_rare_types(index):
    """A random instance that shows half of its types rarely or never at short lengths; or none, if it has one type."""
    task, head, short, long = random_instance(index)
    types, count = head.types, len(head.types.shapes)
    if count < 2:
        return None
    draws = stream(index, "rare types", torch.arange(1))
    rare = draws.uniform("which", count)[0].argsort() < count // 2
    seen = (0.5 + draws.uniform("law", count)[0]) * torch.where(rare, [0.0, 1e-3][index % 2], 1.0)
    asked = (0.5 + draws.uniform("law", count)[0]) * torch.where(rare, 0.2, 1.0)
    laws = (short, (seen / seen.sum()).tolist()), (long, (asked / asked.sum()).tolist())
    return task.with_positions(changing(types, *laws)), head, short, long


def slow_counts(task, types, length):
    """By planted set: its probability, and how many sets of each pair type, one pair after another."""
    subsets, kinds = types.subsets(length)
    found = []
    for place, chance in zip(*task.q_pos.support(length), strict=True):
        kind, order = types.of(place[None], length)
        counts = {}
        for subset, other in zip(subsets.tolist(), kinds.tolist(), strict=True):
            match = tuple(place.tolist().index(p) if p in place.tolist() else -1 for p in subset)
            key = (int(kind), other, match, tuple(order[0].tolist()))
            counts[key] = counts.get(key, 0) + 1
        found.append((float(chance), counts))
    return found


def slow_mean(found):
    mean = {}
    for chance, counts in found:
        for key, count in counts.items():
            mean[key] = mean.get(key, 0.0) + chance * count
    return mean


@pytest.mark.parametrize("index", [1, 2, 4, 5, 10, 14, 19])
def test_partial_coverage_from_the_definitions(index):
    task, head, short, long = with_rare_types(index) or random_instance(index)
    planted, seen = slow_counts(task, head.types, long), slow_mean(slow_counts(task, head.types, short))
    asked = slow_mean(planted)
    ratio = {key: asked[key] / seen[key] if key in seen else math.inf for key in asked}
    worst = [max(ratio[key] for key in counts) for _, counts in planted]
    partials = partial_coverage(task, head.types, short, long)
    for kappa, given_up in partials.ways:
        lost = sorted(zip(worst, planted, strict=True), key=lambda pair: -pair[0])
        while sum(chance for _, (chance, _) in lost) > given_up + 1e-12:
            lost.pop()
        kept = [planted[row] for row, one in enumerate(worst) if not lost or one < lost[-1][0]]
        mean = slow_mean(kept)
        assert sum(chance for chance, _ in kept) == pytest.approx(1 - given_up, abs=1e-12)
        assert kappa == pytest.approx(max((mean[key] / seen[key] for key in mean), default=0.0), rel=1e-9)
        # where G holds all pair types up to this ratio, the probability is the same and kappa no larger
        limit = max((one for one in worst if not lost or one < lost[-1][0]), default=0.0)
        assert kappa <= limit * (1 + 1e-12)
    assert len(partials.uncovered) == sum(math.isinf(one) for one in ratio.values())
    assert [way.kappa for way in partials.ways] == sorted(way.kappa for way in partials.ways)


def test_partial_bounds_hold_where_types_are_rare_or_missing():
    told = {"missing": 0, "rare": 0}
    for index in range(150):
        instance = with_rare_types(index)
        if instance is None:
            continue
        task, head, short, long = instance
        error, later, elsewhere = err_exact(head, task, short), err_exact(head, task, long), spread(head, task, short)
        master = master_bound(head, task, short, long, error)
        bounds = {
            limit: partial_bound(head, task, short, long, error, limit, spread_by=lambda *_, found=elsewhere: found)
            for limit in (math.inf, 30.0, 3.0, 1.0, 0.0, "best")
        }
        for limit, bound in bounds.items():
            assert later <= bound.value * (1 + 1e-9)
            assert bound.value == pytest.approx(bound.factor * error + bound.given_up)
            assert limit == "best" or bound.factor <= limit * elsewhere * (1 + 1e-12)
        best = bounds["best"].value
        assert all(best <= bound.value for bound in bounds.values())
        assert best <= min(1, master.value) * (1 + 1e-9)
        assert index % 2 == 1 or master.value == math.inf
        told["rare" if index % 2 else "missing"] += best < 0.9 * min(1, master.value)
    assert min(told.values()) >= 10


def test_the_partial_bound_is_the_whole_one_where_all_is_covered():
    for index in range(12):
        task, head, short, long = random_instance(index)
        master, partial = master_bound(head, task, short, long), partial_bound(head, task, short, long)
        assert partial.given_up == 0
        assert partial.factor == pytest.approx(master.factor, rel=1e-9)
        assert partial.value == pytest.approx(master.value, rel=1e-9)


def test_what_a_head_cannot_get_wrong_is_not_given_up():
    types = GapTypes(2, 2)
    task = parity_task(2, 2).with_positions(changing(types, (8, [1.0, 0.0]), (12, [0.5, 0.5])))
    assert partial_bound(margin_head(types, math.inf), task, 8, 12).value == 0
    bound = partial_bound(margin_head(types, 5.0), task, 8, 12)
    assert bound.given_up == pytest.approx(0.5)  # half are planted with a gap that was never seen
    assert err_exact(margin_head(types, 5.0), task, 12) <= bound.value < 1


def test_theorem_0_holds_for_several_short_lengths():
    for index in range(12):
        task, head, short, long = random_instance(index)
        lengths = [short, short - 1 if short - 1 >= head.types.least else short, short]
        errors = [err_exact(head, task, length) for length in lengths]
        mean = sum(errors) / 3
        certified = sum(pair_bound(head, task, length) for length in lengths) / 3
        assert certified <= mean * max(spread(head, task, length) for length in lengths) * (1 + 1e-9)
        bound = master_bound(head, task, lengths, long)
        assert err_exact(head, task, long) <= bound.value * (1 + 1e-9)
        assert bound.value == pytest.approx(bound.factor * mean)


def test_several_lengths_cover_what_none_does_alone():
    types = GapTypes(2, 2)
    task = parity_task(2, 2).with_positions(changing(types, (8, [1.0, 0.0]), (9, [0.0, 1.0]), (20, [0.5, 0.5])))
    assert coverage(task, types, 8, 20).kappa == coverage(task, types, 9, 20).kappa == math.inf
    both = coverage(task, types, [8, 9], 20)
    assert both.uncovered == []
    assert 1 < both.kappa < math.inf
    assert partial_coverage(task, types, [8, 9], 20).ways[-1] == pytest.approx((both.kappa, 0.0))
    assert coverage(task, types, [8, 8], 20) == coverage(task, types, 8, 20)
    # twice as often at 8: what only 9 shows is covered by a third of the lengths in place of a half
    assert coverage(task, types, [8, 8, 9], 20).kappa == pytest.approx(1.5 * both.kappa, rel=0.3)


@pytest.mark.parametrize("types", [GapTypes(2, 3), AnchoredTypes(2, 3), CoupledTypes(2, 1, blocks(2))])
def test_the_shortest_training_length_is_the_first_that_covers(types):
    task = parity_task(2, 3).with_positions(TypeLaw.uniform(types))
    for target in (1.0, 2.0, 5.0, 40.0):
        plan = shortest_training(task, types, 40, target)
        kappas = {length: coverage(task, types, length, 40).kappa for length in range(types.least, 40)}
        good = [length for length, kappa in kappas.items() if kappa <= target]
        assert plan.length == (good[0] if good else None)
        assert plan.kappa == pytest.approx(kappas[good[0]] if good else min(kappas.values()))
        assert plan.uncovered == []


def test_a_longer_training_length_may_cover_less():
    types = GapTypes(2, 2)
    laws = [(length, [0.5, 0.5] if length % 2 else [1.0, 0.0]) for length in range(3, 21)]
    task = parity_task(2, 2).with_positions(changing(types, *laws))
    plan = shortest_training(task, types, 19, 4.0)
    assert plan.length is not None
    assert plan.length % 2 == 1
    assert coverage(task, types, plan.length + 1, 19).kappa == math.inf


def test_a_plan_names_what_no_length_shows():
    types = AbsoluteTypes(1)
    task = parity_task(1, 0).with_positions(TypeLaw(GapTypes(1, 0), torch.ones(1, dtype=torch.float64)))
    plan = shortest_training(task, types, 8, 100.0, lengths=[5, 4, 6])
    assert (plan.length, plan.kappa) == (None, math.inf)
    assert {pair.planted for pair in plan.uncovered} >= {6, 7}
    assert all(max(pair.planted, pair.other) >= 6 for pair in plan.uncovered)


def test_couplings_are_ranked_by_coverage():
    coupled = CoupledTypes(2, 0, blocks(2))
    task = parity_task(2, 2).with_positions(TypeLaw.uniform(coupled))  # one token in each half, l/2 apart
    candidates = {
        "raw": GapTypes(2, 6),
        "wide": CoupledTypes(2, 2, blocks(2)),
        "absolute": AbsoluteTypes(2),
        "aligned": coupled,
    }
    ranked = rank_couplings(task, candidates, 10, 16)
    assert [one.name for one in ranked[:2]] == ["aligned", "wide"]
    assert ranked[0].kappa == coverage(task, coupled, 10, 16).kappa < ranked[1].kappa < math.inf
    assert {one.name for one in ranked[2:]} == {"raw", "absolute"}
    for one in ranked:
        assert (one.kappa == math.inf) == (one.lost > 0)
    positions = {one.name: one for one in ranked}
    assert positions["absolute"].lost == pytest.approx(1.0)  # sets beyond 10 meet every planted one
    assert positions["absolute"].uncovered == len(coverage(task, AbsoluteTypes(2), 10, 16).uncovered)
    assert (positions["raw"].uncovered, positions["raw"].lost) == (0, 1.0)  # 8 apart: no type at all
