"""All public names.  `longreach` re-exports them and imports this module when the first of them is used."""

# ruff: noqa: F403 (a new task is public without a line here)

import longreach.tasks as tasks
from longreach.attention import (
    AsEntmaxConfig,
    AttentionConfig,
    EntmaxConfig,
    ScaledSoftmaxConfig,
    SlidingWindowConfig,
    SoftmaxConfig,
    StickBreakingConfig,
    TopKConfig,
)
from longreach.config.registry import register
from longreach.config.spans import Lengths, Span
from longreach.decoding import SamplingConfig, generate
from longreach.diagnosis import Diagnosis
from longreach.errors import BadInput, RunFailed
from longreach.evaluation import EvalConfig, Score, reach_at
from longreach.evaluation.shortcuts import Shortcut
from longreach.execution import ExecutionConfig
from longreach.extension import (
    Extension,
    ExtensionEstimate,
    LossGain,
    MeasuredReach,
    ReachConfig,
    ReachResult,
    RetrievalScore,
)
from longreach.hf import (
    CoupledDataset,
    PoseDataset,
    UncutCollator,
    check_attention_uncut,
    from_huggingface,
    keep_attention_uncut,
    load_huggingface,
    position_callback,
    set_attention,
    to_huggingface,
    with_position_head,
    wrap_for_huggingface,
)
from longreach.model import (
    LlamaConfig,
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
from longreach.objectives import DependencyLoss, IdLoss, Objective, TokenLoss
from longreach.positions.encodings import (
    AlibiConfig,
    CopeConfig,
    EqualIdsConfig,
    FireConfig,
    KerpleConfig,
    LearnedConfig,
    LearnedRopeConfig,
    NapeConfig,
    NoEncodingConfig,
    ReRopeConfig,
    RopeConfig,
    ScaledRopeConfig,
    SelfExtendConfig,
    ShawConfig,
    SinusoidalConfig,
    T5Config,
    TransformerXlConfig,
    XposConfig,
)
from longreach.positions.ids import (
    Abacus,
    Coupled,
    IdPolicy,
    Oracle,
    Pose,
    Predicted,
    Randomized,
    RandomStart,
    Sequential,
    UniformPose,
)
from longreach.runs import Observer, RunConfig, RunFolder, load_model, load_recipe
from longreach.seeding import Draws, stream
from longreach.sweeps import RunState
from longreach.tasks import *
from longreach.training import OptimizerConfig, PrimeConfig, TrainConfig
from longreach.verbs.answering import Answer, predict
from longreach.verbs.checking import TaskCheck, check
from longreach.verbs.comparing import compare
from longreach.verbs.diagnosing import diagnose
from longreach.verbs.exporting import Exported, export
from longreach.verbs.extending import estimate_extension, extend
from longreach.verbs.inspection import Inspection, inspect
from longreach.verbs.reaching import reach
from longreach.verbs.reporting import report
from longreach.verbs.running import run
from longreach.verbs.scoring import evaluate, evaluate_runs
from longreach.verbs.showing import ShownSample, show
from longreach.verbs.sweeping import sweep
from longreach.verbs.writing import WrittenDataset, dataset

__all__ = [
    "Abacus",
    "AlibiConfig",
    "Answer",
    "AsEntmaxConfig",
    "AttentionConfig",
    "BadInput",
    "CopeConfig",
    "Coupled",
    "CoupledDataset",
    "DependencyLoss",
    "Diagnosis",
    "Draws",
    "EntmaxConfig",
    "EqualIdsConfig",
    "EvalConfig",
    "ExecutionConfig",
    "Exported",
    "Extension",
    "ExtensionEstimate",
    "FireConfig",
    "IdLoss",
    "IdPolicy",
    "Inspection",
    "KerpleConfig",
    "LearnedConfig",
    "LearnedRopeConfig",
    "Lengths",
    "LlamaConfig",
    "LossGain",
    "MeasuredReach",
    "Model",
    "ModelConfig",
    "NapeConfig",
    "NoEncodingConfig",
    "Objective",
    "Observer",
    "OptimizerConfig",
    "Oracle",
    "PointerConfig",
    "Pose",
    "PoseDataset",
    "PositionHeadConfig",
    "Predicted",
    "PrimeConfig",
    "RandomStart",
    "Randomized",
    "ReRopeConfig",
    "ReachConfig",
    "ReachResult",
    "RecurrentConfig",
    "RetrievalScore",
    "RopeConfig",
    "RunConfig",
    "RunFailed",
    "RunFolder",
    "RunState",
    "SamplingConfig",
    "ScaledRopeConfig",
    "ScaledSoftmaxConfig",
    "Score",
    "SelfExtendConfig",
    "Sequential",
    "ShawConfig",
    "Shortcut",
    "ShownSample",
    "SinusoidalConfig",
    "SlidingWindowConfig",
    "SoftmaxConfig",
    "Span",
    "StickBreakingConfig",
    "T5Config",
    "TableConfig",
    "TaskCheck",
    "TokenLoss",
    "TopKConfig",
    "TrainConfig",
    "Transformer",
    "TransformerConfig",
    "TransformerXlConfig",
    "UncutCollator",
    "UniformPose",
    "WrittenDataset",
    "XposConfig",
    "build_model",
    "check",
    "check_attention_uncut",
    "compare",
    "dataset",
    "diagnose",
    "estimate_extension",
    "evaluate",
    "evaluate_runs",
    "export",
    "extend",
    "from_huggingface",
    "generate",
    "inspect",
    "keep_attention_uncut",
    "load_huggingface",
    "load_model",
    "load_recipe",
    "position_callback",
    "predict",
    "reach",
    "reach_at",
    "register",
    "report",
    "run",
    "set_attention",
    "show",
    "stream",
    "sweep",
    "to_huggingface",
    "with_position_head",
    "wrap_for_huggingface",
]
__all__ += tasks.__all__
