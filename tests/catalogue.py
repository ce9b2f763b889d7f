"""One or more settings of every registered part, for tests that must hold for all of them."""

from longreach.api import (
    AlibiConfig,
    Coupled,
    EntmaxConfig,
    FireConfig,
    KerpleConfig,
    LearnedConfig,
    LearnedRopeConfig,
    NoEncoding,
    Oracle,
    Pose,
    Predicted,
    Randomized,
    RandomStart,
    RopeConfig,
    ScaledSoftmaxConfig,
    Sequential,
    SinusoidalConfig,
    SlidingWindowConfig,
    Softmax,
    Span,
    StickBreakingConfig,
    T5Config,
    TopKConfig,
)
from longreach.tasks import (
    Addition,
    GraphWalk,
    IndexHints,
    ParityScratchpad,
    Planted,
    PointerChasing,
    SparseParity,
    Tape,
    VariableAssignment,
)
from longreach.tasks.planted_laws import FixedGaps, SumMod, TableLabel, UniformTokens, WeightedTokens, WindowPositions

TASKS = [
    SparseParity(k=Span(1, 4)),
    SparseParity(k=Span(2, 2)),
    ParityScratchpad(),
    Planted(),
    Planted(
        k=3,
        vocab_size=3,
        q_pos=WindowPositions(width=4),
        q_voc=UniformTokens(low=0, high=2),
        mu=WeightedTokens(probabilities=[0.5, 0.25, 0.25]),
        g_star=SumMod(p=3),
    ),
    Planted(k=2, q_pos=WindowPositions(width=2, at_end=True), g_star=TableLabel(vocab_size=4, classes=list(range(16)))),
    Planted(k=3, q_pos=FixedGaps(gaps=[1, 2])),
    VariableAssignment(num_names=60),
    VariableAssignment(num_names=60, hops=Span(1, 5), into_chain=1.0, query_id="given"),
    VariableAssignment(num_names=60, hops=Span(1, 3), name_tokens=2),
    VariableAssignment(num_names=60, hops=Span(2, 2), name_tokens=3, query_id="given", into_chain=0.0),
    VariableAssignment(num_names=60, hops=Span(1, 4), scratchpad=False),
    VariableAssignment(num_names=60, hops=Span(2, 2), scratchpad=False, query_id="given"),
    VariableAssignment(num_names=60, hops=Span(1, 4), end="marked"),
    VariableAssignment(num_names=60, hops=Span(1, 4), name_tokens=2, echo=True, end="marked"),
    VariableAssignment(num_names=60, hops=Span(1, 4), name_tokens=2, echo=True, query_id="given"),
    VariableAssignment(num_names=60, hops=Span(1, 4), scratchpad=False, end="marked"),
    Tape(),
    Tape(symbols=2, steps=Span(3, 9)),
    PointerChasing(num_names=60),
    PointerChasing(num_names=60, hops=Span(1, 5)),
    GraphWalk(num_names=60),
    GraphWalk(num_names=60, degree=1, steps=Span(2, 6)),
    Addition(),
    Addition(carry="hidden"),
    IndexHints(of=ParityScratchpad(), num_hints=99),
    IndexHints(of=Addition(), num_hints=99),
    IndexHints(of=Tape(), num_hints=99),
    IndexHints(of=PointerChasing(num_names=60), num_hints=99),
    IndexHints(of=VariableAssignment(num_names=60, hops=Span(1, 4), echo=True, end="marked"), num_hints=99),
]
COUPLED_TASKS = [task for task in TASKS if task.coupling_levels]
RULE_TASKS = [task for task in COUPLED_TASKS if task.coupling_by_rule]

POLICIES = [
    Sequential(),
    RandomStart(max_id=500),
    Randomized(max_id=500),
    Pose(max_id=500),
    Pose(max_id=500, chunks=4),
    Coupled(max_id=500),
    Coupled(max_id=500, form="published", relabelling="offset"),
    Oracle(max_id=500),
    Predicted(max_id=500),
    Predicted(max_id=500, form="published", relabelling="skips"),
]

BIASES = [
    AlibiConfig(),
    T5Config(),
    T5Config(both_ways=True),
    KerpleConfig(),
    KerpleConfig(kernel="power"),
    FireConfig(),
]
ENCODINGS = [
    NoEncoding(),
    LearnedConfig(max_id=120),
    SinusoidalConfig(),
    RopeConfig(),
    RopeConfig(fraction=0.5),
    RopeConfig(spectrum="random"),
    LearnedRopeConfig(max_id=120),
    *BIASES,
]
ATTENTIONS = [
    Softmax(),
    ScaledSoftmaxConfig(),
    ScaledSoftmaxConfig(offset=0.0, start=0.4),
    TopKConfig(keep=4),
    EntmaxConfig(),
    EntmaxConfig(alpha=2.0),
    StickBreakingConfig(),
    SlidingWindowConfig(window=5, sinks=2),
]


def label(part: object) -> str:
    return str(part)[:60]
