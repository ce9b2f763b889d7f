"""Training."""

from longreach.train.checkpoint import (
    Checkpoint,
    list_checkpoints,
    load_checkpoint,
    newest_intact,
    prune,
    remove_later,
    save_checkpoint,
)
from longreach.train.deterministic import ask_for_repeatable_products, deterministic_kernels
from longreach.train.loop import Hooks, TrainConfig, train
from longreach.train.optimizer import OptimizerConfig, build_optimizer
from longreach.train.parallel import Parallel, Shared, check_parallel
from longreach.train.stack import stack_state, take_member
from longreach.train.stacked_stream import StackedStream
from longreach.train.stream import PrimeConfig, TrainingStream, legal_lengths

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
