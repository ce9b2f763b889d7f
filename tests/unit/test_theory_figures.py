"""The figures the theory was announced with, as far as they take seconds."""

import pytest

from longreach.theory import err_mc
from longreach.theory.instances import margin_head, parity_task
from longreach.theory.plots import PICTURES, draw_all
from longreach.theory.reproduce import FIGURES, class_locality, dilution, fixed_schedules, margins, plan, zero_loss
from longreach.theory.types import GapTypes


def test_margins_for_a_horizon_of_400():
    rows = margins()
    assert [row["ours"] for row in rows] == pytest.approx([8.29, 10.08, 10.99, 11.28], abs=0.005)
    assert [row["horizon"] for row in rows] == [400] * 4


def test_a_diluted_head_is_at_chance():
    row = dilution()[0]
    assert row["se"] == pytest.approx(0.029, abs=0.001)
    assert row["ours"] == pytest.approx(0.488, abs=2 * 0.029)
    near = err_mc(margin_head(GapTypes(2, 6), 3.0, decided=True), parity_task(2, 6), 8, 2000)
    assert near.mean < 0.3  # before it is diluted


def test_a_zero_loss_head_has_exactly_none():
    for row in zero_loss():
        assert row["ours"] == 0
        assert row["certified"] == 0


def test_class_locality_and_schedules():
    rows = class_locality()
    assert all(row["ours"] == 0 for row in rows if row["length"] == 24 or row["extra"] == 0)
    assert rows[-1]["ours"] == pytest.approx(0.5, abs=0.001)
    assert fixed_schedules()[-1]["ours"] < 0.03


def test_what_covers_a_length():
    rows = plan()
    found = {row["law"]: row["ours"] for row in rows if str(row["figure"]).startswith("shortest")}
    assert found["6 before the query"] < found["aligned in two halves"] < found["gaps to 6"] < found["gaps to 12"]
    ranked = [row for row in rows if "place" in row]
    assert [row["ours"] for row in ranked[2:]] == ["uncovered"] * 2  # raw types do not see the first number
    assert ranked[0]["types"] == "aligned, before the query"
    assert ranked[0]["ours"] == pytest.approx(1)


def test_pictures_go_with_their_figures(tmp_path):
    drawn = draw_all({"plan": plan(), "dilution": []}, tmp_path)
    assert [path.name for path in drawn] == ["masses.png", "coverage.png", "training_lengths.png", "spans.png"]
    assert all(path.stat().st_size > 10_000 for path in drawn)
    assert {goes_with for goes_with, _ in PICTURES.values()} <= FIGURES.keys()


def test_every_figure_has_a_name():
    assert len(FIGURES) == 12
    assert all(row.keys() >= {"figure", "ours", "written"} for row in fixed_schedules())
