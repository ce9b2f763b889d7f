"""What is asked."""

from longreach.spans import Span
from longreach.tasks.addition import Addition
from longreach.tasks.automaton import Automaton
from longreach.tasks.base import PAD, Form, Level, Part, Sample, Task, build_sample, join
from longreach.tasks.copying import Copy, Duplicate, RepeatCopy, UniqueCopy
from longreach.tasks.cycle_navigation import CycleNavigation
from longreach.tasks.dyck import Dyck
from longreach.tasks.even_pairs import EvenPairs
from longreach.tasks.flip_flop import FlipFlop
from longreach.tasks.graph_walk import GraphWalk
from longreach.tasks.hop_induction import HopInduction
from longreach.tasks.index_hints import IndexHints
from longreach.tasks.local_count import LocalCount
from longreach.tasks.missing_duplicate import MissingDuplicate
from longreach.tasks.modular_arithmetic import ModularArithmetic
from longreach.tasks.n_back import NBack
from longreach.tasks.induction import Induction
from longreach.tasks.lego import Lego
from longreach.tasks.mixture import Mixture
from longreach.tasks.needle import Needle
from longreach.tasks.odds_first import OddsFirst
from longreach.tasks.parity_scratchpad import ParityScratchpad
from longreach.tasks.planted import Planted
from longreach.tasks.planted_laws import Label, PositionLaw, TokenLaw
from longreach.tasks.pointer_chasing import PointerChasing
from longreach.tasks.pointer_value_retrieval import PointerValueRetrieval
from longreach.tasks.recall import AssociativeRecall, Mqmtar
from longreach.tasks.reverse import Reverse
from longreach.tasks.sparse_parity import SparseParity
from longreach.tasks.stack_manipulation import StackManipulation
from longreach.tasks.tape import Tape
from longreach.tasks.variable_assignment import VariableAssignment
from longreach.tasks.word_problem import WordProblem
from longreach.tasks.variable_tracking import VariableTracking
from longreach.tasks.worksheet import Worksheet

__all__ = [
    "PAD",
    "Addition",
    "Automaton",
    "AssociativeRecall",
    "Copy",
    "CycleNavigation",
    "Duplicate",
    "Dyck",
    "EvenPairs",
    "FlipFlop",
    "Form",
    "GraphWalk",
    "HopInduction",
    "IndexHints",
    "Induction",
    "Label",
    "Lego",
    "Level",
    "LocalCount",
    "MissingDuplicate",
    "ModularArithmetic",
    "NBack",
    "Mixture",
    "Mqmtar",
    "Needle",
    "OddsFirst",
    "ParityScratchpad",
    "Part",
    "Planted",
    "PointerChasing",
    "PointerValueRetrieval",
    "PositionLaw",
    "RepeatCopy",
    "Reverse",
    "Sample",
    "Span",
    "SparseParity",
    "StackManipulation",
    "Tape",
    "Task",
    "TokenLaw",
    "UniqueCopy",
    "VariableAssignment",
    "WordProblem",
    "VariableTracking",
    "Worksheet",
    "build_sample",
    "join",
]
