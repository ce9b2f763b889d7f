"""Attention on the true dependencies and margins by length: against plain loops, in the run folder, in reports."""

import json
import math
import shutil
from collections import defaultdict
from dataclasses import replace

import pytest
import torch
from catalogue import ATTENTIONS, label
from helpers import TINY, draw, execute_in, load_example

import longreach as lr
from longreach.api import (
    Addition,
    AlibiConfig,
    CopeConfig,
    Coupled,
    EvalConfig,
    LearnedRopeConfig,
    Lengths,
    ParityScratchpad,
    PointerConfig,
    Predicted,
    RecurrentConfig,
    RunConfig,
    Sequential,
    Span,
    TableConfig,
    TrainConfig,
    VariableAssignment,
    build_model,
)
from longreach.cli.main import main
from longreach.errors import BadInput
from longreach.evaluation import Measures, attention_mass, judge, measures_from_json, measures_to_json, measuring
from longreach.evaluation.attention_mass import StepNeeds
from longreach.evaluation.evaluate import Cell, batches_of
from longreach.evaluation.look_inside import watch
from longreach.evaluation.margins import id_margins, token_margins
from longreach.evaluation.measures import LARGEST_MARGIN, Measure, read_names
from longreach.evaluation.measuring import choose_heads, inapplicable, measure_batch, measure_cell, measures_of_cell
from longreach.model import IdChoice
from longreach.objectives import id_choices
from longreach.reports import load_results, measure_tables, measures_data, measures_figure
from longreach.reports.measures import measured_runs
from longreach.runs import Observer, RunFolder, load_model, plan_measures
from longreach.training import list_checkpoints

CHAIN = VariableAssignment(num_names=40, hops=Span(1, 3), echo=True, end="marked")
POINTER = replace(TINY, position_head=PointerConfig())
ACROSS = replace(TINY, position_head=PointerConfig(across_levels=True, kind_first=True))
TABLE = replace(TINY, position_head=TableConfig(), encoding=LearnedRopeConfig(max_id=40))
PREDICTING = {
    "pointer": (CHAIN, Predicted(max_id=40), POINTER),
    "table": (CHAIN, Predicted(max_id=40), TABLE),
    "several growing levels": (load_example("programs").PointerChasing(), Predicted(max_id=40), ACROSS),
}
ORIGIN = {"device": "cpu", "commit": "abc", "date": "2026-01-01"}
ALL = ("mass", "margin", "token_margin")


def make(task, policy, config, loud=12.0):
    """Fresh weights, so large that heads look at different tokens."""
    model = build_model(config, len(task.vocabulary), 0, policy.level_sizes(task), policy.max_id).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(loud)
    return model


def plain_mass(model, task, sample, ids):
    """Loop over samples and steps: (layer, head, step) masses of each sample, and the dependencies of its steps."""
    found = []
    for row in range(len(sample.tokens)):
        size = int(sample.num_tokens[row])
        one = sample.rows(row, row + 1)
        needs = task.depends_on(one)[0]
        _, weights = watch(model, one.tokens[:, : size - 1], ids[row : row + 1, :, : size - 1], first=0)
        steps = []
        for place in range(size - 1):
            if not sample.answer[row, place + 1] or sample.given[row, place + 1]:
                continue
            on = [other for other in needs[place + 1].nonzero()[:, 0].tolist() if other < place]
            if on:
                steps.append((weights[:, :, place, on], len(on) / (place + 1)))
        found.append(steps)
    return found


MASS_CASES = [
    *[(ParityScratchpad(), Coupled(max_id=40), replace(TINY, attention=attention)) for attention in ATTENTIONS],
    *[
        (ParityScratchpad(), Coupled(max_id=40), replace(TINY, encoding=encoding))
        for encoding in (AlibiConfig(), CopeConfig())
    ],
    (Addition(), Coupled(max_id=40), replace(TINY, loops=2)),
    *PREDICTING.values(),
]


