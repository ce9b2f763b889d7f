"""Counts, intervals, reach."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longreach.errors import BadInput
from longreach.evaluation import Score, from_json, reach_at, to_csv, to_json


def _curve(*rates):
    return [Score(0, 10 * (i + 1), "token_em_tf", round(100 * rate), 100) for i, rate in enumerate(rates)]


def test_wilson_intervals_are_those_of_the_textbook():
    # Agresti and Coull (1998): 0 of 10 -> upper limit 0.278; 50 of 100 -> 0.404 to 0.596
    assert Score(0, 1, "m", 0, 10).interval() == pytest.approx((0.0, 0.2775), abs=1e-3)
    assert Score(0, 1, "m", 50, 100).interval() == pytest.approx((0.4038, 0.5962), abs=1e-3)


@given(st.integers(1, 500), st.data())
def test_an_interval_holds_the_rate_and_stays_in_range(samples, data):
    score = Score(0, 1, "m", data.draw(st.integers(0, samples)), samples)
    low, high = score.interval()
    assert 0 <= low <= score.rate <= high <= 1


def test_reach_ends_at_the_first_failure():
    assert reach_at(_curve(1, 0.95, 0.5, 1), 0.9) == 20
    assert reach_at(_curve(1, 1, 1), 0.99) == 30
    assert reach_at(_curve(0.5, 1), 0.9) == 0
    assert reach_at(reversed(_curve(1, 0.95, 0.5, 1)), 0.9) == 20


@pytest.mark.parametrize(
    ("other", "complaint"),
    [
        (Score(1, 30, "token_em_tf", 0, 100), "2 seeds: 0, 1"),
        (Score(0, 30, "token_em_free", 0, 100), "2 metrics: token_em_free, token_em_tf"),
        (Score(0, 30, "token_em_tf", 0, 100, {"k": "4"}), "2 settings of the task: as trained, k=4"),
        (Score(0, 10, "token_em_tf", 0, 100), "length 10 twice"),
    ],
)
def test_reach_of_several_curves_is_refused_in_any_order(other, complaint):
    mixed = [*_curve(1, 0.95), other]
    for scores in (mixed, mixed[::-1]):
        with pytest.raises(BadInput, match=complaint):
            reach_at(scores, 0.9)


def test_scores_survive_json_and_csv_has_a_column_per_axis():
    scores = [Score(0, 20, "m", 3, 4, {"k": "4"}), Score(1, 20, "m", 4, 4)]
    assert from_json(to_json(scores)) == scores
    lines = to_csv(scores).splitlines()
    assert lines[0] == "seed,length,k,metric,hits,samples,rate,low,high"
    assert lines[1].startswith("0,20,4,m,3,4,0.75,")
    assert lines[2].startswith("1,20,,m,4,4,1,")
