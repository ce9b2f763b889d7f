"""What a diagnosis rests on: needs, coverage, the probe, the extrapolation, rows from a file."""

import json
from dataclasses import replace

import pytest
import torch
from helpers import TINY, draw
from hypothesis import given, settings
from hypothesis import strategies as st

from longreach.api import Copy, Coupled, Majority, ParityScratchpad, Sequential, Span, build_model, stream
from longreach.cli.main import main
from longreach.diagnosis import diagnose_data, diagnose_model, diagnose_task, extend, influence, read_rows
from longreach.diagnosis.calibrate import calibrate
from longreach.diagnosis.coverage import Shown, cover, kinds
from longreach.diagnosis.estimates import over_samples, share
from longreach.diagnosis.needs import Needs, join, known_needs
from longreach.diagnosis.probe import CHANGE
from longreach.diagnosis.recorded import split
from longreach.errors import BadInput
from longreach.terminal import progress


def needs_of(task, lengths, seed=0):
    return known_needs(task, torch.tensor(lengths), seed)


def test_needs_are_those_of_the_task():
    needs = needs_of(ParityScratchpad(), [5, 5, 5])
    sample = needs.sample
    wanted = ParityScratchpad().depends_on(sample)
    assert len(needs.queries[0]) == int(sample.answer.sum())
    assert sorted(zip(needs.row.tolist(), (needs.query + 1).tolist(), needs.key.tolist(), strict=True)) == [
        tuple(place) for place in wanted.nonzero().tolist()
    ]
    sizes, spans, distances = needs.sizes(), needs.spans(), needs.distances()
    for number, (row, place) in enumerate(zip(*(part.tolist() for part in needs.queries), strict=True)):
        places = wanted[row, place + 1].nonzero()[:, 0].tolist()
        assert int(sizes[number]) == len(places)
        assert int(spans[number]) == (places[-1] - places[0] if places else 0)
        assert int(distances[number]) == (place - places[0] if places else 0)


def test_joined_needs_are_the_needs_of_both():
    whole = needs_of(Copy(), [4, 6, 5, 6])
    task, sample = Copy(), whole.sample
    parts = [
        Needs.of(some, some.answer[:, 1:] & ~some.given[:, 1:], task.depends_on(some)[:, 1:])
        for some in (sample.rows(0, 1), sample.rows(1, 4))
    ]
    both = join(parts)
    assert torch.equal(both.row, whole.row)
    assert torch.equal(both.key, whole.key)
    assert torch.equal(both.queries[0], whole.queries[0])
    assert torch.equal(both.sample.tokens, sample.tokens)


def test_counting_leaves_all_of_a_longer_copy_uncovered_and_coupling_nothing():
    short, long = needs_of(Copy(), [*range(2, 9)] * 20), needs_of(Copy(), [16] * 20, 1)

    def coverage(policy, first):
        draws = stream(0, "test", torch.arange(len(short.sample.tokens)))
        shown = Shown.by(short, [policy.training_ids(Copy(), short.sample, draws) + first])
        return cover(shown, long, policy.evaluation_ids(Copy(), long.sample) + first)

    counting = coverage(Sequential(), 1)
    assert counting.uncovered.value == 1
    assert counting.strangers > 0.3
    coupled = coverage(Coupled(max_id=17), 0)
    assert coupled.uncovered.value == 0
    assert coupled.uncovered.high < 0.2
    assert coupled.uncovered_needs == 0
    assert coupled.id_span <= 1
    assert coupled.kappa is not None
    assert coupled.kappa.low <= coupled.kappa.value <= coupled.kappa.high
    # without relabelling what is needed is just as well covered, and much of the rest is not
    plain = coverage(Coupled(relabelling="none"), 0)
    assert plain.uncovered.value == 0
    assert plain.strangers > coupled.strangers + 0.2


def test_ids_that_tell_nothing_apart_cover_everything_and_say_so():
    short, long = needs_of(Copy(), [5] * 10), needs_of(Copy(), [20] * 10, 1)

    def same(needs):
        return torch.ones_like(needs.sample.tokens)[:, None]

    found = cover(Shown.by(short, [same(short)]), long, same(long))
    assert found.uncovered.value == 0
    assert found.strangers == 0
    assert found.alike > 10  # about all tokens before it


