"""Measure and extend the context of Hugging Face models."""

from longreach.extension.measure import LossGain, MeasuredReach, ReachConfig, check_reach_memory, measure_model
from longreach.extension.retrieval import RETRIEVED, RetrievalScore
from longreach.extension.texts import ReachTexts, read_texts, settle_contexts, texts_of

__all__ = [
    "RETRIEVED",
    "LossGain",
    "MeasuredReach",
    "ReachConfig",
    "ReachTexts",
    "RetrievalScore",
    "check_reach_memory",
    "measure_model",
    "read_texts",
    "settle_contexts",
    "texts_of",
]
