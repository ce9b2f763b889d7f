"""Planted tasks as tables, heads of the class, their errors, and the bounds on them."""

import itertools
import math
import re
from dataclasses import replace

import pytest
import torch

from longreach.seeding import stream
from longreach.tasks.planted import Planted
from longreach.tasks.planted_laws import FixedGaps, UniformPositions, UniformTokens, WeightedTokens, WindowPositions
from longreach.theory import (
    AbsoluteTypes,
    AnchoredTypes,
    CoupledTypes,
    Coupling,
    CouplingRule,
    GapTypes,
    PlantedTask,
    SparseHead,
    TypeLaw,
    blocks,
    count_pairs,
    coverage,
    err_exact,
    err_mc,
    from_task,
    interior_coverage,
    local_bound,
    master_bound,
    pair_bound,
    pair_certificate,
    pair_types,
    phi,
    spread,
    spread_bound,
)
from longreach.theory.instances import margin_head, parity_task, random_instance
from longreach.theory.pairs import PairTypes
from longreach.theory.words import number, power, words


def _name(types: object) -> str:
    """The same in every process: a coupling prints the address of its function."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(types))


KINDS = [
    GapTypes(1, 2),
    GapTypes(2, 3),
    GapTypes(3, 3),
    AnchoredTypes(2, 3),
    CoupledTypes(2, 1, blocks(2)),
    CoupledTypes(3, 1, blocks(2), at_query=True),
    AbsoluteTypes(2),
]


def table(name, *shape):
    return stream(0, name, torch.arange(1)).uniform(name, torch.Size(shape).numel()).view(shape)


def law(name, *shape):
    weights = table(name, *shape) + 0.05
    return weights / weights.sum(-1, keepdim=True)


def random_task(types, vocab_size=2, length=0, classes=2):
    num_words = vocab_size**types.k
    g_star = stream(0, "g*", torch.arange(1)).below("g*", classes, num_words)[0]
    q_pos = TypeLaw(types, law("q_pos", types.num_types(length)))
    q_voc = law("q_voc", num_words)
    return PlantedTask(types.k, vocab_size, q_pos, q_voc, law("mu", vocab_size), g_star, classes)


def random_head(types, vocab_size=2, length=0, classes=2):
    num_words = vocab_size**types.k
    return SparseHead(types, table("a", types.num_types(length), num_words), law("g", num_words, classes))


def slow_error(head, task, length):
    """From the definitions, one sequence at a time."""
    total = 0.0
    subsets, kinds = head.types.subsets(length)
    for planted, probability in zip(*task.q_pos.support(length), strict=True):
        for tokens in itertools.product(range(task.vocab_size), repeat=length):
            word = int(number(torch.tensor([tokens[p] for p in planted]), task.vocab_size))
            chance = float(probability) * float(task.q_voc[word])
            for place, token in enumerate(tokens):
                chance *= 1 if place in planted.tolist() else float(task.mu[token])
            mass = right = 0.0
            for subset, kind in zip(subsets, kinds, strict=True):
                other = int(number(torch.tensor([tokens[p] for p in subset]), task.vocab_size))
                mass += float(head.a[kind, other])
                right += float(head.a[kind, other]) * float(head.g[other, task.g_star[word]])
            total += chance * (1 - right / mass if mass else 1)
    return total


@pytest.mark.parametrize("types", KINDS, ids=_name)
def test_exact_errors_follow_from_the_definitions(types):
    length = 4 if types.k < 3 else 6
    task, head = random_task(types, length=length), random_head(types, length=length)
    assert err_exact(head, task, length) == pytest.approx(slow_error(head, task, length), rel=1e-12)


@pytest.mark.parametrize("types", KINDS, ids=_name)
def test_sampled_errors_agree_with_exact_ones(types):
    task, head = random_task(types, length=6), random_head(types, length=6)
    estimate = err_mc(head, task, 6, 20_000)
    assert estimate.mean == pytest.approx(err_exact(head, task, 6), abs=5 * estimate.se)
    assert 0 < estimate.se < 0.01
    assert err_mc(head, task, 6, 20_000, argmax=True).mean <= 2 * estimate.mean


def test_samples_do_not_depend_on_the_batch():
    task = parity_task(2, 3, rho=0.3)
    whole, part = stream(1, "x", torch.arange(10)), stream(1, "x", torch.arange(4, 7))
    for all_of_it, some in zip(task.sample(9, whole), task.sample(9, part), strict=True):
        assert torch.equal(all_of_it[4:7], some)


def test_samples_follow_the_laws():
    task = random_task(GapTypes(2, 2), vocab_size=3, classes=3)
    tokens, labels, positions = task.sample(5, stream(0, "x", torch.arange(50_000)))
    word = number(tokens.gather(1, positions), 3)
    assert torch.equal(task.g_star[word], labels)
    support, expected = task.q_pos.support(5)
    for row, probability in zip(support, expected, strict=True):
        assert float((positions == row).all(1).double().mean()) == pytest.approx(float(probability), abs=0.01)
    assert torch.bincount(word, minlength=9) / 50_000 == pytest.approx(task.q_voc, abs=0.01)
    rest = tokens[torch.ones_like(tokens).scatter(1, positions, 0).bool()]
    assert torch.bincount(rest, minlength=3) / len(rest) == pytest.approx(task.mu, abs=0.01)


@pytest.mark.parametrize("types", KINDS, ids=_name)
def test_every_subset_finds_its_type_in_any_order(types):
    positions, kinds = types.subsets(8)
    assert len(torch.unique(positions.sort(1).values, dim=0)) == len(positions)
    found, order = types.of(positions.flip(1), 8)
    assert torch.equal(found, kinds)
    assert torch.equal(positions.flip(1).gather(1, order), positions)
    assert int(kinds.max()) < types.num_types(8)


def test_types_are_what_they_say():
    gap = GapTypes(2, 2)
    assert gap.of(torch.tensor([[0, 1], [4, 5], [4, 6], [1, 4]]), 8)[0].tolist() == [0, 0, 1, -1]
    anchored = AnchoredTypes(1, 1)
    assert anchored.of(torch.tensor([[5], [6], [7]]), 8)[0].tolist() == [-1, 0, 1]
    assert [kind.num_types(9) for kind in (gap, AnchoredTypes(2, 2), AbsoluteTypes(2))] == [2, 3, 36]
    coupled = CoupledTypes(2, 0, blocks(2))  # aligned pairs only, at any distance
    assert coupled.subsets(8)[0].tolist() == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert coupled.subsets(9)[0].tolist() == [[0, 4], [1, 5], [2, 6], [3, 7]]  # the last position is reserved


def test_absolute_types_keep_their_numbers_as_the_length_grows():
    positions, kinds = AbsoluteTypes(3).subsets(6)
    assert torch.equal(AbsoluteTypes(3).of(positions, 9)[0], kinds)


def test_couplings_fold_and_unfold():
    coupling = Coupling.from_map([2, 1, 0, 1, 2, 3, 3])
    assert (coupling.num_ids, coupling.multiplicity) == (3, 2)
    assert coupling.tracks.tolist() == [0, 0, 0, 1, 1, 0, 1]
    tokens = torch.tensor([[5, 6, 9, 7, 8, 3, 4]])
    assert coupling.fold(tokens).tolist() == [[[6, 7], [5, 8], [3, 4]]]
    assert torch.equal(coupling.unfold(coupling.fold(tokens), reserved=9), tokens)
    assert coupling.id_span(torch.tensor([[0, 4], [1, 6]])).tolist() == [0, 2]


def test_a_head_on_coupled_types_is_a_head_on_the_folded_sequence():
    """Theorem 2 rests on this: one track per ID is no coupling at all."""
    tokens = stream(0, "x", torch.arange(6)).below("x", 2, 8)
    reverse = [8 - place for place in range(8)]
    coupled = CoupledTypes(3, 4, CouplingRule(1, lambda length: reverse))
    plain = random_head(GapTypes(3, 4))
    assert torch.equal(SparseHead(coupled, plain.a, plain.g).forward(tokens), plain.forward(tokens.flip(1)))


def test_weights_listed_add_up_to_the_mass():
    head, tokens = random_head(GapTypes(3, 3)), stream(0, "x", torch.arange(5)).below("x", 2, 9)
    assert torch.allclose(head.weights(tokens).sum(1), head.mass(tokens).sum(1))
    assert torch.allclose(head.forward(tokens), 1 - head.losses(tokens))


def test_no_mass_predicts_nothing_and_is_wrong():
    head = SparseHead(GapTypes(1, 0), torch.zeros(1, 2, dtype=torch.float64), torch.eye(2, dtype=torch.float64))
    tokens = torch.zeros(1, 3, dtype=torch.long)
    assert head.forward(tokens).tolist() == [[0, 0]]
    assert head.loss(tokens, torch.tensor([0])).tolist() == [1]


PAIRINGS = [(kind, kind) for kind in KINDS] + [
    (GapTypes(2, 3), AnchoredTypes(2, 2)),
    (GapTypes(3, 4), AnchoredTypes(3, 4)),
    (GapTypes(2, 4), GapTypes(2, 2)),
    (GapTypes(2, 7), CoupledTypes(2, 1, blocks(2))),
]


@pytest.mark.parametrize(("types", "planted"), PAIRINGS, ids=_name)
@pytest.mark.parametrize("length", [8, 9, 13])
def test_pair_counts_by_formula_and_by_listing(types, planted, length):
    q_pos = TypeLaw(planted, law("q", planted.num_types(length)))
    listed, formula = count_pairs(types, q_pos, length), pair_types(types, q_pos, length)
    assert torch.equal(listed.keys, formula.keys)
    assert torch.allclose(listed.count, formula.count, rtol=1e-12, atol=0)
    # every S has some pair type, whatever S* is
    assert float(listed.count.sum()) == pytest.approx(len(types.subsets(length)[0]), rel=1e-12)


def test_counts_are_averages_and_not_whole_numbers():
    q_pos = TypeLaw(GapTypes(2, 3), law("q", 3))
    counts = count_pairs(GapTypes(2, 3), q_pos, 9).count
    assert counts.dtype == torch.float64
    assert float(counts.min()) < 1
    assert not torch.equal(counts, counts.round())


@pytest.mark.parametrize(("types", "planted"), PAIRINGS, ids=_name)
def test_phi_by_hand(types, planted):
    """One pair of sets after another, over all sequences."""
    length = 8
    q_pos = TypeLaw(planted, law("q", planted.num_types(length)))
    task = random_task(types, length=length).with_positions(q_pos)
    head = random_head(types, length=length)
    pairs = count_pairs(types, q_pos, length)
    total = 0.0
    every = words(2, length)
    subsets, kinds = types.subsets(length)
    for place, probability in zip(*q_pos.support(length), strict=True):
        word = number(every[:, place], 2)
        chance = task.q_voc[word] * task.mu[every].index_fill(1, place, 1.0).prod(1)
        kind, order = types.of(place[None], length)
        own = head.a[kind[0], number(every[:, place[order[0]]], 2)]
        for subset, other in zip(subsets, kinds, strict=True):
            content = number(every[:, subset], 2)
            wrong = 1 - head.g[content, task.g_star[word]]
            if set(subset.tolist()) == set(place.tolist()):
                total += float(probability * (chance @ wrong))
            else:
                weight = head.a[other, content]
                total += float(probability * (chance @ (wrong * weight / (own + weight))))
    assert pair_bound(head, task, length) == pytest.approx(total, rel=1e-10)
    assert float(pairs.count @ phi(head, task, pairs)) == pytest.approx(total, rel=1e-10)


@pytest.mark.parametrize("types", KINDS, ids=_name)
def test_the_certificate_brackets_the_error(types):
    length = 6 if types.k < 3 else 8
    task, head = random_task(types, length=length), random_head(types, length=length)
    certified, error = pair_bound(head, task, length), err_exact(head, task, length)
    assert certified / spread(head, task, length) <= error <= certified


def slow_spread(head, task, length):
    """The largest ratio, over all pairs and all that can be known, by averaging over all sequences."""
    every = words(task.vocab_size, length)
    mass, worst = head.mass(every).sum(1), 1.0
    subsets, kinds = head.types.subsets(length)
    for place, _ in zip(*task.q_pos.support(length), strict=True):
        word = number(every[:, place], task.vocab_size)
        own = head.a[head.types.of(place[None], length)[0][0], word]
        for subset, kind in zip(subsets, kinds, strict=True):
            chance = task.q_voc[word] * task.mu[every].index_fill(1, place, 1.0).prod(1)
            content = number(every[:, subset], task.vocab_size)
            weight = head.a[kind, content]
            ratio = own + weight * (not torch.equal(subset, place))
            for known in torch.unique(torch.stack([word, content], dim=1), dim=0):
                chosen = (word == known[0]) & (content == known[1])
                if float((chance * weight * (1 - head.g[content, task.g_star[word]]))[chosen].sum()) > 0:
                    mean = float(chance[chosen] @ mass[chosen]) / float(chance[chosen].sum())
                    worst = max(worst, mean / float(ratio[chosen][0]))
    return worst


@pytest.mark.parametrize("types", [GapTypes(1, 1), GapTypes(2, 2), AnchoredTypes(2, 2)], ids=str)
def test_the_spread_by_hand(types):
    task, head = random_task(types), random_head(types)
    assert spread(head, task, 6) == pytest.approx(slow_spread(head, task, 6), rel=1e-10)


@pytest.mark.parametrize("types", [*KINDS[:-1], GapTypes(2, 2)], ids=_name)
@pytest.mark.parametrize("share", [1.0, 0.3])
@pytest.mark.parametrize("peaked", [1, 30])
def test_the_bound_on_the_spread_is_one(types, share, peaked):
    """Also with a few large weights, with weights of zero, tokens that are planted only, and certain answers."""
    task, head = random_task(types, vocab_size=3), random_head(types, vocab_size=3)
    marked = (words(3, types.k) == 2).any(1)
    q_voc, mu = task.q_voc * marked, torch.tensor([0.4, 0.6, 0.0], dtype=torch.float64)
    task = replace(task, q_voc=q_voc / q_voc.sum(), mu=mu)
    a = head.a**peaked * ((table("zero", *head.a.shape) < share) | marked)
    right = torch.nn.functional.one_hot(task.g_star, 2).double()
    head = SparseHead(types, a, torch.where(table("sure", len(right), 1) < share, head.g, right))
    for length in (types.least, 7):
        exact = spread(head, task, length, max_states=1 << 40)
        assert exact <= spread_bound(head, task, length) * (1 + 1e-12)


def test_the_bound_on_the_spread_allows_for_sets_before_and_behind():
    """Only 1 before 2 weighs much: the worst S has two 1s, and stands before the planted 2s."""
    task = replace(parity_task(2, 6, rho=0.001), q_voc=torch.eye(9, dtype=torch.float64)[8])
    a = torch.full((6, 9), 1e-4, dtype=torch.float64)
    a[:, 8], a[:, 5] = 1.0, 5.0
    head = SparseHead(GapTypes(2, 6), a, torch.full((9, 2), 0.5, dtype=torch.float64))
    exact = spread(head, task, 14)
    assert exact > 20
    assert exact <= spread_bound(head, task, 14) <= 1.05 * exact


def test_the_bound_on_the_spread_is_close():
    ratios = {1: [], 2: [], 3: []}
    for index in range(60):
        task, head, short, _ = random_instance(index)
        ratios[task.k].append(spread_bound(head, task, short) / spread(head, task, short))
    assert ratios[1] == pytest.approx([1] * 20, rel=1e-12)  # no set meets S* or S but these
    assert min(ratios[2] + ratios[3]) >= 1 - 1e-12
    assert max(ratios[2]) < 1.6
    assert max(ratios[3]) < 2.5


def test_the_bound_on_the_spread_takes_any_length():
    head, task = margin_head(GapTypes(2, 6), 10.0), parity_task(2, 6, rho=0.02)
    near, far, farther = (spread_bound(head, task, length) for length in (24, 10_000, 10_001))
    assert spread(head, task, 24) < near < 1.05 * spread(head, task, 24)
    # the background of one more position, against the planted set alone
    assert farther - far == pytest.approx(6 * (0.02**2 + (1 - 0.02**2) * math.exp(-10)), rel=1e-3)
    assert local_bound(head, task, 10_000, 20_000, 1e-3, spread_by=spread_bound).factor > far
    anchored = AnchoredTypes(2, 3)
    task, head = random_task(anchored), random_head(anchored)
    assert spread_bound(head, task, 10_000) == pytest.approx(spread_bound(head, task, 10), rel=1e-12)


def test_theorems_hold_on_random_instances():
    told = {"master": 0, "local": 0, "gap": 0}
    for index in range(100):
        task, head, short, long = random_instance(index)
        error, later = err_exact(head, task, short), err_exact(head, task, long)
        certified = pair_bound(head, task, short)
        assert certified / spread(head, task, short) <= error * (1 + 1e-9)
        assert error <= certified * (1 + 1e-9)
        master, local = master_bound(head, task, short, long, error), local_bound(head, task, short, long, error)
        assert later <= master.value * (1 + 1e-9)
        assert later <= local.value * (1 + 1e-9)
        assert master.factor <= local.factor * (1 + 1e-9)  # theorem 1 follows from theorem 0
        told["master"] += not master.vacuous
        told["local"] += not local.vacuous
        told["gap"] += not local.vacuous and not head.types.anchored
    assert min(told["master"], told["local"]) >= 22  # 150 of 700
    assert told["gap"] >= 20


@pytest.mark.parametrize("at_query", [False, True])
def test_theorem_2_holds_under_a_coupling(at_query):
    types = CoupledTypes(2, 1, blocks(2), at_query=at_query)
    task = random_task(types)
    for noise in (0.0, 1e-3, 0.1):
        right = torch.nn.functional.one_hot(task.g_star, 2).double()
        head = SparseHead(types, table("a", len(types.shapes), 4), (1 - noise) * right + noise / 2)
        error, later = err_exact(head, task, 10), err_exact(head, task, 12)
        assert later <= local_bound(head, task, 10, 12, error).value
        assert later <= master_bound(head, task, 10, 12).value


def test_zero_error_stays_zero_at_all_lengths():
    task, head = parity_task(2, 2), margin_head(GapTypes(2, 2), math.inf)
    assert err_exact(head, task, 8) == 0
    bound = local_bound(head, task, 8, 1000)
    assert bound.value == 0
    assert not bound.vacuous


def test_a_vacuous_bound_is_not_cut_off():
    task, head = parity_task(2, 2, rho=0.2), margin_head(GapTypes(2, 2), 1.0)
    bound = local_bound(head, task, 8, 400)
    assert bound.value > 100
    assert bound.vacuous


@pytest.mark.parametrize("planted", [GapTypes(2, 4), AnchoredTypes(2, 3)], ids=str)
def test_slope_and_intercept_are_those_of_long_lengths(planted):
    types = GapTypes(2, 4)
    task, head = random_task(types).with_positions(TypeLaw(planted, law("q", len(planted.shapes)))), random_head(types)
    certificate = pair_certificate(head, task)
    far = 100_000
    assert certificate(far) - certificate(far - 1) == pytest.approx(certificate.slope, rel=1e-6)
    assert certificate(far) - far * certificate.slope == pytest.approx(certificate.intercept, abs=1e-3)
    assert certificate.limit == math.inf


@pytest.mark.parametrize("delta", [0.005, 0.05, 0.3])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_the_horizon_is_the_longest_length_certified(k, delta):
    certificate = pair_certificate(margin_head(GapTypes(k, 3), 6.0), parity_task(k, 3))
    horizon = certificate.horizon(delta)
    lengths = range(4, int(certificate.horizon(0.3)) + 10)
    assert horizon == max((length for length in lengths if certificate(length) <= delta), default=0)


def test_horizons_may_be_infinite_or_none():
    exact = pair_certificate(margin_head(GapTypes(2, 3), math.inf), parity_task(2, 3))
    assert (exact.limit, exact.horizon(0.01)) == (0, math.inf)
    alike = pair_certificate(margin_head(GapTypes(2, 3), 0.0), parity_task(2, 3))
    assert alike.horizon(0.01) == 0
    anchored = pair_certificate(random_head(AnchoredTypes(2, 3)), random_task(AnchoredTypes(2, 3)))
    assert anchored.slope == 0
    assert anchored(50) == pytest.approx(anchored.limit, rel=1e-12)


def test_look_alikes_set_the_slope():
    """c1 = C(w, k-1) / 2 * [(1 - rho^k) e^-m / (1 + e^-m) + rho^k / 2], exactly."""
    for k, rho, margin in itertools.product((1, 2, 3), (0.0, 0.1), (2.0, 5.0)):
        slope = pair_certificate(margin_head(GapTypes(k, 4), margin), parity_task(k, 4, rho)).slope
        small = math.exp(-margin)
        expected = math.comb(4, k - 1) / 2 * ((1 - rho**k) * small / (1 + small) + rho**k / 2)
        assert slope == pytest.approx(expected, rel=1e-12)


def test_coverage_grows_with_the_length_for_gaps_and_fails_for_positions():
    task = parity_task(2, 3)
    near, far = (coverage(task, GapTypes(2, 3), 12, length) for length in (24, 48))
    assert 1 < near.kappa < far.kappa < 48 / 4
    assert near.uncovered == []
    assert near.worst in pair_types(GapTypes(2, 3), task.q_pos, 24).listed()
    absolute = coverage(task, AbsoluteTypes(2), 8, 9)
    assert absolute.kappa == math.inf
    assert absolute.uncovered


def test_coverage_counts_only_where_the_head_can_err():
    task, types = parity_task(2, 3), GapTypes(2, 3)
    assert coverage(task, types, 12, 24, margin_head(types, math.inf)).kappa == 0
    assert coverage(task, types, 12, 24, margin_head(types, 2.0)).kappa > 1


def test_an_uncovered_type_makes_the_bound_infinite():
    types = GapTypes(2, 2)
    task = parity_task(2, 2).with_positions(TypeLaw(AnchoredTypes(2, 2), law("q", 3)))
    head = margin_head(types, math.inf)
    assert interior_coverage(task, types, 9, 12) == math.inf  # planted sets are never away from the end
    bound = local_bound(head, task, 9, 12)
    assert bound.value == math.inf
    assert bound.vacuous


def test_bridge_to_the_tasks_of_the_library():
    window, at_end = WindowPositions(width=4), WindowPositions(width=4, at_end=True)
    mu = WeightedTokens(probabilities=[0.7, 0.1, 0.1, 0.1])
    for q_pos in (UniformPositions(), window, at_end, FixedGaps(gaps=[2])):
        task = Planted(k=2, vocab_size=4, q_pos=q_pos, q_voc=UniformTokens(low=2, high=3), mu=mu)
        tables = from_task(task)
        assert tables.q_voc.view(4, 4)[2:, 2:].flatten().tolist() == [0.25] * 4
        assert tables.mu.tolist() == [0.7, 0.1, 0.1, 0.1]
        sample = task.sample(torch.full((40_000,), 7), stream(0, "x", torch.arange(40_000)), 7)
        found, counts = torch.unique(sample.hidden["positions"], dim=0, return_counts=True)
        support, probabilities = tables.q_pos.support(7)
        order = number(support, 7).argsort()
        assert torch.equal(support[order], found)
        assert counts / 40_000 == pytest.approx(probabilities[order], abs=0.012)
        labels = task.g_star.label(words(4, 2))
        assert torch.equal(tables.g_star, labels)


def test_the_law_of_independent_tokens():
    assert power(torch.tensor([0.25, 0.75], dtype=torch.float64), 2).tolist() == [0.0625, 0.1875, 0.1875, 0.5625]


def test_pair_types_merge():
    one = torch.zeros(3, dtype=torch.long)
    pairs = PairTypes(one, one, one[:, None], one[:, None], torch.tensor([0.25, 0.5, 0.0], dtype=torch.float64))
    assert pairs.merged().count.tolist() == [0.75]
