"""Grids, lists, conditions and names, by their properties."""

import itertools
import random

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from longreach.config import merge, nested
from longreach.sweeps.expand import AxisValue, SettingsCondition, When, combinations, settle
from longreach.sweeps.names import is_folder_name, variation_name

PATHS = ["ids", "ids.max_id", "model.layers", "train.optimizer.lr", "train.steps"]
SCALARS = st.one_of(
    st.integers(-5, 10**6),
    st.floats(allow_nan=False, allow_infinity=False, width=32),
    st.booleans(),
    st.text("abAB01.,:/ =-_%", min_size=1, max_size=12),
)
VALUES = st.one_of(
    SCALARS,
    st.lists(st.integers(0, 9), max_size=3),
    st.fixed_dictionaries({"name": st.text("abc", min_size=1), "max_id": st.integers(0, 99)}),
)
GRIDS = st.dictionaries(st.sampled_from(PATHS), st.lists(VALUES, min_size=1, max_size=3, unique_by=repr), max_size=3)


def choices(grid):
    return {path: [AxisValue(path, value, ()) for value in values] for path, values in grid.items()}


def names(grid):
    return [variation_name("v", combination) for combination in combinations(choices(grid), [])]


@given(GRIDS, st.lists(st.dictionaries(st.just("evaluate.samples"), st.integers(1, 9), min_size=1), max_size=2))
def test_a_grid_with_a_list_is_their_product(grid, listed):
    found = combinations(choices(grid), [[AxisValue(p, v, ()) for p, v in entry.items()] for entry in listed])
    naive = [
        {**dict(zip(grid, values, strict=True)), **entry}
        for entry in (listed or [{}])
        for values in itertools.product(*grid.values())
    ]
    assert sorted(map(repr, ({c.path: c.value for c in one} for one in found))) == sorted(
        repr(dict(sorted(one.items()))) for one in naive
    )


@given(GRIDS, st.randoms(use_true_random=False))
def test_names_do_not_depend_on_the_order_of_the_file(grid, shuffler):
    again = {
        path: shuffler.sample(values, len(values)) for path, values in shuffler.sample(list(grid.items()), len(grid))
    }
    assert sorted(names(again)) == sorted(names(grid))


@given(GRIDS)
def test_names_stay_when_values_are_added(grid):
    more = {path: [*values, "new value"] for path, values in grid.items()}
    assert set(names(grid)) <= set(names(more))


@given(GRIDS)
def test_names_differ_and_are_names_of_folders(grid):
    """Values that are written alike, such as 1 and 1.0, are one setting and share their name."""

    def written(value):
        if isinstance(value, float) and value.is_integer():
            return str(int(value))
        return value if isinstance(value, str) else yaml.safe_dump(value)

    for values in grid.values():
        values[:] = {written(value): value for value in values}.values()
        values[:] = [v for v in values if not isinstance(v, str) or (written(v) == v and _is_text(v))]
    found = names(grid)
    assert len(set(found)) == len(found)
    for name in found:
        assert "/" not in name
        assert name not in ("", ".", "..")
        assert len(name.encode()) <= 160


def _is_text(value: str) -> bool:
    """Whether it would be read as text, and not as the number or truth value that it looks like."""
    return isinstance(yaml.safe_load(f"[{value!r}]")[0], str) and not value.replace(".", "").lstrip("-").isdigit()


def test_names_say_what_is_varied():
    made = [AxisValue("ids", {"name": "coupled", "max_id": 200}, ()), AxisValue("train.optimizer.lr", 1e-3, ())]
    assert variation_name("aligned", tuple(made)) == "aligned,ids=coupled,ids.max_id=200,train.optimizer.lr=0.001"
    assert variation_name("", ()) == ""
    lengths = variation_name("", (AxisValue("evaluate.lengths", "20:500:20", ()),))
    assert lengths.startswith("evaluate.lengths=20-500-20-")
    assert lengths != variation_name("", (AxisValue("evaluate.lengths", "20-500-20", ()),))
    assert len(variation_name("", tuple(AxisValue(f"task.{'x' * 40}{n}", n, ()) for n in range(9)))) == 160


@pytest.mark.parametrize("name", ["..", "a/b", "", ".", "a b", "/x", 3, None, "ä"])
def test_what_leads_out_of_a_folder_is_no_name(name):
    assert not is_folder_name(name)


@given(st.dictionaries(st.sampled_from(PATHS[1:]), st.integers(0, 9)), st.randoms(use_true_random=False))
def test_settings_do_not_depend_on_the_order_of_axes(values, shuffler):
    combination = tuple(AxisValue(path, value, ()) for path, value in values.items())
    mixed = tuple(random.Random(shuffler.random()).sample(combination, len(combination)))
    base = {"ids": {"name": "coupled", "max_id": 3}}
    naive = base
    for path, value in values.items():
        naive = merge(naive, nested(path, value))
    assert settle("", base, mixed, [])[0] == settle("", base, combination, [])[0] == naive


def test_a_setting_of_a_part_lies_on_top_of_the_choice_of_the_part():
    combination = (AxisValue("ids.max_id", 7, ()), AxisValue("ids", "pose", ()))
    assert settle("", {"ids": "sequential"}, combination, [])[0] == {"ids": {"name": "pose", "max_id": 7}}


@pytest.mark.parametrize(
    ("wanted", "holds"),
    [
        ({"ids": "coupled"}, True),
        ({"ids.name": "coupled"}, True),
        ({"ids": {"name": "coupled", "max_id": 5}}, True),
        ({"ids": ["pose", "coupled"]}, True),
        ({"ids": "pose"}, False),
        ({"ids.max_id": [4, 5]}, True),
        ({"model.encoding.name": "rope"}, True),
        ({"model.position_head": None}, True),
        ({"variant": "a"}, True),
        ({"variant": ["b", "c"]}, False),
        ({"ids": "coupled", "train.steps": 3}, False),
    ],
)
def test_conditions(wanted, holds):
    settings = {"ids": {"name": "coupled", "max_id": 5}, "model": {"encoding": "rope"}, "train": {"steps": 2}}
    assert SettingsCondition(wanted, ()).holds("a", settings) is holds


def test_a_later_when_sees_what_an_earlier_one_set():
    whens = [
        When(SettingsCondition({"ids": "coupled"}, (1,)), {"train.steps": 5}),
        When(SettingsCondition({"train.steps": 5}, (2,)), {"model.layers": 3}),
        When(SettingsCondition({"ids": "pose"}, (3,)), {"model.layers": 9}),
    ]
    settings, held = settle("", {"ids": "coupled"}, (), whens)
    assert settings == {"ids": "coupled", "train": {"steps": 5}, "model": {"layers": 3}}
    assert [when.condition.place for when in held] == [(1,), (2,)]
