"""Recipes: what is built, and what every mistake is told."""

import subprocess
import sys

import pytest

from longreach.api import RecurrentConfig, TransformerConfig
from longreach.config import build, dump_yaml, merge, nested, read_value, read_yaml, to_plain, yaml_lines
from longreach.config import yaml_files as config
from longreach.config.registry import lookup, register
from longreach.config.spans import Lengths, Span
from longreach.errors import BadInput
from longreach.runs import RunConfig, load_recipe, parse_recipe
from longreach.runs.preset import load_preset

BASE = {"task": "sparse_parity"}


def test_a_built_config_survives_being_written_and_read(tmp_path):
    task = {"name": "planted", "k": 3, "q_pos": {"name": "window", "width": 5}, "g_star": {"name": "sum_mod", "p": 3}}
    config = build(
        RunConfig, {"task": task, "ids": {"name": "pose", "max_id": 99}, "evaluate": {"lengths": "10:30:10"}}
    )
    path = tmp_path / "config.yaml"
    path.write_text(dump_yaml(to_plain(config)))
    assert build(RunConfig, read_yaml(path)) == config


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"task": "sparse_parit"}, "task: unknown task 'sparse_parit'; did you mean sparse_parity"),
        ({"task": {"name": "sparse_parity", "kk": 3}}, "task.kk: unknown key; did you mean k?"),
        ({"task": {"name": "sparse_parity", "k": "x"}}, "task.k: expected a whole number or a range"),
        ({"task": {"name": "sparse_parity", "k": 0}}, "sparse_parity.k must be at least 1, got 0"),
        ({"task": {"name": "sparse_parity", "k": "5..2"}}, "task.k: a range must not fall: 5..2"),
        ({"task": {"name": 3}}, "task: expected a name"),
        ({"task": ".x"}, "task: cannot import task '.x'"),
        ({"evaluate": {"axes": {"k": []}}}, "evaluate.axes.k has no values"),
        ({"evaluate": {"axes": {"k": [4, 2, "4"]}}}, "evaluate.axes.k has the value 4 twice"),
        ({"evaluate": {"axes": {"seed": [4]}}}, "evaluate.axes.seed: tables of scores have a column seed"),
        (
            {"task": {"name": "planted", "g_star": {"name": "table", "vocab_size": 2, "classes": [0, 1, 1, 0]}}},
            "a table over 2 tokens for a vocabulary of 4",
        ),
        ({"task": "no_module.Thing"}, "task: cannot import task 'no_module.Thing'"),
        ({"task": "longreach.config.registry.lookup"}, "is not a class"),
        ({"task": "longreach.config.spans.Span"}, "is not a Task"),
        (
            {"task": {"name": "planted", "q_pos": "windo"}},
            "task.q_pos: unknown position_law 'windo'; did you mean window",
        ),
        ({"task": {"name": "planted", "mu": {"name": "uniform", "high": 9}}}, "token 9 is outside a vocabulary of 4"),
        ({"task": {"name": "planted", "q_pos": {"name": "gaps", "gaps": [1, 2]}}}, "k=2 needs 1 gaps"),
        ({"task": {"name": "variable_assignment", "scratchpad": "no"}}, "task.scratchpad: expected bool, got 'no'"),
        ({"task": {"name": "variable_assignment", "query_id": "x"}}, "task.query_id: unknown value 'x'"),
        ({"task": {"name": "variable_assignment", "num_names": 4}}, "num_names=4 is too few"),
        ({"train": {"steps": 0}}, "train.steps must be at least 1, got 0"),
        ({"train": {"steps": 2.5}}, "train.steps: expected int, got 2.5"),
        ({"train": {"stpes": 2}}, "train.stpes: unknown key; did you mean steps?"),
        ({"train": {"optimizer": {"lr": "high"}}}, "train.optimizer.lr: expected float, got 'high'"),
        (
            {"train": {"batch_size": 10}, "execution": {"accumulate": 4}},
            "does not split into 4 parts (execution.accumu",
        ),
        ({"train": 3}, "train: expected a mapping of settings, got 3"),
        ({"model": {"heads": 3}}, "model.width=256 does not split into 3 heads"),
        ({"model": {"encoding": {"name": "rope", "fraction": 2}}}, "rope.fraction must be in (0, 1], got 2.0"),
        ({"ids": {"name": "pose"}}, "pose.max_id must be at least 1, got 0"),
        ({"ids": {"name": "coupled", "relabelling": "increasing"}}, "coupled.max_id must be at least 1"),
        ({"evaluate": {"lengths": "20:10"}}, "evaluate.lengths: lengths must not fall: '20:10'"),
        ({"evaluate": {"lengths": "0"}}, "lengths must be whole numbers from 1"),
        ({"evaluate": {"free_samples": 99999}}, "evaluate.free_samples=99999 must be in 0..samples=1024"),
        ({"evaluate": {"relabel_ids": True}}, "set free_samples to 0"),
    ],
)
def test_every_mistake_is_one_line_that_says_where(changes, complaint):
    with pytest.raises(BadInput) as caught:
        build(RunConfig, merge(BASE, changes))
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_missing_is_named():
    with pytest.raises(BadInput, match="task is missing"):
        build(RunConfig, {})