@pytest.mark.parametrize("case", MASS_CASES, ids=lambda case: f"{type(case[0]).__name__}-{label(case[2])}"[:60])
def test_mass_is_what_a_loop_over_samples_and_steps_finds(case):
    task, policy, _ = case
    model, sample = make(*case), draw(task, [6, 4, 5])
    ids = policy.evaluation_ids(task, sample)
    mass = measure_batch(model, task, policy, sample, ids, ("mass",)).mass
    for row, steps in enumerate(plain_mass(model, task, sample, ids)):
        sums = torch.stack([weights.sum(-1) for weights, _ in steps])
        torch.testing.assert_close(mass.mean[row, ..., 0], sums.double().mean(0), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(mass.lowest[row, ..., 0], sums.double().amin(0), rtol=1e-4, atol=1e-5)
        assert int(mass.steps[row, 0]) == len(steps)
        assert float(mass.even[row, 0]) == pytest.approx(sum(even for _, even in steps) / len(steps))
        for number in range(attention_mass.DEPENDENCIES):
            each = [w[..., number] for w, _ in steps if number < w.shape[-1] <= attention_mass.DEPENDENCIES]
            assert int(mass.steps[row, number + 1]) == len(each)
            if each:
                of_each = torch.stack(each).double().mean(0)
                torch.testing.assert_close(mass.mean[row, ..., number + 1], of_each, rtol=1e-4, atol=1e-5)


def test_uniform_attention_has_the_mass_of_even_attention():
    task, policy = ParityScratchpad(), Sequential()
    model, sample = build_model(TINY, len(task.vocabulary), 0), draw(task, [3, 7])
    with torch.no_grad():
        for block in model.blocks:
            block.attention.qkv.weight.zero_()
            block.attention.qkv.bias.zero_()
    mass = measure_batch(model, task, policy, sample, policy.evaluation_ids(task, sample), ("mass",)).mass
    torch.testing.assert_close(mass.mean, mass.even[:, None, None].expand_as(mass.mean), rtol=1e-5, atol=1e-7)
    # 3 bits, "b b b ; =": the steps start from places 4 to 7, and each needs one token elsewhere: a bit, or the sign
    assert float(mass.even[0, 0]) == pytest.approx((1 / 5 + 1 / 6 + 1 / 7 + 1 / 8) / 4)


def test_the_token_that_a_step_starts_from_is_no_dependency():
    task, sample = ParityScratchpad(), draw(ParityScratchpad(), [5, 2])
    assert task.depends_on(sample)[0].diagonal(-1).any()  # the partial result before
    needs = StepNeeds.of(task, sample)
    rows = torch.arange(needs.rows.start, needs.rows.stop)
    assert not needs.needed[:, torch.arange(len(rows)), rows].any()
    assert needs.needed.any()


def small_cell(case, length=6, samples=7, **settings):
    task, policy, _ = case
    config = EvalConfig(lengths=Lengths((length,)), samples=samples, free_samples=0, **settings)
    return make(*case), policy, Cell(task, length, {}), config


@pytest.mark.parametrize("case", [*PREDICTING.values(), MASS_CASES[0]], ids=lambda case: label(case[2])[:40])
def test_measuring_in_blocks_changes_nothing(case, monkeypatch):
    model, policy, cell, config = small_cell(case)
    names = ALL if model.position_head is not None else ("mass", "token_margin")

    def entries(batch_tokens):
        found = measure_cell(model, policy, cell, config, names, "cpu", batch_tokens)
        return measures_of_cell(found, cell, config, [], ORIGIN)

    whole = entries(1 << 16)
    tokens = cell.task.max_tokens(cell.length)
    monkeypatch.setattr(attention_mass, "WEIGHTS", 3 * tokens)
    monkeypatch.setattr(measuring, "PAIRS", 2 * tokens**2)
    monkeypatch.setattr("longreach.evaluation.exact_match._PAIRS", 1)
    assert [size for _, size in batches_of(cell, config, 2 * tokens)] == [2, 2, 2, 1]
    for blocks in (entries(1 << 16), entries(tokens)):
        assert [entry.key for entry in blocks] == [entry.key for entry in whole]
        for one, other in zip(blocks, whole, strict=True):
            assert (one.samples, one.steps) == (other.samples, other.steps)
            for value in ("mean", "deviation", "lowest"):
                assert getattr(one, value) == pytest.approx(getattr(other, value), rel=1e-4, abs=1e-5)


def choice_of(*pairs):
    """One step: IDs with their probabilities."""
    ids, probabilities = zip(*pairs, strict=True)
    return IdChoice(torch.tensor([[ids]]), torch.tensor([[probabilities]]).log())


@pytest.mark.parametrize("target", [5, 7])
def test_a_margin_adds_up_the_candidates_of_an_id(target):
    choice = choice_of((5, 0.3), (7, 0.4), (5, 0.3))  # the likeliest candidate stands for 7, the likeliest ID is 5
    expected = math.log(0.6 / 0.4) * (1 if target == 5 else -1)
    assert float(id_margins(choice, torch.tensor([[target]]))) == pytest.approx(expected, rel=1e-5)
    shifted = IdChoice(choice.ids + 1000, choice.logits + 3.5)
    assert float(id_margins(shifted, torch.tensor([[target + 1000]]))) == pytest.approx(expected, rel=1e-5)
    turned = IdChoice(choice.ids.flip(-1), choice.logits.flip(-1))
    assert float(id_margins(turned, torch.tensor([[target]]))) == pytest.approx(expected, rel=1e-5)


def test_a_margin_out_of_reach_or_without_a_rival_is_clipped():
    choice = choice_of((5, 0.5), (7, 0.5))
    assert float(id_margins(choice, torch.tensor([[6]]))) == -LARGEST_MARGIN
    assert float(id_margins(choice_of((5, 0.5), (5, 0.5)), torch.tensor([[5]]))) == LARGEST_MARGIN
    unseen = IdChoice(choice.ids, torch.tensor([[[0.0, -torch.inf]]]))
    assert float(id_margins(unseen, torch.tensor([[7]]))) == -LARGEST_MARGIN
    zero = choice_of((3, 0.2), (0, 0.8))  # rows with fewer IDs are padded with zeros
    both = IdChoice(torch.cat([zero.ids, torch.tensor([[[4, 4]]])]), torch.cat([zero.logits, zero.logits]))
    margins = id_margins(both, torch.tensor([[0], [4]]))
    assert margins.flatten().tolist() == pytest.approx([math.log(4), LARGEST_MARGIN])


@pytest.mark.parametrize("name", PREDICTING)
def test_margins_are_what_a_loop_over_candidates_finds(name):
    task, policy, config = PREDICTING[name]
    model, sample = make(task, policy, config, loud=4.0), draw(task, [6, 4, 5])
    ids = policy.evaluation_ids(task, sample)
    found = measure_batch(model, task, policy, sample, ids, ("margin",)).margins
    assert len(found) == ids.shape[1]
    with torch.no_grad():
        hidden = model(sample.tokens[:, :-1], ids[:, :, :-1])
        every = torch.arange(hidden.shape[1]).expand(hidden.shape[:2])
        past = model.past(hidden, sample.tokens[:, :-1])
        choices = id_choices(model, sample, ids, hidden, every, past)
    compared = 0
    for level, (choice, (batch,)) in enumerate(zip(choices, found.values(), strict=True)):
        for row in range(len(sample.tokens)):
            expected = []
            for place in range(int(sample.num_tokens[row]) - 2):  # the last token is never read
                if not sample.answer[row, place + 1]:
                    continue
                summed = defaultdict(float)
                probabilities = choice.logits[row, place].double().softmax(-1).tolist()
                for one, share in zip(
                    choice.ids.expand(choice.logits.shape)[row, place].tolist(), probabilities, strict=True
                ):
                    summed[one] += share
                right = summed.pop(int(ids[row, level, place + 1]), 0.0)
                other = max(summed.values())
                margin = math.log(right / other) if right and other else math.copysign(LARGEST_MARGIN, right - other)
                expected.append(min(max(margin, -LARGEST_MARGIN), LARGEST_MARGIN))
            assert batch[row][~batch[row].isnan()].tolist() == pytest.approx(expected, rel=1e-3, abs=1e-3)
            compared += len(expected)
    assert compared >= 16


def test_token_margins_say_which_answers_are_right():
    task, policy = ParityScratchpad(), Coupled(max_id=40)
    model, sample = make(task, policy, TINY), draw(task, [1, 2, 1, 3, 1, 2, 4, 1])
    ids = policy.evaluation_ids(task, sample)
    ((margins,),) = measure_batch(model, task, policy, sample, ids, ("token_margin",)).margins.values()
    judged = judge(model, sample, ids)
    right = ((margins > 0) & ~margins.isnan()).sum(1)
    assert right.tolist() == judged.right_tokens.tolist()
    assert 0 < int(right.sum()) < int(judged.answer_tokens.sum())
    assert float(token_margins(torch.tensor([[[1.0, 3.5, 2.0]]]), torch.tensor([[1]]))) == 1.5


def test_overflow_is_refused():
    task, policy, config = PREDICTING["pointer"]
    model = make(task, policy, config)
    with torch.no_grad():
        model.embed.weight.fill_(torch.nan)
    for name in ALL:
        with pytest.raises(BadInput, match="the scores of the model overflow"):
            measure_cell(model, policy, Cell(task, 4, {}), EvalConfig(samples=1, free_samples=0), (name,), "cpu", 64)


def test_the_head_is_chosen_at_the_longest_training_length_on_samples_of_its_own():
    case = (Addition(), Coupled(max_id=40), TINY)
    task, policy, _ = case
    model = make(*case)
    chosen = choose_heads(model, task, policy, 0, 5, "cpu", 1 << 16)
    assert [head.dependency for head in chosen][:2] == [None, 1]
    config = EvalConfig(lengths=Lengths((5,)), samples=measuring.CHOICE_SAMPLES, free_samples=0, seed=1)
    mass = measure_cell(model, policy, Cell(task, 5, {}), config, ("mass",), "cpu", 1 << 16).mass
    for head in chosen:
        kind = head.dependency or 0
        means = mass.mean[mass.steps[:, kind] > 0][..., kind].mean(0)
        assert float(means.max()) == pytest.approx(head.mean)
        assert float(means[head.layer, head.head]) == pytest.approx(head.mean)
        assert (head.length, head.seed) == (5, 1)


CONFIG = RunConfig(
    task=CHAIN,
    ids=Predicted(max_id=40),
    model=POINTER,
    train=TrainConfig(lengths=Span(3, 6), steps=2, batch_size=4),
    evaluate=EvalConfig(lengths=Lengths((4, 8)), samples=6, free_samples=2),
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return execute_in(tmp_path_factory.mktemp("measured") / "run", CONFIG)


@pytest.fixture
def folder(trained, tmp_path):
    """A copy of a finished run."""
    return RunFolder(shutil.copytree(trained.path, tmp_path / "run"))


def measure(folder, *lengths, names=("mass", "margin"), **settings):
    lr.evaluate(folder.path, lengths=list(lengths), measure=names, device="cpu", free_samples=0, **settings)
    return folder.measures()


def test_measures_are_kept_and_merged_cell_by_cell(folder):
    first = measure(folder, 4, 8)
    assert {entry.length for entry in first.entries} == {4, 8}
    assert {entry.level for entry in first.entries if entry.measure == "margin"} == {"statement", "token in statement"}
    heads = {(entry.layer, entry.head) for entry in first.entries if entry.measure == "mass"}
    assert heads == {(layer, head) for layer in range(2) for head in range(2)}
    assert first.step == 2
    assert {head.length for head in first.chosen} == {6}
    second = measure(folder, 8, 12, samples=4)
    assert second.chosen == first.chosen
    samples = {length: {e.samples for e in second.entries if e.length == length} for length in (4, 8, 12)}
    assert samples == {4: {6}, 8: {4}, 12: {4}}
    kept = [entry for entry in second.entries if entry.length == 4]
    assert kept == [entry for entry in first.entries if entry.length == 4]
    control = measure(folder, 8, control="shuffled", names="mass")
    assert {entry.ids for entry in control.entries if entry.length == 8} == {"plain", "shuffled"}
    assert {entry.ids for entry in control.entries if entry.length == 12} == {"plain"}
    assert measures_from_json(json.loads(json.dumps(measures_to_json(control)))) == control


def test_measures_belong_to_the_samples_of_the_test_and_to_one_checkpoint(folder):
    measures = measure(folder, 8, names="token_margin")
    (entry,) = measures.entries
    config, model = load_model(folder)
    found = measure_cell(
        model,
        config.ids,
        Cell(config.task, 8, {}),
        config.evaluate,
        ("token_margin",),
        "cpu",
        config.execution.batch_tokens,
    )
    (again,) = measures_of_cell(found, Cell(config.task, 8, {}), config.evaluate, [], ORIGIN)
    assert (again.mean, again.samples) == (pytest.approx(entry.mean, abs=1e-5), entry.samples)
    right = next(s for s in lr.evaluate(folder.path, lengths=8, device="cpu") if s.metric == "token_accuracy")
    assert (entry.steps, entry.not_ahead) == (right.samples, right.samples - right.hits)
    of_another = Measures(measures.step + 1, (), [])
    assert measures.merge(of_another) == of_another


def test_cells_that_were_measured_are_kept_when_the_work_is_interrupted(folder, monkeypatch):
    def interrupted(model, policy, cell, *others):
        if cell.length == 8:
            raise KeyboardInterrupt
        return measure_cell(model, policy, cell, *others)

    monkeypatch.setattr("longreach.runs.measuring.measure_cell", interrupted)
    with pytest.raises(KeyboardInterrupt):
        measure(folder, 4, 6, 8)
    assert {entry.length for entry in folder.measures().entries} == {4, 6}


def test_dependencies_that_fit_into_no_memory_are_refused_before_the_test():
    config = replace(CONFIG, task=ParityScratchpad())
    far = EvalConfig(lengths=Lengths((2_000_000,)), samples=1, free_samples=0)
    model = build_model(TINY, 10, 0)
    with pytest.raises(BadInput, match=r"measuring at length 2000000 needs about .* TB .*: measure shorter lengths"):
        plan_measures(model, config, far, ("mass",), "cpu", 1 << 16, Observer())


def test_a_varied_task_has_cells_of_its_own(folder):
    entries = measure(folder, 8, axes={"hops": [1, 2]}, names="margin").entries
    assert {entry.setting for entry in entries} == {"hops=1", "hops=2"}


def test_measures_without_a_place_or_a_meaning_are_refused(folder, monkeypatch):
    with pytest.raises(BadInput, match="unknown measure 'depth'; known: mass, margin, token_margin"):
        measure(folder, 4, names="mass,depth")
    with pytest.raises(BadInput, match="no measure is named"):
        measure(folder, 4, names=())
    with pytest.raises(BadInput, match="measure writes into a run folder, which a model from memory does not have"):
        lr.evaluate(load_model(folder), measure="mass")
    task = ParityScratchpad()
    recurrent = build_model(RecurrentConfig(layers=1, width=8), len(task.vocabulary), 0)
    config = EvalConfig(samples=2, free_samples=0)
    assert inapplicable(recurrent, task, Sequential(), config, ALL, 4) == {
        "mass": "a recurrent model has no attention to look at",
        "margin": "IDs sequential are not predicted",
    }
    monkeypatch.setattr(ParityScratchpad, "depends_on", lr.Task.depends_on)
    plain = build_model(TINY, len(task.vocabulary), 0)
    (reason,) = inapplicable(plain, task, Sequential(), config, ("mass", "token_margin"), 4).items()
    assert reason == ("mass", "parity_scratchpad does not say what its answers depend on")
    assert read_names(" margin,mass") == ("mass", "margin")


def test_runs_without_predicted_ids_have_no_margin(tmp_path, capsys):
    config = replace(CONFIG, ids=Sequential(), model=TINY)
    run = execute_in(tmp_path / "runs" / "plain" / "seed-0", config)
    command = ["eval", str(run.path), "--lengths", "4", "--device", "cpu", "--free-samples", "0"]
    capsys.readouterr()
    assert main([*command, "--measure", "margin"]) == 2
    assert capsys.readouterr().err.strip() == "longreach: margin does not apply: IDs sequential are not predicted"
    assert run.measures() is None
    assert main([*command, "--measure", "mass,margin"]) == 0
    assert "margin does not apply: IDs sequential are not predicted" in capsys.readouterr().err
    assert {entry.measure for entry in run.measures().entries} == {"mass"}


def test_a_folder_of_runs_is_measured_run_by_run(folder, tmp_path, capsys):
    shutil.copytree(folder.path, tmp_path / "runs" / "a" / "seed-0")
    execute_in(tmp_path / "runs" / "b" / "seed-0", replace(CONFIG, ids=Sequential(), model=TINY))
    capsys.readouterr()
    command = ["eval", str(tmp_path / "runs"), "--lengths", "4,8", "--device", "cpu", "--measure", "margin"]
    assert main([*command, "--json", "--free-samples", "0"]) == 0
    told = capsys.readouterr()
    assert "b/seed-0: margin does not apply" in told.err
    rows = [row for row in json.loads(told.out) if "measure" in row]
    assert {(row["measure"], row["length"], row["seed"]) for row in rows} == {("margin", 4, 0), ("margin", 8, 0)}
    assert RunFolder(tmp_path / "runs" / "b" / "seed-0").measures() is None
    assert main([*command, "--out", str(tmp_path / "out.csv")]) == 2
    assert "scores and measures do not share columns" in capsys.readouterr().err
    assert main([*command, "--out", str(tmp_path / "out.json")]) == 0
    printed = capsys.readouterr().out
    assert "margin of the true ID" in printed
    assert "statement: not ahead" in printed
    assert {row.get("measure") for row in json.loads((tmp_path / "out.json").read_text())} == {None, "margin"}


CHANGES = [
    {"length": 0},
    {"length": "4"},
    {"mean": 1.5},
    {"mean": float("nan")},
    {"lowest": -1},
    {"samples": 0},
    {"samples": 10**6},
    {"deviation": -1.0},
    {"even": 2},
    {"layer": None},
    {"head": -1},
    {"measure": "margin"},
    {"measure": "depth"},
    {"overrides": []},
    {"overrides": {"k": 1}},
    {"ids": 3},
    {"unknown": 1},
]


@pytest.fixture(scope="module")
def written(trained, tmp_path_factory):
    """The content of measures.json."""
    folder = RunFolder(shutil.copytree(trained.path, tmp_path_factory.mktemp("written") / "run"))
    measure(folder, 4)
    return json.loads((folder.path / "measures.json").read_text())


@pytest.mark.parametrize("changes", CHANGES, ids=str)
def test_a_measure_that_cannot_be_is_one_line(folder, written, changes):
    first, *rest = written["measures"]
    path = folder.path / "measures.json"
    path.write_text(json.dumps({**written, "measures": [{**first, **changes}, *rest]}))
    with pytest.raises(BadInput, match=r"measures\.json is damaged") as caught:
        folder.measures()
    assert "\n" not in str(caught.value)


EMPTY = {"schema": 1, "step": 1, "chosen": [], "measures": []}
NONSENSE = ["[]", "{}", "", "\x80", "[" * 100_000]
NONSENSE += [
    json.dumps({**EMPTY, **changes})
    for changes in ({"schema": 2}, {"step": "x"}, {"chosen": {}}, {"more": 1}, {"chosen": [{"layer": 0}]})
]


@pytest.mark.parametrize("content", NONSENSE, ids=lambda content: content[:70])
def test_nonsense_in_place_of_measures_is_one_line_before_any_work(folder, capsys, content):
    path = folder.path / "measures.json"
    path.write_bytes(content.encode("latin-1"))
    capsys.readouterr()
    assert main(["eval", str(folder.path), "--measure", "mass", "--device", "cpu"]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "measures.json is damaged" in line
    assert len(line) < 1000


def test_a_measure_is_there_once(folder, written):
    twice = {**written, "measures": written["measures"][:1] * 2}
    (folder.path / "measures.json").write_text(json.dumps(twice))
    with pytest.raises(BadInput, match="a measure is there twice"):
        folder.measures()


def test_reports_get_rows_tables_and_a_panel_for_each_measure(folder, tmp_path):
    (bare,), _ = load_results([folder.path])
    assert measures_data([bare]) == []
    assert measures_figure([bare]) is None
    assert measure_tables(measured_runs([bare])) == []
    measure(folder, 4, 8, names="mass")
    results, _ = load_results([folder.path])
    assert [axis.get_title() for axis in measures_figure(results).axes] == ["attention on the true dependencies"]
    measure(folder, 4, 8, names="margin")
    measure(folder, 8, names="mass", control="shuffled")  # of no report
    figure = measures_figure(results, "title")
    assert len(figure.axes) == 2
    assert all(axis.lines for axis in figure.axes)
    rows = measures_data(results)
    entries = [entry for entry in folder.measures().entries if entry.ids == "plain"]
    assert len(rows) == len(entries)
    for row, entry in zip(rows, entries, strict=True):
        assert row["low"] <= row["mean"] == entry.mean <= row["high"]
        assert row["trained"] == (row["length"] <= 6)
    best = [row for row in rows if row["best"] and row["dependency"] is None]
    (name,) = {row["name"] for row in best}
    head = folder.measures().chosen[0]
    assert name == f"layer {head.layer} head {head.head}"
    assert {row["name"] for row in rows if row["measure"] == "margin"} == {"statement", "token in statement"}
    mass, margin = measure_tables(measured_runs(results))
    assert [str(cell) for cell in mass.columns[1].cells] == ["best head", "even attention"]
    assert margin.row_count == 4


def test_names_of_levels_are_drawn_as_they_are(folder):
    measures = measure(folder, 4, names="margin")
    evil = [replace(entry, level=f"$x^2$ \x1b[31m {entry.level}") for entry in measures.entries]
    folder.save_measures(replace(measures, entries=evil))
    results, _ = load_results([folder.path])
    figure = measures_figure(results)
    shown = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert all("\x1b" not in text and r"\$x^2\$" in text for text in shown)


def test_intervals_are_those_of_a_mean():
    entry = Measure(
        measure="mass", length=4, layer=0, head=0, mean=0.5, deviation=0.2, lowest=0.1, samples=100, steps=300,
        even=0.1, test_seed=0, **ORIGIN,
    )  # fmt: skip
    assert entry.interval() == pytest.approx((0.5 - 1.96 * 0.02, 0.5 + 1.96 * 0.02))
    assert replace(entry, deviation=0.2, mean=0.99).interval()[1] == 1.0
    assert replace(entry, deviation=None, samples=1).interval() is None


def test_measures_name_the_step_of_their_checkpoint(folder):
    assert list_checkpoints(folder.checkpoints)[-1].step == measure(folder, 4, names="token_margin").step
