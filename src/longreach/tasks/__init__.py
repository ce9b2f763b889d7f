"""What is asked."""

from longreach.spans import Span
from longreach.tasks.base import PAD, Form, Level, Part, Sample, Task, build_sample, join
from longreach.tasks.parity_scratchpad import ParityScratchpad
from longreach.tasks.planted import Planted
from longreach.tasks.planted_laws import Label, PositionLaw, TokenLaw
from longreach.tasks.sparse_parity import SparseParity
from longreach.tasks.variable_assignment import VariableAssignment

__all__ = [
    "PAD",
    "Form",
    "Label",
    "Level",
    "ParityScratchpad",
    "Part",
    "Planted",
    "PositionLaw",
    "Sample",
    "Span",
    "SparseParity",
    "Task",
    "TokenLaw",
    "VariableAssignment",
    "build_sample",
    "join",
]
