"""Position IDs: one policy per file."""

from longreach.positions.ids.abacus import Abacus
from longreach.positions.ids.base import IdPolicy
from longreach.positions.ids.coupled import Coupled, Oracle
from longreach.positions.ids.predicted import Predicted
from longreach.positions.ids.sequential import Pose, Randomized, RandomStart, Sequential, UniformPose
from longreach.tasks.relabelling import coverage

__all__ = [
    "Abacus",
    "Coupled",
    "IdPolicy",
    "Oracle",
    "Pose",
    "Predicted",
    "RandomStart",
    "Randomized",
    "Sequential",
    "UniformPose",
    "coverage",
]