def test_merging_replaces_a_part_that_is_named_anew():
    base = {"ids": {"name": "pose", "max_id": 9, "chunks": 3}, "train": {"steps": 1, "lr": 2}}
    merged = merge(base, {"ids": {"name": "sequential"}, "train": {"lr": 3}})
    assert merged == {"ids": {"name": "sequential"}, "train": {"steps": 1, "lr": 3}}
    assert merge(base, {"ids": {"chunks": 2}})["ids"] == {"name": "pose", "max_id": 9, "chunks": 2}
    assert merge({"axes": {"k": [1]}}, {"axes": {}}) == {"axes": {}}
    assert merge({"task": {"k": 4}}, {"task": {"name": "sparse_parity"}}) == {"task": {"k": 4, "name": "sparse_parity"}}
    assert merge({"task": "planted"}, {"task": {"k": 2}}) == {"task": {"name": "planted", "k": 2}}


def test_values_are_read_as_people_mean_them():
    assert read_value("1e-4") == 1e-4
    assert read_value("1:8") == "1:8"  # YAML 1.1 would make it 68
    assert read_value("1..8") == "1..8"
    assert read_value("1_000") == 1000
    assert read_value("08") == "08"  # YAML 1.1 would fail, and read 010 as 8
    assert read_value("true") is True
    assert read_value("[1, 2]") == [1, 2]
    assert read_value("{") == "{"
    assert nested("a.b", 1) == {"a": {"b": 1}}


