"""Planted tasks and heads to try the theory on: parity of marked tokens, sums of last digits, and random ones."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from longreach.seeding import stream
from longreach.theory.coupling import blocks
from longreach.theory.heads import SparseHead
from longreach.theory.laws import PlantedTask, TypeLaw
from longreach.theory.types import AnchoredTypes, CoupledTypes, GapTypes, LocalTypes
from longreach.theory.words import power, words


def parity_task(k: int, w: int, rho: float = 0.0) -> PlantedTask:
    """Parity of k planted tokens, each 1 or 2, at uniform gaps of span at most w; elsewhere stands 0, or with
    probability rho a look-alike, 1 or 2."""
    if not 0 <= rho < 1:
        raise ValueError(f"rho must be from 0 to below 1, got {rho}")
    signal = torch.tensor([0.0, 0.5, 0.5], dtype=torch.float64)
    mu = torch.tensor([1 - rho, rho / 2, rho / 2], dtype=torch.float64)
    return PlantedTask(k, 3, TypeLaw.uniform(GapTypes(k, w)), power(signal, k), mu, words(3, k).sum(1) % 2, 2)


def margin_head(types: LocalTypes, margin: float, decided: bool = False) -> SparseHead:
    """For `parity_task`: weight 1 where all tokens are signals and e^-margin elsewhere, for all types.

    Where they are not all signals the prediction is a half each, or if `decided` the parity just the same.
    With an infinite margin the loss is 0 as long as there are no look-alikes.
    """
    word = words(3, types.k)
    signal = (word > 0).all(1)
    weight = torch.where(signal, 1.0, torch.tensor(-margin, dtype=torch.float64).exp())
    g = F.one_hot(word.sum(1) % 2, 2).double()
    if not decided:
        g[~signal] = 0.5
    return SparseHead(types, weight.repeat(types.num_types(0), 1), g)


def last_digits() -> PlantedTask:
    """The sum mod 10 of the last digits of two numbers of length / 2 digits each, digits uniform.

    The planted sets have a type if the numbers are aligned: both digits have the last ID.
    """
    types = CoupledTypes(2, 1, blocks(2), at_query=True)
    planted = types.of(torch.tensor([[6, 13]]), 14)[0][0]
    uniform = torch.full((10,), 0.1, dtype=torch.float64)
    q_pos = TypeLaw(types, F.one_hot(planted, len(types.shapes)).double())
    return PlantedTask(2, 10, q_pos, power(uniform, 2), uniform, words(10, 2).sum(1) % 10)


class Instance(NamedTuple):
    task: PlantedTask
    head: SparseHead
    short: int
    long: int


def random_instance(index: int) -> Instance:
    """Laws, labels and weights drawn at random, small enough for exact errors; k = 1, 2, 3 in turn, every fifth
    anchored.

    Most background is one token.  A third of the words may be planted, those with least of this token, and both
    labels occur among them.  The head gives planted words weights from a half to 1, all others from e^-margin to
    e^-margin/2 with a margin of up to 16, and predicts the label but for a share of up to 1/10 that is random.
    This design was chosen so that bounds say something for every k.  With all of it uniformly random about a
    fifth were below 1, but nearly all of those had k = 1, anchored types or almost no error.
    """
    draws = stream(index, "theory instance", torch.arange(1))

    def uniform(name: str, *shape: int) -> Tensor:
        return draws.uniform(name, torch.Size(shape).numel()).view(shape)

    def law(name: str, *shape: int) -> Tensor:
        """Uniform over all laws: exponential variables over their sum."""
        sticks = -uniform(name, *shape).clamp(min=1e-12).log()
        return sticks / sticks.sum(-1, keepdim=True)

    k = 1 + index % 3
    w = k - 1 + int(draws.below("w", 4 - k, 1))
    types: LocalTypes = AnchoredTypes(k, w) if index % 5 == 4 else GapTypes(k, w)
    least = w + 2 if types.anchored else max(3 * w + 1, w + min(k * k, 2 * w + 1) + 1)
    short = least + int(draws.below("short", 3, 1))
    long = short + 1 + int(draws.below("long", 2, 1))
    vocab_size = 2 if long > 9 else 3
    num_types, num_words = len(types.shapes), vocab_size**k
    common = int(draws.below("common", vocab_size, 1))
    familiar = (words(vocab_size, k) == common).sum(1) + draws.uniform("planted", num_words)[0]
    place = familiar.argsort().argsort()
    planted = place < max(2, num_words // 3)
    g_star = place % 2
    q_voc = law("q_voc", num_words) * planted
    rho = 10 ** -(0.5 + 2.5 * float(draws.uniform("rho", 1)))
    mu = rho * law("mu", vocab_size)
    mu[common] += 1 - rho
    task = PlantedTask(k, vocab_size, TypeLaw(types, law("q_pos", num_types)), q_voc / q_voc.sum(), mu, g_star, 2)
    margin = 16 * float(draws.uniform("margin", 1))
    share = uniform("a", num_types, num_words)
    a = torch.where(planted, 0.5 + share / 2, (-margin * (0.5 + share / 2)).exp())
    noise = 10 ** -(1 + 6 * float(draws.uniform("noise", 1)))
    g = (1 - noise) * F.one_hot(g_star, 2).double() + noise * law("g", num_words, 2)
    return Instance(task, SparseHead(types, a, g), short, long)
