"""What cannot be computed is refused with one clear line."""

import pytest
import torch

from longreach.seeding import stream
from longreach.theory import (
    AbsoluteTypes,
    AnchoredTypes,
    ChainHead,
    CoupledTypes,
    Coupling,
    CouplingRule,
    Dfa,
    GapTypes,
    IdHead,
    ListedPositions,
    PlantedTask,
    SparseHead,
    TapeHead,
    TypeLaw,
    blocks,
    coverage,
    err_exact,
    err_mc,
    fit_head,
    indistinguishable,
    local_bound,
    master_bound,
    pair_bound,
    pair_certificate,
    partial_bound,
    rollout_bound,
    schedule_hit,
    shortest_training,
    spread,
    spread_bound,
    swamped,
    walk,
)
from longreach.theory.instances import margin_head, parity_task


def f64(*values):
    return torch.tensor(values, dtype=torch.float64)


def task_with(k=1, q_voc=(0.5, 0.5), mu=(0.5, 0.5), g_star=(0, 1), classes=0):
    q_pos = TypeLaw.uniform(GapTypes(1, 0))
    return PlantedTask(k, 2, q_pos, f64(*q_voc), f64(*mu), torch.tensor(g_star), classes)


def head_with(a=((1.0, 1.0),), g=((1.0, 0.0), (0.0, 1.0))):
    return SparseHead(GapTypes(1, 0), f64(*a), f64(*g))


def one_state(vocab_size=2):
    return Dfa(torch.zeros(1, vocab_size, dtype=torch.long), f64((1.0,)))


ZERO, ONES = margin_head(GapTypes(2, 2), 50.0), torch.ones(2, 2, dtype=torch.float64)
TASK, WIDE = parity_task(2, 2), parity_task(2, 4)
OFF = f64((1.0, 0.0, 0.0), (0.0, 0.0, 1.0))
TOKENS = torch.zeros(1, 9, dtype=torch.long)


