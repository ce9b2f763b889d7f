"""Training."""

from longreach.engine.parallel import Parallel, Shared, check_parallel
from longreach.engine.stacked_optimizer import stack_state, take_member
from longreach.engine.stacked_stream import StackedStream
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
from longreach.training.stream import PrimeConfig, TrainingStream, legal_lengths

__all__ = [
    "Checkpoint",
    "Hooks",
    "OptimizerConfig",
    "Parallel",
    "PrimeConfig",
    "Shared",
    "StackedStream",
    "TrainConfig",
    "TrainingStream",
    "ask_for_repeatable_products",
    "build_optimizer",
    "check_parallel",
    "deterministic_kernels",
    "legal_lengths",
    "list_checkpoints",
    "load_checkpoint",
    "newest_intact",
    "prune",
    "remove_later",
    "save_checkpoint",
    "stack_state",
    "take_member",
    "train",
]
