"""Results that need no run: scores by length, and counts of wrong answers."""

from longreach.evaluation import Card, Score
from longreach.reports import Result

CARD = Card("t", "4..20", "1..2", "0..9", 9, "a", "b", "c", "d", "e", [3, 2, 1], chance=0.25)
RATES = {"a": 90, "a-softmax": 50, "b": 10}


def make_result(variant, seed=0, lengths=(10, 20, 40), metric="token_em_free", k=None, rate=None, **others):
    overrides = {} if k is None else {"k": str(k)}
    rate = RATES[variant] if rate is None else rate
    scores = [Score(seed, length, metric, max(0, rate - length // 20), 100, overrides) for length in lengths]
    return Result("x", variant, seed, scores, card=CARD, trained_lengths=(4, 20), **others)


def make_wrong(variant, token_first, id_first, tenths, *, ids=True):
    rows = {"error_token_first": token_first, **({"error_id_first": id_first} if ids else {})}
    rows |= {f"first_error_tenth_{tenth}": count for tenth, count in tenths.items()}
    scores = [Score(0, 40, metric, count, 1000) for metric, count in rows.items()]
    scores += [Score(0, length, "id_accuracy", 995, 1000) for length in (20, 40)] if ids else []
    return Result("x", variant, 0, scores, card=CARD, trained_lengths=(4, 20))
