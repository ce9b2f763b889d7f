"""Training."""

from longreach.training.checkpoint import (
    Checkpoint,
    list_checkpoints,
    load_checkpoint,
    newest_intact,
    prune,
    remove_later,
    save_checkpoint,
)
from longreach.training.config import TrainConfig
from longreach.training.deterministic import ask_for_repeatable_products, deterministic_kernels
from longreach.training.loop import Hooks, train
from longreach.training.optimizer import OptimizerConfig, build_optimizer
from longreach.training.step import AnyStep, Step
from longreach.training.stream import PrimeConfig, TrainingStream, legal_lengths

__all__ = [
    "AnyStep",
    "Checkpoint",
    "Hooks",
    "OptimizerConfig",
    "PrimeConfig",
    "Step",
    "TrainConfig",
    "TrainingStream",
    "ask_for_repeatable_products",
    "build_optimizer",
    "deterministic_kernels",
    "legal_lengths",
    "list_checkpoints",
    "load_checkpoint",
    "newest_intact",
    "prune",
    "remove_later",
    "save_checkpoint",
    "train",
]