@given(st.lists(st.integers(1, 10**6), min_size=2, max_size=2), st.integers(1, 5000))
def test_kinds_do_not_change_when_all_ids_are_shifted(ids, shift):
    needs = Needs(draw(Copy(), [2]), (torch.tensor([0]), torch.tensor([1])), *(torch.tensor([x]) for x in (0, 1, 0)))
    placed = torch.zeros_like(needs.sample.tokens)[:, None]
    placed[0, 0, 0], placed[0, 0, 1] = ids[0], ids[1]
    moved = torch.where(placed > 0, placed + shift, 0)
    assert torch.equal(kinds(needs, placed), kinds(needs, moved))


@settings(max_examples=25, deadline=None)
@given(st.sets(st.integers(0, 11), min_size=1, max_size=4), st.integers(0, 100))
def test_the_probe_finds_the_tokens_that_a_predictor_reads(places, seed):
    read = torch.tensor(sorted(places))

    def parity(tokens, rows):
        odd = tokens[:, read].sum(1) % 2
        return torch.nn.functional.one_hot(odd, 2).double()[:, None]

    tokens = stream(seed, "test", torch.arange(32)).below("tokens", 2, 12)
    found = influence(parity, tokens, stream(seed, "probe", torch.arange(32)))[:, 0] > CHANGE
    assert torch.equal(found, torch.zeros(32, 12, dtype=torch.bool).index_fill(1, read, True))


def test_the_probe_counts_a_token_by_what_may_stand_there():
    # the predictor looks for a 2 anywhere; hardly any sample has one, so that no single token is needed
    def any_two(tokens, rows):
        return torch.nn.functional.one_hot((tokens == 2).any(1).long(), 2).double()[:, None]

    tokens = torch.zeros(40, 10, dtype=torch.long)
    tokens[:2, 3] = 2
    found = influence(any_two, tokens, stream(0, "probe", torch.arange(40)))[:, 0]
    assert float(found[2:].max()) < CHANGE
    assert bool((found[:2, 3] > CHANGE).all())  # where it stands, it is


@settings(deadline=None)
@given(st.floats(1e-6, 1e-3), st.floats(0, 0.05), st.floats(0.3, 0.9))
def test_a_curve_of_the_form_is_extended_exactly(stray, at_zero, chance):
    def error(length):
        u = at_zero + stray * length
        return u / (1 + u / chance)

    losses = {length: torch.full((16,), error(length), dtype=torch.float64) for length in (8, 16, 24, 32)}
    for length, estimate in extend(losses, chance, [32, 200, 5000]).items():
        assert estimate.value == pytest.approx(error(length), rel=1e-6)
        assert estimate.low <= estimate.value <= estimate.high <= 1


def test_rare_losses_do_not_leave_the_forecast_to_lengths_that_had_none():
    # one answer in 250 is wrong at the longest length, none at the others: what is seen is seen
    losses = {length: torch.full((250,), 1e-6, dtype=torch.float64) for length in (8, 16, 24, 32)}
    losses[32][0] = 0.99
    found = extend(losses, 0.5, [32, 320])
    assert found[32].value > 1e-3
    assert found[320].value > 1e-2


def test_falling_losses_are_not_extended_below_nothing():
    losses = {length: torch.full((8,), 1 / length, dtype=torch.float64) for length in (4, 8, 16)}
    assert all(0 < estimate.value < 0.5 for estimate in extend(losses, 0.5, [100, 10_000]).values())
    with pytest.raises(ValueError, match="3 lengths"):
        extend({4: torch.ones(3), 8: torch.ones(3)}, 0.5, [10])


