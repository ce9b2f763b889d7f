"""How far does it reach?"""

from longreach.evaluate.card import Card, make_card
from longreach.evaluate.evaluate import TENTHS, EvalConfig, cells, evaluate, total_samples
from longreach.evaluate.exact_match import FreeRun, Judged, judge, run_free
from longreach.evaluate.reach import reach
from longreach.evaluate.scores import Score, from_json, to_csv, to_json, wilson

__all__ = [
    "TENTHS",
    "Card",
    "EvalConfig",
    "FreeRun",
    "Judged",
    "Score",
    "cells",
    "evaluate",
    "from_json",
    "judge",
    "make_card",
    "reach",
    "run_free",
    "to_csv",
    "to_json",
    "total_samples",
    "wilson",
]
