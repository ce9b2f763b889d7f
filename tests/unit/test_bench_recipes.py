"""What is counted and told about the speed of recipes.  No test here depends on how fast anything is."""

import json

import pytest
import torch
import yaml
from torch.utils.flop_counter import FlopCounterMode

from longreach.api import RunConfig, Span, TrainConfig
from longreach.bench import Effort, Peak, parse_recipes, time_recipes
from longreach.bench.flops import step_flops, training_flops
from longreach.bench.recipes import has_counterpart, steps_of_round
from longreach.cli.main import main
from longreach.config import build
from longreach.errors import BadInput
from longreach.objectives import id_targets, resolve_objectives, run_forward, token_targets
from longreach.runs import new_model
from longreach.runs.parts import training_data

TINY = {
    "task": "parity_scratchpad",
    "model": {"layers": 1, "width": 16, "heads": 2},
    "train": {"lengths": "1..4", "steps": 6, "batch_size": 4},
    "evaluate": {"lengths": [2, 4], "samples": 8, "free_samples": 4},
    "variants": {"counting": {}, "coupled": {"ids": {"name": "coupled", "max_id": 20}}},
}
PEAK = ["--peak", "1", "--device", "cpu", "--repeats", "1"]


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(TINY))
    return "tiny.yaml"


# --- operations -------------------------------------------------------------------------------------------------------


def _step(length=5, **parts):
    """A model and a batch of samples of one length, so that nothing is padded."""
    settings = {"task": "parity_scratchpad", "model": {"layers": 2, "width": 16, "heads": 2}}
    for path, value in parts.items():
        section = settings.setdefault(path.split("__")[0], {})
        section[path.split("__")[1]] = value
    config = build(RunConfig, settings)
    config = RunConfig(
        task=config.task,
        ids=config.ids,
        model=config.model,
        train=TrainConfig(lengths=Span(length, length), batch_size=3, objectives=config.train.objectives),
    )
    model = new_model(config, 0, "cpu")
    return model, training_data(config, 0, "cpu").batch(0), resolve_objectives(config.train.objectives, model)


def test_without_padding_and_heads_of_its_own_a_step_needs_what_the_formula_says():
    model, batch, objectives = _step()
    rows, width = batch.sample.tokens.shape
    predicted = int(token_targets(batch.sample).sum())
    expected = training_flops(model.config, len(batch.task.vocabulary), rows, width - 1, predicted)
    assert step_flops(model, batch, objectives) == expected


def test_padding_is_not_counted():
    model, batch, objectives = _step()
    _, longer, _ = _step(9)
    pad = longer.sample.tokens.shape[1] - batch.sample.tokens.shape[1]
    wider = batch.map(lambda one: torch.nn.functional.pad(one, (0, pad)) if one.dim() > 1 else one)
    assert step_flops(model, wider, objectives) == step_flops(model, batch, objectives)
    assert step_flops(model, longer, objectives) > step_flops(model, batch, objectives)


@pytest.mark.parametrize("head", ["pointer", "table"])
def test_position_heads_need_what_torch_counts_but_for_hidden_pairs(head):
    encoding = "learned" if head == "table" else "rope"
    parts = {"ids__name": "predicted", "ids__max_id": 30, "model__position_head": head, "model__encoding": encoding}
    model, batch, objectives = _step(**parts)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        forward = run_forward(objectives, model, batch)
        for objective in objectives:
            objective.losses(model, forward)
    counts = counter.get_flop_counts()["Global"]
    products = sum(count for kind, count in counts.items() if "attention" not in str(kind))
    read = batch.sample.tokens.shape[1] - 1
    rows, width = len(batch.ids), model.config.width
    attention = 2 * 2 * model.config.depth * width * rows * read * (read + 1) // 2
    hidden = 0
    if head == "pointer":  # it compares with later tokens too, and hides them
        targets = id_targets(batch.sample)
        hidden = 2 * width * int((targets * (read - torch.arange(1, read + 1))).sum())
    assert step_flops(model, batch, objectives) == 3 * (products - hidden + attention)