def test_intervals_hold_their_value_and_shrink_with_samples():
    few, many = share(0, 20), share(0, 2000)
    assert few.low == few.value == 0
    assert many.high < few.high < 0.2
    values = torch.arange(100).double()
    estimate = over_samples(values, torch.arange(100) // 5, torch.median)
    assert estimate.low < estimate.value < estimate.high
    alone = over_samples(values, torch.arange(100), torch.median)
    assert alone.high - alone.low < estimate.high - estimate.low  # values of one sample are alike


def test_a_task_is_diagnosed_from_what_it_says():
    found = diagnose_task(ParityScratchpad(), Span(2, 10), 40, samples=32)
    assert found.short.k.value == found.long.k.value == 2
    assert found.long.span.value > 3 * found.short.span.value
    by_name = {report.scheme: report for report in found.schemes}
    assert found.schemes[0].scheme == "aligned, increasing"
    assert by_name["sequential"].covered_to == 10
    assert found.schemes[0].covered_to == 40
    assert found.margins[1] > found.margins[0]
    assert not found.warnings
    growing = diagnose_task(Majority(), Span(3, 9), 40, samples=32)
    assert any("k grows" in line for line in growing.warnings)


def test_a_model_that_knows_nothing_is_not_trusted():
    task = ParityScratchpad()
    found = diagnose_model(build_model(TINY, len(task.vocabulary), 0), task, Sequential(), Span(2, 9), 20, samples=32)
    assert found.accuracy is not None
    assert found.accuracy.value < 0.5
    assert any("at training lengths" in line for line in found.warnings)
    assert max(found.forecast) == 9  # its own IDs cover no more
    assert found.read is not None
    with pytest.raises(BadInput, match="three lengths or more"):
        diagnose_model(build_model(TINY, len(task.vocabulary), 0), task, Sequential(), Span(2, 3), 20)


def rows_file(tmp_path, count=800, ids=False):
    lines = []
    for number in range(count):
        length = 4 + number % 8
        tokens = stream(0, "rows", torch.tensor([number])).below("tokens", 5, length)[0].tolist()
        row = {"tokens": [7 * token for token in tokens], "answer": [7 * tokens[0]]}
        lines.append(json.dumps({**row, "ids": [*range(1, length), 1, 1]} if ids else row))
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_rows_are_a_task_of_their_own(tmp_path):
    rows = read_rows(rows_file(tmp_path, ids=True))
    learnt, tested = split(rows)
    assert not {tuple(row.tokens) for row in learnt.rows} & {tuple(row.tokens) for row in tested.rows}
    assert len(learnt.rows) + len(tested.rows) == len(rows)
    sample = draw(learnt, [6, 9, 6, 8])
    assert sample.prompt_tokens.tolist() == [6, 9, 6, 8]
    for row in range(4):
        tokens = sample.tokens[row, : int(sample.num_tokens[row])]
        assert int(tokens[-1]) == int(tokens[0])
        assert learnt.coupling(sample, "aligned")[row, 0, int(sample.prompt_tokens[row])] == 1
    with pytest.raises(BadInput, match="no row of length 30"):
        learnt.check_length(30)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[1]", "expected an object"),
        ('{"tokens": [1]}', "answer must be a list"),
        ('{"tokens": [-1], "answer": [1]}', "tokens must be a list"),
        ('{"tokens": [1], "answer": [true]}', "answer must be a list"),
        ('{"tokens": [1], "answer": [1], "id": [1, 1]}', "unknown field 'id'"),
        ('{"tokens": [1], "answer": [1], "ids": [1]}', "ids must be 2"),
        ('{"tokens": [1], "answer": [1], "length": 0}', "length must be a whole number"),
        ('{"tokens": [1], "answer": [1], "length": 1000001}', "length must be a whole number from 1 to"),
        ('{"tokens": [2147483648], "answer": [1]}', "below 2"),
        ('{"tokens": [1], "answer": [1], "ids": {"a": 1}}', "ids must be a list"),
        ('{"tokens": [1], "answer": [1], "ids": [1, 3]}', "without gaps"),
        ('{"tokens": [1], "answer": [1], "ids": [0, 0]}', "without gaps"),
        ("[" * 100_000, "line 2"),
        ("{", "line 2"),
    ],
)
def test_a_bad_row_is_named(tmp_path, line, message):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"tokens": [1], "answer": [1]}\n' + line + "\n")
    with pytest.raises(BadInput, match=message):
        read_rows(path)


def test_rows_with_one_answer_have_no_forecast(tmp_path):
    rows = [replace(row, answer=[0]) for row in read_rows(rows_file(tmp_path))]
    found = diagnose_data(rows, None, None, samples=32, steps=2)
    assert found.forecast == {}
    assert any("the same token" in line for line in found.warnings)
    with pytest.raises(BadInput, match="beyond the training lengths"):
        diagnose_data(rows, None, 11)


