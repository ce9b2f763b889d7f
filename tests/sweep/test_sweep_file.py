"""Sweep files: what they may say, and that every mistake is found at once, with its line."""

from pathlib import Path

import pytest
from sweeping import TINY, write

from longreach.errors import BadInput
from longreach.runs import check, load_recipe
from longreach.sweeps import Resources, check_plan, make_plan
from longreach.system import capacity
from longreach.verbs.sweeping import device_here

ROOT = Path(__file__).parents[2]


def plan_of(tmp_path, text):
    path = tmp_path / "sweep.yaml"
    path.write_text(text)
    return make_plan(path)


def mistakes(tmp_path, text):
    """What is said of a file, as {line: what}."""
    with pytest.raises(BadInput) as caught:
        check_plan(plan_of(tmp_path, text), tmp_path / "out")
    start = f"{tmp_path / 'sweep.yaml'}:"
    assert all(line.startswith(start) for line in caught.value.lines)
    return [(int(line.removeprefix(start).split(":")[0]), line) for line in caught.value.lines]


def run_names(plan):
    return [run.name for run in plan.runs]


def test_settings_may_stand_in_the_file_itself(tmp_path):
    plan = make_plan(write(tmp_path / "mine.yaml", {**TINY, "seeds": [3, 1]}))
    assert run_names(plan) == ["mine/seed-3", "mine/seed-1"]
    assert {block.title for block in plan.file.blocks} == {"tiny"}


def test_a_recipe_brings_its_variants_and_seeds(tmp_path):
    plan = plan_of(tmp_path, "recipe: demo\ntrain: {steps: 7}\nfirst_seed: 2\n")
    assert run_names(plan) == [f"demo/{variant}/seed-2" for variant in ("counting", "published", "aligned")]
    assert {one.config.train.steps for one in plan.variations} == {7}
    demo = load_recipe("demo")
    assert all(one.config.ids == demo.variants[one.name].ids for one in plan.variations)
    assert {block.title for block in plan.file.blocks} == {demo.title}


def test_a_path_of_a_recipe_is_relative_to_the_sweep_file(tmp_path, monkeypatch):
    write(tmp_path / "own.yaml", {**TINY, "variants": {"a": {}, "b": {"ids": {"name": "coupled", "max_id": 20}}}})
    plan = plan_of(tmp_path, "recipe: own.yaml\nvariants: [b]\n")
    assert run_names(plan) == ["own/b/seed-0"]


def test_grids_lists_and_conditions(tmp_path):
    plan = plan_of(
        tmp_path,
        """
recipe: demo
variants: [counting, aligned]
grid: {model.layers: [1, 2]}
list:
  - {train.steps: 10}
  - {train.steps: 20, train.batch_size: 8}
when:
  - {if: {variant: aligned, model.layers: 2}, set: {ids.max_id: 300}}
except:
  - {variant: counting, train.steps: 20}
""",
    )
    found = {one.name: (one.config.train.batch_size, one.config.ids.max_id) for one in plan.variations}
    assert found == {
        "counting,model.layers=1,train.steps=10": (64, 0),
        "counting,model.layers=2,train.steps=10": (64, 0),
        "aligned,model.layers=1,train.steps=10": (64, 200),
        "aligned,model.layers=2,train.steps=10": (64, 300),
        "aligned,model.layers=1,train.batch_size=8,train.steps=20": (8, 200),
        "aligned,model.layers=2,train.batch_size=8,train.steps=20": (8, 300),
    }


def test_several_blocks(tmp_path):
    text = "runs:\n  - {recipe: demo, variants: [aligned]}\n  - {recipe: demo, variants: [aligned], name: again}\n"
    assert run_names(plan_of(tmp_path, text)) == ["demo/aligned/seed-0", "again/aligned/seed-0"]


@pytest.mark.parametrize("file", sorted((ROOT / "sweeps").glob("*.yaml")), ids=lambda path: path.name)
def test_every_sweep_of_ours_can_start(file):
    plan = make_plan(file)
    assert len(run_names(plan)) == len(set(run_names(plan)))
    for variation in plan.variations:
        check(variation.config, stacked=variation.config.execution.stack_size(1) > 1)


BAD = """\
titel: x
recipe: demo
variants: [counting, alined]
seeds: -1
stack: 0
retries: many
resources: {cpus: 1, gpu: 1}
grid:
  train.stepz: [3]
  trian.steps: [3]
  model.layers: 2
  model.heads:
    - 2
    - 3
  train.batch_size: [4, 4]
list:
  - {train.batch_size: 2}
  - 7
when:
  - {if: {ids: sequential}}
  - {iff: {}, set: {nothing: 3}}
"""


