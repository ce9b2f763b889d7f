"""Paired differences of two variants."""

import json
import random
from statistics import fmean

import pytest

import longreach as lr
from longreach.cli.main import main
from longreach.errors import BadInput
from longreach.evaluation import Score, to_csv
from longreach.evaluation.paired import compare_scores, student_quantile

# t distribution, 97.5%: degrees of freedom and quantile (NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.2)
QUANTILES = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 9: 2.262, 19: 2.093, 29: 2.045, 100: 1.984}


def _scores(hits, samples=100, length=20, **overrides):
    return [Score(seed, length, "token_em_free", count, samples, overrides) for seed, count in enumerate(hits)]


@pytest.mark.parametrize(("freedom", "quantile"), QUANTILES.items())
def test_quantiles_are_those_of_the_tables(freedom, quantile):
    assert student_quantile(freedom) == pytest.approx(quantile, rel=2e-3)


def test_a_difference_over_seeds():
    (found,) = compare_scores(_scores([90, 80, 70]), _scores([80, 75, 40]))
    assert (found.seeds, found.first_ahead, found.second_ahead) == (3, 3, 0)
    assert found.difference == pytest.approx(0.15)
    # differences .1, .05, .3: standard deviation .1323
    assert found.high - found.difference == pytest.approx(4.3027 * 0.132288 / 3**0.5, rel=1e-4)
    assert found.verdict == "open"


def test_equal_rates_do_not_make_an_interval_a_point():
    (found,) = compare_scores(_scores([100] * 5), _scores([100] * 5))
    assert found.difference == 0
    assert found.low < 0 < found.high
    (sure,) = compare_scores(_scores([100] * 5), _scores([0] * 5))
    assert (sure.verdict, sure.difference, sure.high) == ("first", 1, 1)
    assert sure.low < 1


def test_seeds_and_cells_that_only_one_has_are_not_counted():
    first = [*_scores([90, 80]), *_scores([50, 50], length=40), *_scores([1, 2, 3], k="4")]
    second = [*_scores([80, 80, 80]), *_scores([50], length=40), *_scores([1, 2, 3], k="8")]
    (found,) = compare_scores(first, second)
    assert (found.length, found.seeds, found.overrides) == (20, 2, {})
    with pytest.raises(BadInput, match="seed 0 has two scores at length 20"):
        compare_scores([*first, first[0]], second)


def test_intervals_hold_the_truth_about_as_often_as_they_say():
    rng, inside, rounds = random.Random(0), 0, 400
    for _ in range(rounds):
        rates = [(rng.betavariate(8, 2), rng.betavariate(6, 4)) for _ in range(6)]
        counts = [[sum(rng.random() < rate for _ in range(60)) for rate in pair] for pair in rates]
        (found,) = compare_scores(_scores([a for a, _ in counts], 60), _scores([b for _, b in counts], 60))
        inside += found.low <= 0.8 - 0.6 <= found.high
    assert 0.92 <= inside / rounds <= 0.985


def test_the_command_shows_and_writes_differences(tmp_path, capsys):
    rows = [("a", score) for score in _scores([95, 96, 97])] + [("b", score) for score in _scores([60, 61, 70])]
    file = tmp_path / "scores.csv"
    file.write_text(to_csv([score for _, score in rows], [{"variant": name} for name, _ in rows]))
    assert main(["results", str(file), "--compare", "a,b"]) == 0
    heading, line = capsys.readouterr().out.splitlines()
    assert heading.split() == ["length", "seeds", "a", "b", "difference", "low", "high", "seeds", "ahead", "better"]
    assert line.split()[:3] == ["20", "3", "0.96"]
    assert line.split()[-4:] == ["3", "to", "0", "a"]
    assert main(["results", str(file), "--compare", "b,a", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["better"] == "a"
    assert row["difference"] == pytest.approx(fmean([60, 61, 70]) / 100 - 0.96)
    (found,) = lr.compare(file, first="a", second="b")
    assert found.difference == pytest.approx(-row["difference"])
    assert main(["results", str(file), "--compare", "a,b", "--out", str(tmp_path / "d.md")]) == 0
    assert "| 20 | 3 |" in (tmp_path / "d.md").read_text()


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--compare", "a"], "--compare takes two variants such as pose,sequential, got 'a'"),
        (["--compare", "a,a"], "--compare takes two variants"),
        (["--compare", "a,bb"], "there is no variant 'bb'; did you mean b"),
        (["--compare", "a,b", "--value", "token_em"], "no run has a score 'token_em'"),
        (["--compare", "a,b", "--pivot", "length"], "--pivot does not go with --compare"),
        (["--compare", "a,b", "--where", "length=3"], "--where does not go with --compare"),
    ],
)
def test_mistakes_are_one_line(tmp_path, capsys, flags, complaint):
    scores = _scores([1, 2])
    file = tmp_path / "scores.csv"
    file.write_text(to_csv([*scores, *scores], [{"variant": name} for name in "aabb"]))
    assert main(["results", str(file), *flags]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert complaint in line
