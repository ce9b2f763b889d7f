"""What is asked."""

from longreach.tasks.addition import Addition
from longreach.tasks.assignment_tree import AssignmentTree
from longreach.tasks.automaton import Automaton
from longreach.tasks.base import PAD, Form, Level, Part, Sample, Task, Worksheet, build_sample, join
from longreach.tasks.binary import BinaryAddition, BinaryMultiplication
from longreach.tasks.compute_sqrt import ComputeSqrt
from longreach.tasks.copying import Copy, Duplicate, RepeatCopy, UniqueCopy
from longreach.tasks.counting import Count, Counting
from longreach.tasks.cycle_navigation import CycleNavigation
from longreach.tasks.dyck import Dyck
from longreach.tasks.even_pairs import EvenPairs
from longreach.tasks.example import Example
from longreach.tasks.flip_flop import FlipFlop
from longreach.tasks.graph_walk import GraphWalk
from longreach.tasks.hop_induction import HopInduction
from longreach.tasks.index_hints import IndexHints
from longreach.tasks.induction import Induction
from longreach.tasks.jsonl import Jsonl
from longreach.tasks.lego import Lego
from longreach.tasks.local_count import LocalCount
from longreach.tasks.lookups import PromptAutomaton, Translate, TreeBfs
from longreach.tasks.majority import Majority
from longreach.tasks.maze import Maze
from longreach.tasks.minesweeper import Minesweeper
from longreach.tasks.missing_duplicate import MissingDuplicate
from longreach.tasks.mixture import Mixture
from longreach.tasks.modular_arithmetic import ModularArithmetic
from longreach.tasks.multi_addition import MultiAddition
from longreach.tasks.multiplication import Multiplication
from longreach.tasks.n_back import NBack
from longreach.tasks.needle import Needle
from longreach.tasks.odds_first import OddsFirst
from longreach.tasks.parity import Parity
from longreach.tasks.parity_scratchpad import ParityScratchpad
from longreach.tasks.plain import PlainTask, Row
from longreach.tasks.plain_addition import PlainAddition
from longreach.tasks.planted import Planted
from longreach.tasks.planted_laws import Label, PositionLaw, TokenLaw
from longreach.tasks.pointer_chasing import PointerChasing
from longreach.tasks.pointer_value_retrieval import PointerValueRetrieval
from longreach.tasks.program import Program
from longreach.tasks.programs import (
    Insertion,
    LongDivision,
    Merge,
    Polynomial,
    RunLengthDecode,
    RunLengthEncode,
    StackMachine,
    StringSearch,
)
from longreach.tasks.recall import AssociativeRecall, Mqmtar
from longreach.tasks.regions import Region
from longreach.tasks.reverse import Reverse
from longreach.tasks.scan import Scan
from longreach.tasks.solve_equation import SolveEquation
from longreach.tasks.sorting import BucketSort, Sort
from longreach.tasks.sparse_parity import SparseParity, SparseParityScratchpad
from longreach.tasks.stack_manipulation import StackManipulation
from longreach.tasks.subtraction import Subtraction
from longreach.tasks.tape import Tape
from longreach.tasks.text import Text
from longreach.tasks.turing import Turing
from longreach.tasks.variable_assignment import VariableAssignment
from longreach.tasks.variable_tracking import VariableTracking
from longreach.tasks.word_problem import WordProblem

__all__ = [
    "PAD",
    "Addition",
    "AssignmentTree",
    "AssociativeRecall",
    "Automaton",
    "BinaryAddition",
    "BinaryMultiplication",
    "BucketSort",
    "ComputeSqrt",
    "Copy",
    "Count",
    "Counting",
    "CycleNavigation",
    "Duplicate",
    "Dyck",
    "EvenPairs",
    "Example",
    "FlipFlop",
    "Form",
    "GraphWalk",
    "HopInduction",
    "IndexHints",
    "Induction",
    "Insertion",
    "Jsonl",
    "Label",
    "Lego",
    "Level",
    "LocalCount",
    "LongDivision",
    "Majority",
    "Maze",
    "Merge",
    "Minesweeper",
    "MissingDuplicate",
    "Mixture",
    "ModularArithmetic",
    "Mqmtar",
    "MultiAddition",
    "Multiplication",
    "NBack",
    "Needle",
    "OddsFirst",
    "Parity",
    "ParityScratchpad",
    "Part",
    "PlainAddition",
    "PlainTask",
    "Planted",
    "PointerChasing",
    "PointerValueRetrieval",
    "Polynomial",
    "PositionLaw",
    "Program",
    "PromptAutomaton",
    "Region",
    "RepeatCopy",
    "Reverse",
    "Row",
    "RunLengthDecode",
    "RunLengthEncode",
    "Sample",
    "Scan",
    "SolveEquation",
    "Sort",
    "SparseParity",
    "SparseParityScratchpad",
    "StackMachine",
    "StackManipulation",
    "StringSearch",
    "Subtraction",
    "Tape",
    "Task",
    "Text",
    "TokenLaw",
    "Translate",
    "TreeBfs",
    "Turing",
    "UniqueCopy",
    "VariableAssignment",
    "VariableTracking",
    "WordProblem",
    "Worksheet",
    "build_sample",
    "join",
]
