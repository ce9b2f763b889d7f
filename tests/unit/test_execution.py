"""The section `execution`: it may change when a run goes on, and settings of earlier versions still load."""

import json
import sys
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml
from helpers import execute_in
from test_runs import CONFIG

import longreach.api as lr
from longreach.cli.main import main
from longreach.config import dump_yaml, move_path, to_plain, upgrade
from longreach.errors import BadInput
from longreach.reports import load_results
from longreach.runs import Observer, RunFolder, check, parse_recipe
from longreach.sweeps import make_plan

OLD = {
    "train": ("accumulate", "compile", "recompute", "log_every", "save_every", "keep_last", "graph", "deterministic"),
    "evaluate": ("batch_tokens", "graph"),
}


def old_settings(config: lr.RunConfig) -> dict:
    """The settings of a run as they were written before there was a section `execution`."""
    settings = to_plain(config)
    execution = settings.pop("execution")
    for section, names in OLD.items():
        settings[section] |= {name: execution[name] for name in names}
    return settings


def stopped(path: Path, config: lr.RunConfig = CONFIG) -> RunFolder:
    calls = iter(range(1000))
    return execute_in(path, config, observer=Observer(should_stop=lambda: next(calls) == 12))


def events(folder: RunFolder, event: str) -> list[dict]:
    lines = map(json.loads, (folder.path / "log.jsonl").read_text().splitlines())
    return [line for line in lines if line["event"] == event]


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> RunFolder:
    return execute_in(tmp_path_factory.mktemp("whole") / "run", CONFIG)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"train": {"graph": False, "steps": 3}}, {"train": {"steps": 3}, "execution": {"graph": False}}),
        ({"evaluate": {"batch_tokens": 5}}, {"execution": {"batch_tokens": 5}}),
        ({"train": {"graph": False}, "evaluate": {"graph": True}}, {"execution": {"graph": False}}),
        ({"train": {"graph": True}, "evaluate": {"graph": False}}, {"execution": {"graph": False}}),
        (
            {"train": {"log_every": 5}, "execution": {"save_every": 3}},
            {"execution": {"save_every": 3, "log_every": 5}},
        ),
        ({"train": {}, "task": "copy"}, {"train": {}, "task": "copy"}),
        ({"train": 3, "evaluate": None}, {"train": 3, "evaluate": None}),
    ],
)
def test_old_fields_move_to_their_new_section(old, new):
    given = deepcopy(old)
    assert upgrade(old) == new
    assert old == given
    assert upgrade(new) == new


@pytest.mark.parametrize(("section", "name"), [(section, name) for section, names in OLD.items() for name in names])
def test_an_old_field_beside_its_new_one_is_refused(section, name):
    assert move_path(f"{section}.{name}") == f"execution.{name}"
    with pytest.raises(BadInput, match=rf"^{section}\.{name} is now execution\.{name}: give one of them$"):
        upgrade({section: {name: 1}, "execution": {name: 1}})


def test_an_old_recipe_and_old_flags_mean_what_they_meant():
    execution = replace(CONFIG.execution, accumulate=2, keep_last=3)
    config = replace(CONFIG, execution=execution)
    assert parse_recipe("old", old_settings(config), {}).variants[""] == config
    for base in (old_settings(config), to_plain(config)):
        own = {
            "old": {"train": {"save_every": 7}},
            "new": {"execution": {"save_every": 7}},
            "both": {"train": {"steps": 7, "save_every": 7}, "evaluate": {"batch_tokens": 9}},
        }
        flags = {"train": {"log_every": 9}}
        found = parse_recipe("r", {**base, "variants": own}, flags).variants
        wanted = replace(config, execution=replace(execution, save_every=7, log_every=9))
        assert found["old"] == found["new"] == wanted
        assert found["both"].train == replace(config.train, steps=7)
        assert found["both"].execution == replace(wanted.execution, batch_tokens=9)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ({"graph": False}, "graph: unknown key; did you mean execution.graph?"),
        ({"stack": 2}, "stack: unknown key; did you mean execution.stack?"),
        ({"execution": {"grap": False}}, "execution.grap: unknown key; did you mean graph?"),
        ({"execution": {"stack": 0}}, "execution.stack: expected int | auto, got 0"),
        ({"train": {"accumulate": 3}}, "train.batch_size=8 does not split into 3 parts (execution.accumulate)"),
        ({"train": {"graph": 1}, "execution": {"graph": True}}, "train.graph is now execution.graph: give one of them"),
    ],
)
def test_mistakes_are_named_with_the_new_section(content, complaint):
    base = {"task": "copy", "train": {"batch_size": 8}}
    with pytest.raises(BadInput) as error:
        parse_recipe("r", {**base, **content, "train": {**base["train"], **content.get("train", {})}}, {})
    assert str(error.value) == complaint


