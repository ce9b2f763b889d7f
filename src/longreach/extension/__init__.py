"""Measure and extend the context of Hugging Face models."""

from longreach.extension.estimate import ExtensionEstimate
from longreach.extension.extended import ArmResult, Comparison, Extension
from longreach.extension.job import ExtensionJob, prepared_corpus
from longreach.extension.measure import (
    LossGain,
    MeasuredReach,
    ReachConfig,
    check_reach_memory,
    measure_model,
    probe_passages,
    short_contexts,
)
from longreach.extension.original import inspect_original
from longreach.extension.result import MeasuredModel, MeasuredTexts, ReachResult, pooled, retrieves_to, verdict
from longreach.extension.retrieval import RETRIEVED, RetrievalScore
from longreach.extension.settings import ExtendConfig
from longreach.extension.texts import ReachTexts, find_texts, read_texts, settle_contexts, texts_of

__all__ = [
    "RETRIEVED",
    "ArmResult",
    "Comparison",
    "ExtendConfig",
    "Extension",
    "ExtensionEstimate",
    "ExtensionJob",
    "LossGain",
    "MeasuredModel",
    "MeasuredReach",
    "MeasuredTexts",
    "ReachConfig",
    "ReachResult",
    "ReachTexts",
    "RetrievalScore",
    "check_reach_memory",
    "find_texts",
    "inspect_original",
    "measure_model",
    "pooled",
    "prepared_corpus",
    "probe_passages",
    "read_texts",
    "retrieves_to",
    "settle_contexts",
    "short_contexts",
    "texts_of",
    "verdict",
]