def test_rows_drawn_twice_count_once(tmp_path):
    found = diagnose_data(read_rows(rows_file(tmp_path, count=160)), None, None, samples=64, steps=2)
    assert found.accuracy is not None
    assert found.accuracy.high - found.accuracy.low > 0.1  # some thirty rows were held out


def test_rows_laid_out_differently_are_warned_about(tmp_path):
    rows = [replace(row, length=1 + number % 6) for number, row in enumerate(read_rows(rows_file(tmp_path)))]
    assert any("laid out" in line for line in diagnose_data(rows, None, None, samples=32, steps=2).warnings)


def test_too_few_samples_are_told_even_where_ids_are_not_drawn():
    short, long = needs_of(Copy(), [3, 5, 8]), needs_of(Copy(), [8] * 10, 1)
    ids = torch.arange(short.sample.tokens.shape[1]).expand_as(short.sample.tokens)[:, None] + 1
    far = torch.arange(long.sample.tokens.shape[1]).expand_as(long.sample.tokens)[:, None] + 1
    assert cover(Shown.by(short, [ids] * 8), long, far).unseen > 0.5
    again = needs_of(Copy(), [3, 5, 8] * 20)
    ids = torch.arange(again.sample.tokens.shape[1]).expand_as(again.sample.tokens)[:, None] + 1
    assert cover(Shown.by(again, [ids] * 8), long, far).unseen == 0


def test_many_levels_of_ids_stay_apart():
    needs = Needs(
        draw(Copy(), [20]), (torch.tensor([0]), torch.tensor([19])), torch.zeros(16, dtype=torch.long),
        torch.full((16,), 19), torch.arange(4, 20),
    )  # fmt: skip
    levels = torch.ones(1, 9, needs.sample.tokens.shape[1], dtype=torch.long)
    levels[0, 0] = torch.arange(1, levels.shape[2] + 1)
    assert len(torch.unique(kinds(needs, levels))) == 16


def test_rows_are_learnt_and_diagnosed(tmp_path):
    rows = read_rows(rows_file(tmp_path, ids=True))
    found = diagnose_data(rows, None, None, samples=32, steps=250)
    assert found.target == 110
    assert found.accuracy is not None
    assert found.accuracy.value > 0.9
    assert found.short.k.value == found.long.k.value == 1
    assert found.needs_from == "what the model reacts to"
    by_name = {report.scheme: report for report in found.schemes}
    # the rows' own IDs put the last token, where the answer is predicted, beside the first, which it needs
    assert by_name["aligned, increasing"].at_target.uncovered.value == 0
    assert by_name["sequential"].at_target.uncovered.value > 0.5
    with pytest.raises(BadInput, match="at least 4 lengths"):
        diagnose_data(rows, Span(4, 6), None)


@pytest.mark.parametrize("subject", ["task", "model"])
def test_every_part_of_a_diagnosis_tells_how_far_it_is(subject):
    phases = {}

    def phase(title, total):
        phases[title] = (total, [])
        return lambda done, note: phases[title][1].append(done)

    task = Copy()
    if subject == "task":
        diagnose_task(task, Span(2, 9), 20, samples=32, phase=phase)
    else:
        model = build_model(TINY, len(task.vocabulary), 0)
        diagnose_model(model, task, Sequential(), Span(2, 9), 20, samples=32, phase=phase)
        assert {"probe what the model reacts to", "measure errors"} <= set(phases)
    assert {"list who needs whom", "judge position IDs"} <= set(phases)
    for total, done in phases.values():
        assert total > 1
        assert set(range(total + 1)) == set(done)  # a pace needs more than a start and an end


def test_a_diagnosis_of_more_than_five_minutes_is_announced(monkeypatch, capsys):
    monkeypatch.setattr(progress, "LONG", 1e-6)
    monkeypatch.setattr(progress, "_MEASURED", 0.0)
    assert main(["diagnose", "copy", "--train", "2..6", "--target", "12", "--samples", "32", "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["target"] == 12
    assert "warning: list who needs whom will take about" in said.err


def test_planted_tasks_are_seen_through():
    cases = list(calibrate(2, seed=3))
    assert [case.k for case in cases] == [1, 2]
    assert all(case.right_k and case.right_span for case in cases)
    for case in cases:
        longest = max(case.measured)
        assert 0.5 < case.forecast[longest].value / case.measured[longest] < 2
