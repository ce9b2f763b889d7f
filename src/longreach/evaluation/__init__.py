"""How far does it reach?"""

from longreach.evaluation.card import Card, make_card
from longreach.evaluation.context import ContextLoss, Predict, Targets, choose_targets, loss_by_context
from longreach.evaluation.cost import (
    PassCost,
    Work,
    estimate_measures,
    estimate_test,
    estimate_text,
    memory_of_generation,
    memory_of_test,
    memory_of_text,
    seconds_at_length,
    seconds_of_generation,
)
from longreach.evaluation.documents import over_documents, resampled_documents
from longreach.evaluation.evaluate import (
    TENTHS,
    EvalConfig,
    cells,
    check_cells,
    evaluate,
    fewer_samples,
    resolve_axes,
    total_samples,
)
from longreach.evaluation.exact_match import FreeRun, Judge, Judged, judge, judge_in_one_pass, plain_judge, run_free
from longreach.evaluation.measures import MEASURES, Measure, Measures, measures_from_json, measures_to_json
from longreach.evaluation.next_token import next_tokens
from longreach.evaluation.reach import reach
from longreach.evaluation.scores import Score, from_json, to_csv, to_json, wilson
from longreach.evaluation.text import (
    By,
    Loss,
    TextResult,
    check_text_test,
    evaluate_text,
    losses_from_json,
    losses_to_json,
    text_work,
)

__all__ = [
    "MEASURES",
    "TENTHS",
    "By",
    "Card",
    "ContextLoss",
    "EvalConfig",
    "FreeRun",
    "Judge",
    "Judged",
    "Loss",
    "Measure",
    "Measures",
    "PassCost",
    "Predict",
    "Score",
    "Targets",
    "TextResult",
    "Work",
    "cells",
    "check_cells",
    "check_text_test",
    "choose_targets",
    "estimate_measures",
    "estimate_test",
    "estimate_text",
    "evaluate",
    "evaluate_text",
    "fewer_samples",
    "from_json",
    "judge",
    "judge_in_one_pass",
    "loss_by_context",
    "losses_from_json",
    "losses_to_json",
    "make_card",
    "measures_from_json",
    "measures_to_json",
    "memory_of_generation",
    "memory_of_test",
    "memory_of_text",
    "next_tokens",
    "over_documents",
    "plain_judge",
    "reach",
    "resampled_documents",
    "resolve_axes",
    "run_free",
    "seconds_at_length",
    "seconds_of_generation",
    "text_work",
    "to_csv",
    "to_json",
    "total_samples",
    "wilson",
]