def test_execution_may_change_on_resume_and_is_noted(whole, tmp_path):
    folder = stopped(tmp_path / "run")
    changed = replace(CONFIG, execution=replace(CONFIG.execution, batch_tokens=50, keep_last=9, accumulate=2))
    execute_in(folder.path, changed, resume=True)
    assert folder.config() == changed
    (line,) = events(folder, "changed")
    assert line["message"] == (
        "execution.accumulate=2 (before: 1), execution.batch_tokens=50 (before: 100), execution.keep_last=9 (before: 2)"
    )
    assert [score.samples for score in folder.scores()] == [score.samples for score in whole.scores()]


def test_nothing_is_noted_where_nothing_changed_and_all_else_must_match(whole, tmp_path):
    folder = stopped(tmp_path / "run")
    written = (folder.path / "config.yaml").read_bytes()
    other = replace(CONFIG, train=replace(CONFIG.train, steps=25), execution=lr.ExecutionConfig())
    with pytest.raises(BadInput, match=r"was started with train.steps=24, now asked for 25"):
        execute_in(folder.path, other, resume=True)
    assert (folder.path / "config.yaml").read_bytes() == written
    execute_in(folder.path, CONFIG, resume=True)
    assert (folder.path / "config.yaml").read_bytes() == written
    assert not events(folder, "changed")
    assert folder.scores() == whole.scores()


def test_what_does_not_fit_the_model_is_refused_on_resume_too(tmp_path):
    config = replace(CONFIG, model=lr.RecurrentConfig(width=16), ids=lr.Sequential())
    check(config)
    folder = stopped(tmp_path / "run", config)
    spoilt = replace(config, execution=replace(config.execution, recompute=True))
    with pytest.raises(BadInput, match=r"execution.recompute concerns the layers of a transformer"):
        execute_in(folder.path, spoilt, resume=True)
    assert folder.config() == config


def test_an_old_run_folder_goes_on_as_it_was_started(whole, tmp_path):
    folder = stopped(tmp_path / "run")
    old = dump_yaml(old_settings(CONFIG))
    (folder.path / "config.yaml").write_text(old)
    assert folder.config() == CONFIG
    execute_in(folder.path, CONFIG, resume=True)
    assert (folder.path / "config.yaml").read_text() == old
    assert not events(folder, "changed")
    assert folder.scores() == whole.scores()


def test_an_old_run_folder_takes_another_execution(whole, tmp_path):
    folder = stopped(tmp_path / "run")
    (folder.path / "config.yaml").write_text(dump_yaml(old_settings(CONFIG)))
    changed = replace(CONFIG, execution=replace(CONFIG.execution, batch_tokens=50))
    execute_in(folder.path, changed, resume=True)
    assert yaml.safe_load((folder.path / "config.yaml").read_text()) == to_plain(changed)
    assert events(folder, "changed")[0]["message"] == "execution.batch_tokens=50 (before: 100)"
    assert folder.scores() == whole.scores()


def run(path: Path, config: dict, *flags: str) -> int:
    path.mkdir(exist_ok=True)
    (path / "r.yaml").write_text(dump_yaml(config))
    return main(["run", str(path / "r.yaml"), "--out", str(path / "out"), "--json", *flags])


def test_a_test_without_room_goes_on_with_smaller_batches(whole, tmp_path, monkeypatch, capsys):
    scoring = sys.modules["longreach.runs.scoring"]
    evaluate = scoring.evaluate

    def in_little_memory(*arguments, **options):
        if (budget := arguments[7]) > 60:
            raise torch.OutOfMemoryError(f"CUDA out of memory with {budget} tokens.")
        return evaluate(*arguments, **options)

    monkeypatch.setattr(scoring, "evaluate", in_little_memory)
    assert run(tmp_path, to_plain(CONFIG), "--device", "cpu") == 1
    told = capsys.readouterr().err
    assert "a smaller execution.batch_tokens (--batch-tokens) with --resume needs less; the last good state is" in told
    assert run(tmp_path, to_plain(CONFIG), "--device", "cpu", "--resume", "--batch-tokens", "60") == 0
    folder = RunFolder(tmp_path / "out" / "seed-0")
    assert folder.config().execution.batch_tokens == 60
    assert folder.scores() == whole.scores()


