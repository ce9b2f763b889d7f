"""Measure and extend the context of Hugging Face models."""

from longreach.extension.estimate import Estimate
from longreach.extension.job import Job, inspect_original, prepared_corpus
from longreach.extension.measure import LossGain, MeasuredReach, ReachConfig, check_reach_memory, measure_model
from longreach.extension.result import ArmResult, Comparison, Extension
from longreach.extension.retrieval import RETRIEVED, RetrievalScore
from longreach.extension.settings import ExtendConfig
from longreach.extension.texts import ReachTexts, read_texts, settle_contexts, texts_of

__all__ = [
    "RETRIEVED",
    "ArmResult",
    "Comparison",
    "Estimate",
    "ExtendConfig",
    "Extension",
    "Job",
    "LossGain",
    "MeasuredReach",
    "ReachConfig",
    "ReachTexts",
    "RetrievalScore",
    "check_reach_memory",
    "inspect_original",
    "measure_model",
    "prepared_corpus",
    "read_texts",
    "settle_contexts",
    "texts_of",
]
