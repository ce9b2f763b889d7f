"""What is asked."""

from longreach.spans import Span
from longreach.tasks.addition import Addition
from longreach.tasks.base import PAD, Form, Level, Part, Sample, Task, build_sample, join
from longreach.tasks.copying import Copy, Duplicate, RepeatCopy, UniqueCopy
from longreach.tasks.counting import Count, Counting
from longreach.tasks.graph_walk import GraphWalk
from longreach.tasks.index_hints import IndexHints
from longreach.tasks.majority import Majority
from longreach.tasks.minesweeper import Minesweeper
from longreach.tasks.multi_addition import MultiAddition
from longreach.tasks.multiplication import Multiplication
from longreach.tasks.odds_first import OddsFirst
from longreach.tasks.parity import Parity
from longreach.tasks.parity_scratchpad import ParityScratchpad
from longreach.tasks.plain_addition import PlainAddition
from longreach.tasks.planted import Planted
from longreach.tasks.planted_laws import Label, PositionLaw, TokenLaw
from longreach.tasks.pointer_chasing import PointerChasing
from longreach.tasks.reverse import Reverse
from longreach.tasks.sorting import BucketSort, Sort
from longreach.tasks.sparse_parity import SparseParity
from longreach.tasks.subtraction import Subtraction
from longreach.tasks.tape import Tape
from longreach.tasks.variable_assignment import VariableAssignment
from longreach.tasks.worksheet import Worksheet

__all__ = [
    "PAD",
    "Addition",
    "BucketSort",
    "Copy",
    "Count",
    "Counting",
    "Duplicate",
    "Form",
    "GraphWalk",
    "IndexHints",
    "Label",
    "Level",
    "Majority",
    "Minesweeper",
    "MultiAddition",
    "Multiplication",
    "OddsFirst",
    "Parity",
    "ParityScratchpad",
    "Part",
    "PlainAddition",
    "Planted",
    "PointerChasing",
    "PositionLaw",
    "RepeatCopy",
    "Reverse",
    "Sample",
    "Sort",
    "Span",
    "SparseParity",
    "Subtraction",
    "Tape",
    "Task",
    "TokenLaw",
    "UniqueCopy",
    "VariableAssignment",
    "Worksheet",
    "build_sample",
    "join",
]
