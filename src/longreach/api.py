"""What a script imports: `from longreach.api import ...`."""

from pathlib import Path

from longreach.attention import (
    AttentionConfig,
    EntmaxConfig,
    ScaledSoftmaxConfig,
    SlidingWindowConfig,
    Softmax,
    StickBreakingConfig,
    TopKConfig,
)
from longreach.decode import Sampling, generate
from longreach.evaluate import EvalConfig, Score, evaluate, reach
from longreach.model import (
    Model,
    ModelConfig,
    PointerConfig,
    PositionHeadConfig,
    RecurrentConfig,
    TableConfig,
    Transformer,
    TransformerConfig,
    build_model,
)
from longreach.objective import ObjectiveConfig
from longreach.positions.encodings import (
    AlibiConfig,
    FireConfig,
    KerpleConfig,
    LearnedConfig,
    LearnedRopeConfig,
    NoEncoding,
    RopeConfig,
    SinusoidalConfig,
    T5Config,
)
from longreach.positions.ids import Coupled, IdPolicy, Oracle, Pose, Predicted, Randomized, RandomStart, Sequential
from longreach.registry import register
from longreach.runs import Observer, RunConfig, RunFolder, choose_device, execute, gather_info, load_model, load_recipe
from longreach.seeding import Draws, stream
from longreach.spans import Lengths, Span
from longreach.tasks import (
    Addition,
    Form,
    GraphWalk,
    IndexHints,
    Level,
    ParityScratchpad,
    Planted,
    PointerChasing,
    Sample,
    SparseParity,
    Tape,
    Task,
    VariableAssignment,
    build_sample,
    join,
)
from longreach.train import OptimizerConfig, PrimeConfig, TrainConfig

__all__ = [
    "Addition",
    "AlibiConfig",
    "AttentionConfig",
    "Coupled",
    "Draws",
    "EntmaxConfig",
    "EvalConfig",
    "FireConfig",
    "Form",
    "GraphWalk",
    "IdPolicy",
    "IndexHints",
    "KerpleConfig",
    "LearnedConfig",
    "LearnedRopeConfig",
    "Lengths",
    "Level",
    "Model",
    "ModelConfig",
    "NoEncoding",
    "ObjectiveConfig",
    "Observer",
    "OptimizerConfig",
    "Oracle",
    "ParityScratchpad",
    "Planted",
    "PointerChasing",
    "PointerConfig",
    "Pose",
    "PositionHeadConfig",
    "Predicted",
    "PrimeConfig",
    "RandomStart",
    "Randomized",
    "RecurrentConfig",
    "RopeConfig",
    "RunConfig",
    "RunFolder",
    "Sample",
    "Sampling",
    "ScaledSoftmaxConfig",
    "Score",
    "Sequential",
    "SinusoidalConfig",
    "SlidingWindowConfig",
    "Softmax",
    "Span",
    "SparseParity",
    "StickBreakingConfig",
    "T5Config",
    "TableConfig",
    "Tape",
    "Task",
    "TopKConfig",
    "TrainConfig",
    "Transformer",
    "TransformerConfig",
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