_LAUGHS = "".join(f"k{n}: &k{n} [{', '.join([f'*k{n - 1}'] * 9) if n else 'lol'}]\n" for n in range(9))
BAD_YAML = {
    "a key twice": "a: 1\na: 2\n",
    "no mapping": "- 1\n",
    "cut off": "a: [\n",
    "code": "a: !!python/object/apply:os.getcwd []\n",
    "deep": f"a: {'[' * 100_000}",
    "deep in blocks": "a:\n" + "".join(" " * n + "-\n" for n in range(1, 2000)),
    "deep by aliases": "a: &a0 [1]\n" + "".join(f"b{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 200)),
    "many by aliases": _LAUGHS,
    "contains itself": "a: &a [*a]\n",
    "an unknown alias": "a: *b\n",
    "many nodes": f"a: [{'1,' * 101_000}]\n",
    "a large file": "# \n" * 1_500_000,
    "no int": "a: !!int abc\n",
    "an empty int": "a: !!int ''\n",
    "no float": "a: !!float x\n",
    "no bool": "a: !!bool maybe\n",
    "no timestamp": "a: !!timestamp x\n",
    "a timestamp": "a: !!timestamp 2001-01-01\n",
    "bytes": "a: !!binary aGk=\n",
    "a set": "a: !!set {x, y}\n",
    "an unknown tag": "a: !thing 3\n",
    "a list as a key": "? [1]\n: 2\n",
    "a mapping as a key": "a: {{b: 1}: 2}\n",
    "5,000 digits": f"a: {'9' * 5000}\n",
    "more than 64 bits": f"a: {2**63}\n",
    "5,000 digits with a point": f"a: !!int {'9' * 5000}.5\n",
    "a NUL byte": "a: b\0c\n",
    "a control character": "a: b\x01c\n",
    "not UTF-8": b"a: \xff\n",
    "UTF-16": "a: 1\n".encode("utf-16"),
    "two documents": "a: 1\n---\na: 2\n",
    "empty": "",
}


@pytest.mark.parametrize("name", BAD_YAML)
def test_bad_yaml_is_one_line(tmp_path, name):
    path = tmp_path / "bad.yaml"
    text = BAD_YAML[name]
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(BadInput) as caught:
        read_yaml(path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500
    assert "bad.yaml" in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [text for text in BAD_YAML.values() if isinstance(text, str)],
    ids=[name for name, text in BAD_YAML.items() if isinstance(text, str)],
)
def test_a_flag_that_is_bad_yaml_is_text(text):
    value = read_value(text)
    assert value == text or isinstance(value, dict | list | None)


def test_a_mistake_in_a_scalar_is_told_with_its_line(tmp_path):
    path = tmp_path / "bad.yaml"
    path.write_text("a: 1\nb:\n  c: !!int abc\n")
    with pytest.raises(BadInput, match=r"bad.yaml is not valid YAML: line 3: 'abc' is not a whole number of 64 bits$"):
        read_yaml(path)


def test_keys_are_read_in_time_that_grows_with_their_number(tmp_path):
    """Comparing each key with all others would take 100 times as many comparisons as are allowed here."""
    path = tmp_path / "many.yaml"
    path.write_text("".join(f"key{n}: {n}\n" for n in range(2_000)))
    compared = 0

    class Counted(str):
        def __eq__(self, other):
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    construct = config._RecipeLoader.construct_scalar
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(config._RecipeLoader, "construct_scalar", lambda *given: Counted(construct(*given)))
        assert len(read_yaml(path)) == 2_000
    assert compared < 20 * 2_000
    assert len(yaml_lines(path)) == 2_000


def test_aliases_within_reason_are_read(tmp_path):
    path = tmp_path / "shared.yaml"
    path.write_text("a: &a {k: 1, l: [1, 2]}\nb: *a\nc: [*a, *a]\n")
    shared = {"k": 1, "l": [1, 2]}
    assert read_yaml(path) == {"a": shared, "b": shared, "c": [shared, shared]}
    assert yaml_lines(path)["c", 1, "l", 0] == 1


def test_spans_and_lengths():
    assert Span.parse("1..8") == Span(1, 8)
    assert str(Span.parse(3)) == "3"
    assert Lengths.parse("20:60:20,5").values == (5, 20, 40, 60)
    assert Lengths.parse([3, "4:5"]).values == (3, 4, 5)
    assert Lengths.parse(str(Lengths((1, 2)))) == Lengths((1, 2))
    for bad in ("a", "1:2:0", ""):
        with pytest.raises(ValueError, match="expected lengths"):
            Lengths.parse(bad)
    with pytest.raises(ValueError, match="expected a whole number"):
        Span.parse(True)


def test_variants_lie_on_the_base_and_flags_on_the_variants():
    content = {
        "task": "sparse_parity",
        "seeds": 2,
        "train": {"steps": 5},
        "variants": {"a": {}, "b": {"train": {"steps": 6}, "ids": {"name": "pose", "max_id": 70}}},
    }
    recipe = parse_recipe("r", content, {"train": {"batch_size": 4}, "first_seed": 3})
    assert recipe.seeds == (3, 4)
    assert [config.train.steps for config in recipe.variants.values()] == [5, 6]
    assert {config.train.batch_size for config in recipe.variants.values()} == {4}
    with pytest.raises(BadInput, match="seeds must be"):
        parse_recipe("r", {**content, "seeds": 0}, {})
    with pytest.raises(BadInput, match="becomes a folder"):
        parse_recipe("r", {**content, "variants": {"../x": {}}}, {})


def test_a_recipe_builds_on_a_preset_and_a_flag_replaces_all_but_task_and_lengths():
    preset = load_preset("ppc")
    content = {
        "preset": "ppc",
        "task": "copy",
        "train": {"lengths": "1..6", "steps": 7},
        "variants": {"a": {}, "b": {"ids": "sequential"}},
    }
    a, b = parse_recipe("r", content, {}).variants.values()
    assert a.ids.name == "predicted"
    assert a.train.steps == 7
    assert a.train.batch_size == preset["train"]["batch_size"]
    assert a.evaluate.lengths.values == (6, 12, 30, 60)
    assert b.ids.name == "sequential"
    other = {**content, "preset": None, "evaluate": {"lengths": "6,9"}}
    del other["preset"]
    (alone,) = parse_recipe("r", other, {"preset": "ppc", "train": {"batch_size": 4}}).variants.values()
    assert alone.ids.name == "predicted"
    assert (alone.train.steps, alone.train.batch_size) == (preset["train"]["steps"], 4)
    assert alone.train.lengths == Span(1, 6)
    assert alone.evaluate.lengths.values == (6, 9)
    with pytest.raises(BadInput, match="says nothing about lengths"):
        parse_recipe("r", {"task": "copy"}, {"preset": "ppc"})
    with pytest.raises(BadInput, match="unknown preset 'pcp'; did you mean ppc"):
        parse_recipe("r", {"task": "copy", "preset": "pcp"}, {})
    with pytest.raises(BadInput, match="name a recipe, or give --preset"):
        load_recipe(None, {"preset": "ppc"})


@pytest.mark.parametrize("change", [{"task": "copy"}, {"task": {"name": "copy", "symbols": 4}}])
def test_a_title_is_that_of_the_task_in_use(change):
    content = {"title": "Parity", "about": "Bits.", "task": "parity_scratchpad", "variants": {"a": {}, "b": {}}}
    for only in (None, ["b"]):
        changed = parse_recipe("demo", content, change, only)
        assert (changed.title, changed.about) == ("copy, changed from demo", "")
    same = parse_recipe("demo", content, {"task": {"name": "parity_scratchpad"}, "train": {"steps": 3}})
    assert (same.title, same.about) == ("Parity", "Bits.")
    assert parse_recipe("demo", {**content, "task": {"name": "copy"}}, {"task": {"symbols": 4}}).title == "Parity"
    assert parse_recipe("demo", content, {**change, "title": "Mine"}).title == "Mine"
    assert parse_recipe("demo", {"title": "Any task"}, change).title == "Any task"


def test_a_title_does_not_speak_of_other_training_lengths():
    content = {"title": "Trained on 1 to 8 bits", "about": "Bits.", "task": "parity", "train": {"lengths": "1..8"}}
    changed = parse_recipe("demo", content, {"train": {"lengths": "1..4"}})
    assert (changed.title, changed.about) == ("parity, changed from demo", "")
    same = parse_recipe("demo", content, {"train": {"lengths": "1..8", "steps": 3}})
    assert (same.title, same.about) == ("Trained on 1 to 8 bits", "Bits.")
    assert parse_recipe("demo", content, {"train": {"lengths": "1..4"}, "title": "Mine"}).title == "Mine"
    assert load_recipe("demo", {"train": {"lengths": "1..4"}}).title == "parity_scratchpad, changed from demo"


def test_the_package_hands_out_its_names_lazily():
    script = "import longreach; from longreach import Span; print(longreach.Span is Span, longreach.__version__)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.startswith("True "), done.stderr


def test_a_name_belongs_to_one_class():
    with pytest.raises(ValueError, match="already registered"):
        register("task", "planted")(type("Other", (), {}))
    with pytest.raises(BadInput, match="unknown kind"):
        lookup("tsak", "planted")


def test_changes_must_fit_only_the_variants_that_run():
    pointing = {"ids": {"name": "predicted", "max_id": 50}, "model": {"position_head": "pointer"}}
    content = {"task": "tape", "variants": {"counting": {}, "pointing": pointing}}
    changes = {"model": {"position_head": {"moves": 2}}}
    variants = parse_recipe("test", content, changes, only=["pointing"]).variants
    assert variants["pointing"].model.position_head.moves == 2
    assert variants["counting"].model.position_head is None
    with pytest.raises(BadInput, match="expected a name, or a mapping"):
        parse_recipe("test", content, changes)


def test_naming_another_model_begins_from_its_own_defaults():
    content = {"task": "tape", "model": {"layers": 2, "heads": 4}, "variants": {"plain": {}, "other": {}}}
    content["variants"]["other"] = {"model": {"name": "recurrent", "width": 32}}
    variants = parse_recipe("test", content, {}).variants
    assert variants["plain"].model == TransformerConfig(layers=2, heads=4)
    assert variants["other"].model == RecurrentConfig(width=32)
    flagged = parse_recipe("test", content, {"model": {"name": "recurrent"}}, only=["plain"]).variants
    assert flagged["plain"].model == RecurrentConfig()