def test_the_recipe_chooses_device_and_stack_unless_a_flag_does(tmp_path, capsys):
    settings = to_plain(replace(CONFIG, train=replace(CONFIG.train, steps=2)))
    settings["execution"] |= {"device": "meta", "stack": 2}
    settings["seeds"] = 2
    assert run(tmp_path, settings) == 2
    assert "device 'meta' cannot be used" in capsys.readouterr().err
    assert run(tmp_path, settings, "--device", "cpu") == 0
    folders = [RunFolder(tmp_path / "out" / f"seed-{seed}") for seed in range(2)]
    assert [folder.info().stack for folder in folders] == [["seed-0", "seed-1"]] * 2
    assert folders[0].config().execution.device == "cpu"
    assert run(tmp_path / "alone", settings, "--device", "cpu", "--stack", "1") == 0
    assert RunFolder(tmp_path / "alone" / "out" / "seed-0").info().stack == []
    capsys.readouterr()
    assert run(tmp_path, settings, "--device", "cpu", "--stack", "2", "--execution.stack", "2") == 2
    assert "--stack and --execution.stack are one setting: give one of them" in capsys.readouterr().err
    settings["variants"] = {"a": {}, "b": {"execution": {"device": "cpu"}}}
    assert run(tmp_path / "two", settings) == 2
    assert "execution.device must be the same for all variants, got cpu, meta" in capsys.readouterr().err


def test_python_chooses_the_device_of_the_configuration_unless_told(tmp_path):
    config = replace(CONFIG, execution=replace(CONFIG.execution, device="meta"))
    with pytest.raises(BadInput, match="device 'meta' cannot be used"):
        lr.run(config, tmp_path / "run")
    assert lr.run(config, tmp_path / "run", device="cpu")
    assert RunFolder(tmp_path / "run").config().execution.device == "cpu"


@pytest.mark.parametrize(
    "flags", [["--batch-tokens", "30"], ["--evaluate.batch_tokens", "30"], ["--execution.batch_tokens", "30"]]
)
def test_a_test_takes_its_batches_from_flags_old_and_new(whole, monkeypatch, capsys, flags):
    seen, graphs = [], []
    scoring = sys.modules["longreach.runs.scoring"]
    evaluate = scoring.evaluate
    monkeypatch.setattr(scoring, "evaluate", lambda *given: seen.append(given[7]) or evaluate(*given))
    choose = scoring.choose
    monkeypatch.setattr(scoring, "choose", lambda *given: graphs.append(given[1].graph) or choose(*given))
    command = ["eval", str(whole.path), "--device", "cpu", "--json"]
    assert main([*command, *flags, "--evaluate.graph", "false"]) == 0
    assert main(command) == 0
    assert seen == [30, 100]
    assert (graphs[0], graphs[-1]) == (False, True)
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first == second
    assert main([*command, "--batch-tokens", "30", "--evaluate.batch_tokens", "30"]) == 2
    assert "--batch-tokens and --execution.batch_tokens are one setting" in capsys.readouterr().err
    assert main([*command, "--batch-tokens", "0"]) == 2
    assert "execution.batch_tokens must be at least 1, got 0" in capsys.readouterr().err


OLD_SWEEP = """
task: copy
train: {steps: 4, batch_size: 8, log_every: 2}
evaluate: {lengths: "4", samples: 4, free_samples: 2, batch_tokens: 99}
grid:
  train.accumulate: [1, 2]
  train: [{graph: false}, {graph: true, steps: 5}]
when:
  - if: {train.accumulate: 2, train: {graph: false}}
    set: {evaluate.batch_tokens: 50}
"""


