"""The theory, as something to compute with: planted tasks, heads of the class, errors, certificates and bounds."""

from longreach.theory.bounds import Bound, local_bound, master_bound, partial_bound, rollout_bound
from longreach.theory.certificate import Certificate, pair_bound, pair_certificate, phi
from longreach.theory.chain import ChainHead, Dfa, GuessingDfa
from longreach.theory.counterexamples import OracleHead, indistinguishable, swamped
from longreach.theory.counts import CountHead
from longreach.theory.coupling import IDENTITY, Coupling, CouplingRule, blocks
from longreach.theory.coverage import Coverage, Partial, Partials, coverage, interior_coverage, partial_coverage
from longreach.theory.errors import SampleMean, err_exact, err_mc
from longreach.theory.fit import Fitted, fit_head
from longreach.theory.growth import SignalHeads, match_margin, predict_growth, signal_heads
from longreach.theory.heads import SparseHead, TheoryHead
from longreach.theory.laws import ListedPositions, PlantedTask, Positions, TypeLaw, from_task
from longreach.theory.pairs import PairType, PairTypes, count_pairs, pair_types
from longreach.theory.plan import Ranked, TrainingLengthPlan, rank_couplings, shortest_training
from longreach.theory.rollout import (
    IdHead,
    Rollout,
    TapeHead,
    Walk,
    ppc_rollout,
    schedule_bound,
    schedule_hit,
    teacher_forced,
    walk,
)
from longreach.theory.spread import spread, spread_bound
from longreach.theory.types import AbsoluteTypes, AnchoredTypes, CoupledTypes, GapTypes, LocalTypes, Types

__all__ = [
    "IDENTITY",
    "AbsoluteTypes",
    "AnchoredTypes",
    "Bound",
    "Certificate",
    "ChainHead",
    "CountHead",
    "CoupledTypes",
    "Coupling",
    "CouplingRule",
    "Coverage",
    "Dfa",
    "Fitted",
    "GapTypes",
    "GuessingDfa",
    "IdHead",
    "ListedPositions",
    "LocalTypes",
    "OracleHead",
    "PairType",
    "PairTypes",
    "Partial",
    "Partials",
    "PlantedTask",
    "Positions",
    "Ranked",
    "Rollout",
    "SampleMean",
    "SignalHeads",
    "SparseHead",
    "TapeHead",
    "TheoryHead",
    "TrainingLengthPlan",
    "TypeLaw",
    "Types",
    "Walk",
    "blocks",
    "count_pairs",
    "coverage",
    "err_exact",
    "err_mc",
    "fit_head",
    "from_task",
    "indistinguishable",
    "interior_coverage",
    "local_bound",
    "master_bound",
    "match_margin",
    "pair_bound",
    "pair_certificate",
    "pair_types",
    "partial_bound",
    "partial_coverage",
    "phi",
    "ppc_rollout",
    "predict_growth",
    "rank_couplings",
    "rollout_bound",
    "schedule_bound",
    "schedule_hit",
    "shortest_training",
    "signal_heads",
    "spread",
    "spread_bound",
    "swamped",
    "teacher_forced",
    "walk",
]