def test_all_mistakes_are_told_at_once_each_with_its_line(tmp_path):
    found = mistakes(tmp_path, BAD)
    expected = [
        (1, "titel: unknown key; did you mean title?"),
        (3, "demo has no variant 'alined'; did you mean aligned"),
        (4, "seeds must be a number from 1"),
        (5, "stack: expected a number from 1, got 0"),
        (6, "retries: expected a number from 0, got 'many'"),
        (7, "resources.gpu: unknown key; did you mean gpus"),
        (9, "train.stepz: unknown key; did you mean steps?"),
        (10, "trian.steps: unknown setting; did you mean train?"),
        (11, "model.layers: expected a list of values, got 2"),
        (14, "model.width=64 does not split into 3 heads"),
        (15, "train.batch_size: the value 4 stands twice"),
        (17, "train.batch_size stands in grid as well"),
        (18, "list: expected settings such as train.steps: 500, got 7"),
        (20, "when: set is missing"),
        (21, "when: if is missing"),
        (21, "when: unknown key iff; did you mean if?"),
        (21, "nothing: unknown setting"),
    ]
    for line, text in expected:
        assert any(number == line and text in told for number, told in found), (line, text, found)
    assert len(found) == len(expected), found


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        ("recipe: dmo\n", 1, "unknown recipe 'dmo'; did you mean demo?"),
        ("recipe: none.yaml\n", 1, "there is no recipe file"),
        ("task: copyy\n", 1, "did you mean copy or"),
        ("seeds: 2\nmodel: {layers: 1}\n", 1, "task is missing"),
        ("recipe: demo\nmodel:\n  layers: 1\n  widht: 3\n", 4, "model.widht: unknown key; did you mean width?"),
        ("recipe: demo\nname: ../x\n", 2, "letters, digits, - and _ only, got '../x'"),
        ("runs:\n  - recipe: demo\n  - recipe: demo\n", 3, "demo/counting/seed-0 is a run of line 2 as well"),
        ("runs:\n  - recipe: demo\n    grid: {modle.layers: [1]}\n", 3, "modle.layers: unknown setting"),
        ("runs: [3]\n", 1, "expected a mapping such as {recipe: demo}"),
        ("runs: []\n", 1, "runs: expected a list of blocks"),
        ("seeds: 3\nruns: [{recipe: demo}]\n", 1, "seeds: unknown key; with `runs`, it belongs into each of them"),
        ("recipe: demo\nvariants: {a: {}}\n", 2, "with a recipe, a list of its variants' names"),
        ("recipe: demo\nseeds: [1, 1]\n", 2, "different numbers from 0"),
        ("recipe: demo\nseeds: [1]\nfirst_seed: 3\n", 3, "first_seed needs a number of seeds"),
        ("recipe: demo\nvariants: [counting]\ngrid: {ids: [sequential, {name: sequential}]}\n", 3, "are the same run"),
        ("recipe: demo\nwhen:\n  - {if: {ids: cupled}, set: {train.steps: 3}}\n", 3, "holds for none of the runs"),
        ("recipe: demo\nexcept:\n  - {variant: x}\n", 3, "holds for none of the runs"),
        ("recipe: demo\nexcept:\n  - {task: parity_scratchpad}\n", 2, "except leaves out every run"),
        # found by looking at samples and models, not by reading
        (
            "recipe: demo\nvariants: [counting]\ngrid:\n  ids:\n    - sequential\n    - {name: coupled, max_id: 4}\n",
            6,
            "max_id=4 is too small",
        ),
        (
            "recipe: demo\nwhen:\n  - if: {variant: aligned}\n    set:\n      ids.max_id: 4\n",
            3,
            "max_id=4 is too small",
        ),
        ("recipe: demo\nseeds: 2\nstack: 2\nmodel: {encoding: shaw}\n", 1, "Shaw cannot be stacked"),
    ],
)
def test_a_mistake_is_told_with_its_line(tmp_path, text, line, told):
    found = mistakes(tmp_path, text)
    assert any(number == line and told in text for number, text in found), found


@pytest.mark.parametrize("text", ["a: !!python/object/apply:os.system [ls]\n", "a: [\n", "- 3\n", "a: &a [*a]\n"])
def test_what_is_no_plain_yaml_is_refused(tmp_path, text):
    with pytest.raises(BadInput, match=r"sweep\.yaml"):
        plan_of(tmp_path, text)


def test_runs_that_do_not_fit_into_this_machine_are_named_before_any_starts(tmp_path, monkeypatch):
    monkeypatch.setattr(capacity, "total_memory", lambda device: 8 * 10**9)
    plan = make_plan(write(tmp_path / "sweep.yaml", {**TINY, "grid": {"train.batch_size": [4, 100_000_000]}}))
    check_plan(plan, tmp_path / "out")  # elsewhere there may be more
    with pytest.raises(BadInput, match=r"training \(.* for a batch\) needs about .*batch_size=100000000\)"):
        check_plan(plan, tmp_path / "out", device="cpu")
    assert device_here("local", Resources(gpus=0.0)) == "cpu"
    assert device_here("ray", Resources(gpus=0.0)) is None


def test_a_run_that_was_started_with_other_settings_is_refused(tmp_path):
    from longreach.runs import gather_info

    plan = make_plan(write(tmp_path / "sweep.yaml", TINY))
    (run,) = plan.runs
    run.folder(tmp_path / "out").create(run.variation.config, gather_info("x", "", "", 0, "cpu"))
    check_plan(plan, tmp_path / "out")
    changed = {**TINY, "train": {**TINY["train"], "steps": 9}}
    with pytest.raises(BadInput, match=r"was started with train\.steps=6, now asked for 9"):
        check_plan(make_plan(write(tmp_path / "sweep.yaml", changed)), tmp_path / "out")


@pytest.mark.parametrize("change", ["task: copy", "grid: {task: [copy]}"])
def test_a_title_is_that_of_the_task_in_use(tmp_path, change):
    demo, ids = load_recipe("demo"), "ids: sequential\nvariants: [counting]"
    titles = [variation.title for variation in plan_of(tmp_path, f"recipe: demo\n{ids}\n{change}\n").variations]
    assert titles == ["copy, changed from demo"]
    (same,) = plan_of(tmp_path, f"recipe: demo\n{ids}\ntask: {{order: forward}}\n").variations
    assert same.title == demo.title
    (mine,) = plan_of(tmp_path, f"recipe: demo\ntitle: Mine\n{ids}\n{change}\n").variations
    assert mine.title == "Mine"
