"""What a script imports: `from longreach.api import ...`."""

from pathlib import Path

from longreach.attention import AttentionConfig, ScaledSoftmaxConfig, Softmax
from longreach.decode import generate
from longreach.evaluate import EvalConfig, Score, evaluate, reach
from longreach.model import ModelConfig, Transformer, build_model
from longreach.positions.encodings import LearnedConfig, NoEncoding, RopeConfig, SinusoidalConfig
from longreach.positions.ids import Coupled, IdPolicy, Oracle, Pose, RandomStart, Sequential
from longreach.registry import register
from longreach.runs import Observer, RunConfig, RunFolder, choose_device, execute, gather_info, load_model, load_recipe
from longreach.seeding import Draws, stream
from longreach.spans import Lengths, Span
from longreach.tasks import (
    Form,
    Level,
    ParityScratchpad,
    Planted,
    Sample,
    SparseParity,
    Task,
    VariableAssignment,
    build_sample,
    join,
)
from longreach.train import OptimizerConfig, TrainConfig

__all__ = [
    "AttentionConfig",
    "Coupled",
    "Draws",
    "EvalConfig",
    "Form",
    "IdPolicy",
    "LearnedConfig",
    "Lengths",
    "Level",
    "ModelConfig",
    "NoEncoding",
    "Observer",
    "OptimizerConfig",
    "Oracle",
    "ParityScratchpad",
    "Planted",
    "Pose",
    "RandomStart",
    "RopeConfig",
    "RunConfig",
    "RunFolder",
    "Sample",
    "ScaledSoftmaxConfig",
    "Score",
    "Sequential",
    "SinusoidalConfig",
    "Softmax",
    "Span",
    "SparseParity",
    "Task",
    "TrainConfig",
    "Transformer",
    "VariableAssignment",
    "build_model",
    "build_sample",
    "evaluate",
    "generate",
    "join",
    "load_model",
    "load_recipe",
    "reach",
    "register",
    "run",
    "stream",
]


def run(config: RunConfig, out: str | Path, seed: int = 0, device: str = "auto", resume: bool = False) -> list[Score]:
    """Train and test one model in the folder `out`; returns its scores."""
    chosen = choose_device(device)
    folder = RunFolder(Path(out))
    execute(config, folder, gather_info("script", "", "", seed, chosen), chosen, resume, Observer())
    return folder.scores()