def test_heads_that_look_by_id_alone_need_neither_queries_nor_keys_nor_scores():
    model, batch, objectives = _step()
    other, _, _ = _step(model__id_heads=1)
    read = batch.sample.num_tokens - 1
    tokens, pairs = int(read.sum()), int((read * (read + 1) // 2).sum())
    size, layers = model.config.head_dim, model.config.depth
    spared = 3 * 2 * layers * (2 * size * model.config.width * tokens + size * pairs)
    assert step_flops(model, batch, objectives) - step_flops(other, batch, objectives) == spared


@pytest.mark.parametrize(
    "parts",
    [
        {"model__copy_head": True},
        {"model__dependency_head": True},
        {"model__attention": {"name": "sliding_window", "window": 3}},
        {
            "ids__name": "predicted",
            "ids__max_id": 30,
            "model__position_head": "pointer",
            "train__objectives": [{"name": "predicted_ids", "feed_predicted": 0.5}],
        },
    ],
    ids=str,
)
def test_what_cannot_be_counted_has_no_share(parts):
    assert step_flops(*_step(**parts)) is None


# --- rows -------------------------------------------------------------------------------------------------------------


def test_recipes_are_named_with_their_variants_and_changes(recipe):
    shipped, changed, own = parse_recipes(
        f"demo/aligned,parity_far/rule:model.id_heads=2:train.optimizer.lr=1e-4,{recipe}/counting"
    )
    assert shipped.words == ("demo", "--only", "aligned")
    assert changed.name == "parity_far/rule:model.id_heads=2:train.optimizer.lr=1e-4"
    assert changed.words == ("parity_far", "--only", "rule", "--model.id_heads", "2", "--train.optimizer.lr", "1e-4")
    assert (changed.config.model.id_heads, changed.config.train.optimizer.lr) == (2, 1e-4)
    assert (own.words, own.config.model.width) == ((recipe, "--only", "counting"), 16)
    with pytest.raises(BadInput, match="demo has no variant 'x', only counting, published, aligned"):
        parse_recipes("demo/x")
    with pytest.raises(BadInput, match=r"RECIPE/VARIANT:FIELD=VALUE, got 'model.width'"):
        parse_recipes("demo/aligned:model.width")


def test_a_model_has_a_counterpart_or_not(recipe):
    sparse, parity = parse_recipes("sparse_parity/K8,parity_far/rule")
    assert has_counterpart(sparse.config)
    assert not has_counterpart(parity.config)


def test_every_recipe_has_a_row_for_each_number_of_models(recipe):
    told = []
    recipes = parse_recipes(f"{recipe}/counting,{recipe}/coupled")
    effort, peak = Effort(2), Peak(1e12, "given")
    found = time_recipes(recipes, [1, 2], "cpu", "none", effort, peak, told.append, window=0.001)
    assert [(row.recipe, row.side, row.models) for row in found.rows] == [
        (f"{recipe}/{variant}", "longreach", models) for variant in ("counting", "coupled") for models in (1, 2)
    ]
    for row in found.rows:
        assert row.rounds == 2
        assert 0 < row.slowest <= row.steps_per_second <= row.fastest
        assert row.model_steps_per_second == row.models * row.steps_per_second
        assert (row.ratio is None) == (row.models == 1)
        assert row.floor_share > 0
        assert row.seconds_to_first_step > 0
    one, two = found.rows[:2]
    rates = [row.tokens_per_second / row.model_steps_per_second for row in (one, two)]
    assert rates[0] == pytest.approx(rates[1])
    assert two.ratio_lowest <= two.ratio <= two.ratio_highest
    assert told[0] == f"building {recipe}/counting, longreach"


def test_a_round_lasts_as_long_as_it_should(monkeypatch):
    now, calls = [0.0], []
    monkeypatch.setattr("longreach.bench.recipes.time.perf_counter", lambda: now[0])

    def step():
        calls.append(None)
        now[0] += 0.01

    assert steps_of_round(step, 0.5, lambda: None) == 64
    assert steps_of_round(step, 0.04, lambda: None) == 4


def test_a_rival_takes_turns_with_ours(recipe, capsys):
    pytest.importorskip("transformers")
    small = "sparse_parity/K8:model.layers=1:model.width=16:model.heads=2:train.batch_size=2:train.precision=fp32"
    assert (
        main(["bench", "recipes", "--recipes", small, "--models", "1", "--against", "hf-eager", "--json", *PEAK]) == 0
    )
    ours, theirs = json.loads(capsys.readouterr().out)["rows"]
    assert (ours["side"], theirs["side"], theirs["models"]) == ("longreach", "hf eager", 1)
    assert theirs["ratio"] == pytest.approx(theirs["model_steps_per_second"] / ours["model_steps_per_second"])


def test_figures_are_told_and_written(recipe, tmp_path, capsys):
    flags = ["--recipes", f"{recipe}/counting", "--models", "1,2", "--whole", "4", *PEAK]
    file, table = tmp_path / "recipes.json", tmp_path / "headline.json"
    assert main(["bench", "recipes", *flags, "--json", "--out", str(file), "--headline", str(table)]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts == json.loads(file.read_text())
    assert {"device", "command", "commit", "date", "torch", "threads", "peak", "peak_flops", "notes"} <= facts.keys()
    assert facts["command"].endswith("--against none --whole 4 --device cpu --repeats 1 --seconds 120 --peak 1")
    (whole,) = facts["whole"]
    assert whole["command"] == f"longreach run {recipe} --only counting --seeds 1 --train.steps 4 --device cpu"
    assert 0 < whole["first_step"] < whole["report"] < whole["end"]
    assert sum(whole["phases"].values()) == pytest.approx(whole["report"])
    rows = json.loads(table.read_text())
    assert [(row["name"], row["unit"]) for row in rows] == [
        (f"recipe {recipe}/counting, one model", "model steps/s"),
        (f"recipe {recipe}/counting, 2 models", "model steps/s"),
        (f"longreach run {recipe}/counting, 4 steps", "seconds"),
    ]


def test_a_table_fits_a_terminal(recipe, capsys):
    assert main(["bench", "recipes", "--recipes", f"{recipe}/counting", "--models", "2", *PEAK]) == 0
    printed = capsys.readouterr().out
    assert "2 stacked" in printed
    notes = printed.index("each round")
    assert max(map(len, printed[:notes].splitlines())) <= 80


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--models", "1,x"], "--models must be whole numbers from 1"),
        (["--repeats", "0"], "--repeats must be above 0"),
        (["--whole", "0"], "--whole must be above 0"),
        (["--recipes", "demo/x"], "has no variant 'x'"),
        (["--recipes", "demi/x"], "did you mean demo"),
        (["--out", "nowhere/x.json"], "there is no folder"),
    ],
)
def test_refusals_are_one_line(flags, complaint, capsys):
    assert main(["bench", "recipes", "--device", "cpu", "--peak", "1", *flags]) == 2
    said = capsys.readouterr().err
    assert complaint in said
    assert said.count("\n") == 1


def test_a_run_that_fails_is_one_line(recipe, capsys):
    flags = ["--recipes", f"{recipe}/counting:execution.device=cuda:evaluate.samples=0", "--models", "1"]
    assert main(["bench", "recipes", *flags, "--whole", "2", *PEAK]) == 2
    assert "evaluate.samples" in capsys.readouterr().err
