"""What is asked."""

from longreach.spans import Span
from longreach.tasks.addition import Addition
from longreach.tasks.assignment_tree import AssignmentTree
from longreach.tasks.base import PAD, Form, Level, Part, Sample, Task, build_sample, join
from longreach.tasks.copying import Copy, Duplicate, RepeatCopy, UniqueCopy
from longreach.tasks.graph_walk import GraphWalk
from longreach.tasks.index_hints import IndexHints
from longreach.tasks.maze import Maze
from longreach.tasks.odds_first import OddsFirst
from longreach.tasks.parity_scratchpad import ParityScratchpad
from longreach.tasks.planted import Planted
from longreach.tasks.planted_laws import Label, PositionLaw, TokenLaw
from longreach.tasks.pointer_chasing import PointerChasing
from longreach.tasks.reverse import Reverse
from longreach.tasks.scan import Scan
from longreach.tasks.sparse_parity import SparseParity
from longreach.tasks.tape import Tape
from longreach.tasks.turing import Turing
from longreach.tasks.variable_assignment import VariableAssignment
from longreach.tasks.worksheet import Worksheet

__all__ = [
    "PAD",
    "Addition",
    "AssignmentTree",
    "Copy",
    "Duplicate",
    "Form",
    "GraphWalk",
    "IndexHints",
    "Label",
    "Level",
    "Maze",
    "OddsFirst",
    "ParityScratchpad",
    "Part",
    "Planted",
    "PointerChasing",
    "PositionLaw",
    "RepeatCopy",
    "Reverse",
    "Sample",
    "Scan",
    "Span",
    "SparseParity",
    "Tape",
    "Task",
    "TokenLaw",
    "Turing",
    "UniqueCopy",
    "VariableAssignment",
    "Worksheet",
    "build_sample",
    "join",
]