def test_an_old_sweep_file_means_what_it_meant_under_the_same_names(tmp_path):
    (tmp_path / "s.yaml").write_text(OLD_SWEEP)
    found = {variation.name: variation.config for variation in make_plan(tmp_path / "s.yaml").variations}
    assert {
        name: (config.train.steps, config.execution.accumulate, config.execution.graph, config.execution.batch_tokens)
        for name, config in found.items()
    } == {
        "train.graph=false,train.accumulate=1": (4, 1, False, 99),
        "train.graph=true,train.steps=5,train.accumulate=1": (5, 1, True, 99),
        "train.graph=false,train.accumulate=2": (4, 2, False, 50),
        "train.graph=true,train.steps=5,train.accumulate=2": (5, 2, True, 99),
    }
    assert {config.execution.log_every for config in found.values()} == {2}


@pytest.mark.parametrize(
    ("content", "line", "complaint"),
    [
        ("task: copy\ngrid:\n  train.graph: [true]\n  execution.graph: [true]\n", 3, "train.graph is now execution.gr"),
        ("task: copy\ntrain: {graph: true}\nexecution: {graph: true}\n", 2, "train.graph is now execution.graph: give"),
        ("task: copy\nstack: 2\nexecution: {stack: 3}\n", 2, "stack and execution.stack are one setting: give one"),
    ],
)
def test_old_and_new_names_in_one_sweep_file_are_refused(tmp_path, content, line, complaint):
    (tmp_path / "s.yaml").write_text(content)
    with pytest.raises(BadInput) as error:
        make_plan(tmp_path / "s.yaml")
    assert len(error.value.lines) == 1
    assert error.value.lines[0].startswith(f"{tmp_path / 's.yaml'}:{line}: {complaint}")


def test_a_sweep_takes_device_and_stack_from_its_runs(tmp_path, capsys):
    base = "recipe: demo\nseeds: 4\ntrain: {steps: 2}\n"
    (tmp_path / "s.yaml").write_text(f"{base}variants: [counting]\nexecution: {{stack: 2, device: cpu}}\n")
    plan = make_plan(tmp_path / "s.yaml")
    assert plan.device == "cpu"
    assert [len(job.runs) for job in plan.jobs] == [2, 2]
    (tmp_path / "s.yaml").write_text(f"{base}execution: {{device: 'cuda:1'}}\n")
    assert main(["sweep", "run", str(tmp_path / "s.yaml"), "--out", str(tmp_path / "out")]) == 2
    assert "execution.device must be auto, cpu or cuda for all runs of a sweep, got cuda:1" in capsys.readouterr().err


def test_reports_and_tables_leave_execution_aside(whole, tmp_path):
    """An old folder, a new one and one that was computed in another way are seeds of one curve."""
    pytest.importorskip("pyarrow")
    from longreach.results import load_runs, parse_condition, varied

    other = replace(CONFIG, execution=replace(CONFIG.execution, batch_tokens=50, device="cpu"))
    for seed, config in enumerate((CONFIG, CONFIG, other)):
        execute_in(tmp_path / f"seed-{seed}", config, seed)
    (tmp_path / "seed-0" / "config.yaml").write_text(dump_yaml(old_settings(CONFIG)))
    results, _ = load_results([tmp_path])
    assert len({result.variant for result in results}) == 1
    runs = load_runs([tmp_path])
    assert varied(runs) == []
    assert runs["execution.batch_tokens"].to_pylist() == [100, 100, 50]
    assert not [name for name in runs.column_names if name in ("train.log_every", "evaluate.batch_tokens")]
    assert len(parse_condition("evaluate.batch_tokens=50").keep(runs)) == 1
    for folder, tokens in (("seed-0", 100), ("seed-2", 50)):
        record = tmp_path / folder / "run.json"
        info = json.loads(record.read_text()) | {"variant": f"evaluate.batch_tokens={tokens}"}
        record.write_text(json.dumps(info))
    assert varied(load_runs([tmp_path])) == ["execution.batch_tokens"]


def test_the_help_of_run_lists_the_section(capsys):
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    told = capsys.readouterr().out
    assert "--execution.batch_tokens int  [65536]" in told
    assert "--execution.stack int | auto  [auto]" in told
    assert "--train.graph" not in told


def test_the_sections_of_a_recipe_are_listed(capsys):
    assert main(["list", "section", "--json"]) == 0
    (sections,) = json.loads(capsys.readouterr().out).values()
    assert [row["name"] for row in sections] == ["train", "train.optimizer", "evaluate", "execution"]
    assert {field["name"] for field in sections[3]["settings"]} >= {*OLD["train"], "batch_tokens", "device", "stack"}
