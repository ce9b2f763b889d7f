"""Objectives: what training minimises, as a sum of weighted terms."""

from longreach.objectives.base import (
    Batch,
    ForwardPass,
    Objective,
    Places,
    Prepared,
    Term,
    TokenLoss,
    id_targets,
    resolve_objectives,
    run_forward,
    select,
    terms,
    token_places,
    token_targets,
)
from longreach.objectives.dependencies import DependencyLoss
from longreach.objectives.predicted_ids import IdLoss, id_choices
from longreach.objectives.upgrade import upgrade_objective

__all__ = [
    "Batch",
    "DependencyLoss",
    "ForwardPass",
    "IdLoss",
    "Objective",
    "Places",
    "Prepared",
    "Term",
    "TokenLoss",
    "id_choices",
    "id_targets",
    "resolve_objectives",
    "run_forward",
    "select",
    "terms",
    "token_places",
    "token_targets",
    "upgrade_objective",
]