@pytest.mark.parametrize(
    ("build", "line"),
    [
        # laws
        (lambda: task_with(q_voc=(1.5, -0.5)), "q_voc must not be negative and must add up to 1"),
        (lambda: task_with(q_voc=(0.5, 0.4)), "q_voc must not be negative and must add up to 1, got sum 0.9"),
        (lambda: task_with(mu=(float("nan"), 0.5)), "mu must not be negative and must add up to 1, got sum nan"),
        (lambda: task_with(mu=(1.0,)), "mu must have 2 entries, got 1"),
        (lambda: task_with(g_star=(0, -1)), "g_star must be numbers from 0, got -1"),
        (lambda: task_with(g_star=(0, 2), classes=2), "num_classes must be at least 3, got 2"),
        (lambda: task_with(k=0), "k must be at least 1, got 0"),
        (lambda: TypeLaw(GapTypes(2, 2), f64(0.5, 0.4)), "probabilities of types must not be negative"),
        (lambda: TypeLaw(GapTypes(2, 2), f64(1.0)).support(9), "probabilities of types must be 2 at length 9, got 1"),
        (
            lambda: ListedPositions(lambda length: (torch.tensor([[0]]), f64(0.5))).support(3),
            "q_pos must not be negative and must add up to 1, got sum 0.5",
        ),
        (lambda: IdHead(f64((1.0, 0, 0), (0, 0, 0.5))), "g must not be negative and must add up to 1"),
        (lambda: PlantedTask(1, 2, TASK.q_pos, f64(0.5, 0.5).float(), f64(0.5, 0.5), torch.tensor([0, 1])), "float64"),
        # heads
        (lambda: head_with(a=((1.0, -1.0),)), "a must be finite and must not be negative, got -1"),
        (lambda: head_with(a=((1.0, float("nan")),)), "a must be finite"),
        (lambda: head_with(g=((1.0, 0.0), (0.0, 0.9))), "g must not be negative and must add up to 1, got sum 0.9"),
        (lambda: head_with(a=((1.0, 1.0, 1.0),)), "a must have a column for each of the 2 words, got 3"),
        (
            lambda: SparseHead(GapTypes(2, 1), torch.ones(1, 5, dtype=torch.float64), ONES[:, :1].repeat(5, 1)[:5]),
            "g must have a row for each word of 2 tokens, got 5 rows",
        ),
        (lambda: head_with().forward(torch.tensor([[0, 2]])), "tokens must be from 0 to 1, got 2"),
        (lambda: head_with().forward(torch.tensor([[0, -1]])), "tokens must be from 0 to 1, got -1"),
        (
            lambda: SparseHead(AbsoluteTypes(1), ONES, torch.eye(2, dtype=torch.float64)).forward(TOKENS),
            "a must have a row for each type at length 9, got 2",
        ),
        (lambda: TapeHead(torch.ones(4, 2, 2).double(), torch.eye(2).double().repeat(2, 1, 1)), "a must be 2w"),
        # chains
        (lambda: ChainHead(-ONES, None, one_state()), "u must be finite and must not be negative, got -1"),
        (lambda: ChainHead(ONES, -ONES[:1], one_state()), "v must be finite and must not be negative, got -1"),
        (lambda: ChainHead(ONES, ONES, one_state()), "v must have 1 rows, got 2"),
        (lambda: ChainHead(ONES, None, one_state(3)), "u must have a column for each of 3 tokens, got 2"),
        (lambda: ChainHead(ONES, None, one_state(), 0), "span must be at least 1 for k=2, got 0"),
        (lambda: ChainHead(ONES[:0], None, one_state()), "k must be at least 1, got 0"),
        (lambda: ChainHead(ONES, None, one_state()).forward(TOKENS + 2), "tokens must be from 0 to 1, got 2"),
        (lambda: ChainHead(ONES, None, one_state()).forward(TOKENS[:, :1]), "length must be at least 2, got 1"),
        (lambda: ChainHead(ONES, None, one_state(), 9).forward(TOKENS), "length must be at least 10, got 9"),
        (lambda: Dfa(torch.tensor([[1, 0]]), f64((1.0,))), "step must lead to states 0 to 0"),
        # lengths and windows
        (lambda: GapTypes(0, 2), "k must be at least 1, got 0"),
        (lambda: AbsoluteTypes(0), "k must be at least 1, got 0"),
        (lambda: GapTypes(4, 2), "w must be at least 3 for k=4, got 2"),
        (lambda: AnchoredTypes(4, 2), "w must be at least 3 for k=4, got 2"),
        (lambda: CoupledTypes(5, 1, blocks(2)), "w must be at least 2 for k=5, got 1"),
        (lambda: GapTypes(2, 3).subsets(3), "length must give more than w=3 IDs, got 3 at length 3"),
        (lambda: AbsoluteTypes(3).subsets(2), "length must be at least k=3, got 2"),
        (lambda: err_exact(ZERO, TASK, 2), "length must give more than w=2 IDs, got 2"),
        (lambda: err_exact(ZERO, TASK, 30), "max_states must be at least"),
        (lambda: spread(ZERO, TASK, 30, max_states=10), "max_states must be at least"),
        (lambda: err_mc(ZERO, TASK, 9, 1), "samples must be at least 2, got 1"),
        (lambda: fit_head(TASK, GapTypes(2, 2), []), "lengths must not be empty"),
        (lambda: fit_head(TASK, GapTypes(2, 2), [9], steps=0), "steps, batch and rate must be positive"),
        # bounds
        (lambda: pair_bound(ZERO, WIDE, 9), "planted sets must have a type in the head's class"),
        (lambda: coverage(WIDE, GapTypes(2, 2), 9, 12), "planted sets must have a type in the head's class"),
        (lambda: local_bound(ZERO, WIDE, 9, 12, 0.1), "planted sets must have a type in the class"),
        (lambda: local_bound(ZERO, TASK, 6, 12), "short must give at least 7 IDs for w=2 and k=2, got 6"),
        (lambda: local_bound(ZERO, TASK, 9, 8), "long must be at least short=9, got 8"),
        (lambda: master_bound(ZERO, TASK, 9, 12, 1.5), "error must be between 0 and 1, got 1.5"),
        (lambda: master_bound(ZERO, TASK, [9, 13], 12), "long must be at least short=13, got 12"),
        (lambda: coverage(TASK, GapTypes(2, 2), [], 12), "short must be a length or several, got []"),
        (lambda: partial_bound(ZERO, TASK, 9, 12, 0.1, -1.0), "max_kappa must not be negative, got -1.0"),
        (lambda: partial_bound(ZERO, TASK, 9, 12, 0.1, float("nan")), "max_kappa must not be negative, got nan"),
        (lambda: partial_bound(ZERO, WIDE, 9, 12, 0.1), "planted sets must have a type in the head's class"),
        (lambda: spread_bound(ZERO, WIDE, 9), "planted sets must have a type in the head's class"),
        (
            lambda: spread_bound(SparseHead(AbsoluteTypes(2), ZERO.a, ZERO.g), TASK, 9),
            "types must be local for this bound, got AbsoluteTypes",
        ),
        (lambda: shortest_training(TASK, GapTypes(2, 2), 12, 0.0), "max_kappa must be positive, got 0.0"),
        (
            lambda: local_bound(SparseHead(AbsoluteTypes(2), ZERO.a, ZERO.g), TASK, 9, 12),
            "types must be local for this bound, got AbsoluteTypes",
        ),
        (
            lambda: pair_certificate(SparseHead(AnchoredTypes(2, 2), ZERO.a[:1].repeat(3, 1), ZERO.g), TASK),
            "a certificate must have local types under the coupling of q_pos",
        ),
        (
            lambda: pair_bound(SparseHead(GapTypes(2, 2), 0 * ZERO.a, ZERO.g), TASK, 9),
            "a must be positive at planted types and words, got 0 at type 0",
        ),
        (lambda: pair_bound(head_with(), TASK, 9), "a head must have the task's k=2, 3 tokens and 2 classes, got k=1"),
        (lambda: pair_certificate(ZERO, TASK).horizon(0.0), "delta must be between 0 and 1, got 0.0"),
        (lambda: rollout_bound(0, 0.1), "steps must be at least 1, got 0"),
        (lambda: rollout_bound(2, -0.1), "error must be between 0 and 1, got -0.1"),
        # couplings
        (lambda: Coupling.from_map([1, 1, 2]), "every ID to equally many positions, got ID 2 at 1 and ID 1 at 2"),
        (lambda: Coupling.from_map([1, 3]), "every ID to equally many positions, got ID 2 at 0 and ID 1 at 1"),
        (lambda: Coupling.from_map([0, 0]), "coupling must give an ID to some position"),
        (lambda: Coupling.from_map([1, -1]), "coupling IDs must not be negative, got -1"),
        (lambda: Coupling(torch.tensor([1, 1]), torch.tensor([0, 0])), "coupling tracks must number the positions"),
        (lambda: CouplingRule(2, lambda length: range(1, length + 1)).at(3), "each ID to 2 positions, got 1"),
        (lambda: blocks(0), "blocks must be at least 1, got 0"),
        # tapes and counterexamples
        (lambda: walk(TOKENS, torch.tensor([9]), 3, stream(0, "x", torch.arange(1))), "start must be a cell from 0"),
        (lambda: walk(TOKENS, torch.tensor([0]), 0, stream(0, "x", torch.arange(1))), "steps must be at least 1"),
        (lambda: walk(TOKENS[:, :1], torch.tensor([0]), 1, stream(0, "x", torch.arange(1))), "at least 2 cells, got 1"),
        (lambda: schedule_hit(0, 1), "steps must be at least 1 and w at least 0, got 0 and 1"),
        (lambda: indistinguishable(1, 5), "p must be at least 2, got 1"),
        (lambda: indistinguishable(2, 1), "trained must be at least 2, got 1"),
        (lambda: swamped(ZERO, 2, 1.0, 9), "trained must be above w=2"),
        (lambda: swamped(ZERO, 8, -1.0, 9), "extra must not be negative, got -1.0"),
        (lambda: parity_task(2, 2, rho=1.0), "rho must be from 0 to below 1, got 1.0"),
    ],
)
def test_bad_input_is_refused_with_one_clear_line(build, line):
    with pytest.raises(ValueError) as refused:  # noqa: PT011
        build()
    assert line in str(refused.value)
    assert "\n" not in str(refused.value)


def test_reserved_positions_are_no_irregularity():
    assert Coupling.from_map([1, 2, 0, 1, 2, 0, 0]).multiplicity == 2
