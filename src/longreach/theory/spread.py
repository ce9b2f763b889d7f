"""1 + R_l: how much larger all mass is in the mean than the mass of S* and of one other set [ours]."""

import itertools

import torch
from jaxtyping import Float, Int
from torch import Tensor

from longreach.theory.certificate import check_head, check_weights, states
from longreach.theory.heads import SparseHead, word_mass
from longreach.theory.laws import PlantedTask
from longreach.theory.pairs import pair_types
from longreach.theory.types import LocalTypes
from longreach.theory.words import number, words

_AT_ONCE = 1 << 21  # weights at a time


def spread(head: SparseHead, task: PlantedTask, length: int, max_states: int = 1 << 26) -> float:
    """1 + R_l = sup of E[D | S*, Z, X_S] / (A_S* + A_S) over A_S b_S > 0: how much mass is elsewhere.

    A token that is not known is a token of its own, whose weights are averages over mu; then the expected D
    is a D as any other.
    """
    check_head(head, task)
    check_weights(head, task, pair_types(head.types, task.q_pos, length))
    vocab_size, mean = task.vocab_size, _with_unknown(head, task)
    planted, _ = task.q_pos.support(length)
    subsets, kind = head.types.subsets(length)
    word = words(vocab_size, task.k)
    likely = (task.q_voc > 0).nonzero()[:, 0]
    states = len(planted) * len(likely) * len(subsets) * len(word) * len(subsets)
    if states > max_states:
        raise ValueError(f"max_states must be at least {states} at length {length}, got {max_states}")

    own_type, order = head.types.of(planted, length)
    rows = torch.cartesian_prod(torch.arange(len(planted)), likely)
    worst = 1.0
    for part in torch.split(rows, max(1, _AT_ONCE // (len(subsets) * len(word) * length))):
        place, z = planted[part[:, 0]], part[:, 1]
        own = head.a[own_type[part[:, 0]], number(word[z].gather(1, order[part[:, 0]]), vocab_size)]
        line = torch.full((len(part), length), vocab_size).scatter_(1, place, word[z])
        seen = line[:, subsets][:, :, None, :]  # by row, set, word and token of the word
        possible = torch.where(seen < vocab_size, seen == word, task.mu[word] > 0).all(3)
        wrong = head.a[kind] * (1 - head.g[:, task.g_star[z]]).T[:, None]
        row, which, content = ((wrong > 0) & possible).nonzero(as_tuple=True)
        if not len(row):
            continue
        lines = line[row].scatter(1, subsets[which], word[content])
        expected = word_mass(head.types, mean, vocab_size + 1, lines).sum(1)
        is_own = (subsets[which].sort(1).values == place[row].sort(1).values).all(1)
        base = own[row] + torch.where(is_own, 0.0, head.a[kind[which], content])
        worst = max(worst, float((expected / base).max()))
    return worst


def spread_bound(head: SparseHead, task: PlantedTask, length: int) -> float:
    """At least 1 + R_l, for local types at any length: pair types and words are listed, sets are not.

    Sets that meet neither S* nor S weigh what they do in the mean; for those that do there are two bounds.
    """
    check_head(head, task)
    types = head.types
    if not isinstance(types, LocalTypes):
        raise ValueError(f"types must be local for this bound, got {type(types).__name__}")
    pairs = pair_types(types, task.q_pos, length)
    check_weights(head, task, pairs)
    mean, word = _with_unknown(head, task), words(task.vocab_size, task.k)
    background = mean[:, -1]
    all_mean = background @ types.places(length).double()
    heaviest = _heaviest(types, mean, task.vocab_size)
    charge, charged = _charges(types, mean, task.vocab_size)

    worst = 1.0
    patterns, which = torch.unique(torch.cat([pairs.match, pairs.order], dim=1), dim=0, return_inverse=True)
    for index, pattern in enumerate(patterns):
        match, order = pattern[: task.k], pattern[task.k :]
        planted, other, label, _ = states(task, match)
        errs = head.g[other, label] < 1
        planted, other = planted[errs], other[errs]
        if not len(other):
            continue
        fresh = match < 0
        is_own = not bool(fresh.any())
        known = torch.cat([word[planted], word[other][:, fresh]], dim=1)
        second = torch.where(fresh, task.k - 1 + fresh.cumsum(0), match)  # the place of S among the known tokens
        by_overlap = _by_overlap(known, second, heaviest, task.vocab_size)
        own = number(word[planted][:, order], task.vocab_size)
        for part in torch.split((which == index).nonzero()[:, 0], max(1, _AT_ONCE // len(other))):
            first, kind = pairs.planted[part], pairs.other[part]
            weight, elsewhere = head.a[first][:, own], all_mean - background[first]
            by_charge = charged[known].sum(1) - charge[first][:, own]
            possible = torch.ones_like(weight, dtype=torch.bool)
            if not is_own:
                possible = head.a[kind][:, other] > 0
                weight = weight + head.a[kind][:, other]
                elsewhere = elsewhere - background[kind]
                by_charge = by_charge - charge[kind][:, other]
            ratio = 1 + (elsewhere[:, None] + torch.minimum(by_overlap, by_charge)) / weight
            worst = max(worst, float(ratio.where(possible, 1.0).max()))
    return worst


def _heaviest(types: LocalTypes, mean: Float[Tensor, "t n"], vocab_size: int) -> list[Float[Tensor, "_"]]:
    """For j = 1..k, by j tokens: the most that all sets which contain j positions with these tokens, in any order, can
    weigh together in the mean.  Which sets these are depends on the distances of the j positions only."""
    tables = []
    for size in range(1, types.k + 1):
        distances, weights = [], []
        for places in itertools.combinations(range(types.k), size):
            known = torch.full((vocab_size**size, types.k), vocab_size)
            known[:, places] = words(vocab_size, size)
            distances.append(_distances(types, places))
            weights.append(mean[:, number(known, vocab_size + 1)])
        table = _most(torch.cat(distances), torch.cat(weights)).view([vocab_size] * size)
        orders = itertools.permutations(range(size))
        tables.append(torch.stack([table.permute(order) for order in orders]).amax(0).flatten())
    return tables


def _by_overlap(
    known: Int[Tensor, "n t"], second: Int[Tensor, "k"], heaviest: list[Float[Tensor, "_"]], vocab_size: int
) -> Float[Tensor, "n"]:
    """What the sets other than S* and S that contain known tokens can weigh: sets with the same of them together.

    The first k known tokens are those of S*, and `second` says which are those of S.
    """
    k = len(second)
    apart = (tuple(range(k)), tuple(sorted(second.tolist())))
    total = torch.zeros(len(known), dtype=torch.float64)
    for size, table in enumerate(heaviest, start=1):
        for some in itertools.combinations(range(known.shape[1]), size):
            if some not in apart:
                total += table[number(known[:, some], vocab_size)]
    return total


def _charges(
    types: LocalTypes, mean: Float[Tensor, "t n"], vocab_size: int
) -> tuple[Float[Tensor, "t m"], Float[Tensor, "v"]]:
    """Each set shares its weight among its known tokens.  The most it can charge them, by type and word if it knows
    them all; and the most that all sets through one position can charge it, by the token there."""
    k = types.k
    known = (words(vocab_size + 1, k) < vocab_size).sum(1)
    share = (mean / known.clamp(min=1)).view(-1, *[vocab_size + 1] * k)
    sides = (share.movedim(1 + place, -1).reshape(len(mean), -1, vocab_size + 1) for place in range(k))
    by_place = [side[..., :vocab_size].amax(1) for side in sides]
    word = words(vocab_size, k)
    own = torch.stack([table[:, word[:, place]] for place, table in enumerate(by_place)]).sum(0)
    distances = torch.cat([_distances(types, (place,)) for place in range(k)])
    return own, _most(distances, torch.cat(by_place))


def _distances(types: LocalTypes, places: tuple[int, ...]) -> Int[Tensor, "t j"]:
    """Where these tokens of each type are: sets through given positions are those with the same distances."""
    m = types.rule.multiplicity
    cells = types.shapes[:, places]
    return cells if types.anchored else cells - cells[:, :1] // m * m


def _most(distances: Int[Tensor, "s j"], weights: Float[Tensor, "s m"]) -> Float[Tensor, "m"]:
    """The largest sum of weights over rows with the same distances."""
    found, which = torch.unique(distances, dim=0, return_inverse=True)
    total = torch.zeros(len(found), weights.shape[1], dtype=torch.float64)
    return total.index_add_(0, which, weights).amax(0)


def _with_unknown(head: SparseHead, task: PlantedTask) -> Float[Tensor, "t n"]:
    """The weights over a vocabulary with one more token, which stands for one drawn from mu."""
    table = head.a.view(-1, *[task.vocab_size] * task.k)
    for axis in range(1, task.k + 1):
        mean = torch.tensordot(table, task.mu, dims=([axis], [0])).unsqueeze(axis)
        table = torch.cat([table, mean], dim=axis)
    return table.flatten(1)
