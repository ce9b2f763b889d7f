"""Pictures and the page of probes."""

import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
import torch
from helpers import TINY, execute_in
from probes import probed
from rich.console import Console

from longreach.api import EvalConfig, Lengths, ParityScratchpad, RunConfig, Span, TrainConfig
from longreach.cli.main import main
from longreach.cli.probe_report_table import probe_table
from longreach.errors import BadInput
from longreach.probe.summary import summarise
from longreach.reports import find_probes, write_probe_report
from longreach.reports.probe_figures import (
    faithfulness_figure,
    goes_with_figure,
    kinds_figure,
    sufficiency_figure,
    survival_figure,
    weights_figure,
)
from longreach.reports.probe_page import page_data, render_probe_page


class _Tags(HTMLParser):
    """What a browser would make of a page: its tags, and the text of its scripts."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.scripts = [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data):
        if self.tags and self.tags[-1][0] == "script":
            self.scripts[-1] += data


EVIL = ("</script><b>", "<!--", " &amp;", "\u2028", "</title><i>", "'\"")


def test_no_text_breaks_out_of_the_page():
    calm = _Tags(render_probe_page([probed("a", ("x",) * 6)], {}, "title"))
    evil = _Tags(render_probe_page([probed("</script><b>", EVIL)], {}, "</title><script>alert(1)</script>"))
    assert evil.tags == calm.tags
    (text,) = json.loads(evil.scripts[0])
    assert (text["title"], tuple(text["pieces"])) == ("</script><b>", EVIL)


def test_the_page_needs_nothing_else():
    page = render_probe_page([probed()], {"k": survival_figure(summarise([probed()]))}, "title")
    assert not re.search(r"<link|<img[^>]+src=\"http|@import|url\(http|fetch\(|XMLHttp|<script[^>]+src", page)
    assert not [tag for tag, attributes in _Tags(page).tags if "src" in attributes]


def test_the_page_holds_the_strongest_weights_with_their_signs():
    data = page_data(probed(), "all")
    assert data["sources"] == [[[1, 2.0]], [[3, 1.5], [2, -1.0], [1, 0.05]], []]
    assert data["facts"]["k_sufficient"] == [1, 2, -1]
    assert data["facts"]["faithfulness"][2] is None
    assert page_data(probed(), "masks 64")["title"] == "six tokens (masks 64)"
    unsure = replace(probed(), noise=torch.tensor([0.1, 0.4, 0.1]))
    assert page_data(unsure, "all")["sources"][1] == [[3, 1.5]]  # the others may be noise
    t = 200
    long = replace(
        probed(),
        pieces=(" a",) * t,
        tokens=torch.zeros(t, dtype=torch.long),
        weights=torch.arange(3 * t).reshape(3, t).float(),
        always=torch.zeros(3, t, dtype=torch.bool),
    )
    assert [place for place, _ in page_data(long, "all")["sources"][0]] == list(range(t - 1, t - 41, -1))


def first_targets(count):
    names = ("targets", "loss", "entropy", "weights", "always", "loss_at", "faithfulness")
    return {name: getattr(probed(), name)[:count] for name in names}


ALL_ZERO = replace(probed(), weights=torch.zeros(3, 6))
NEVER_ENOUGH = replace(probed("never"), loss_at=torch.full((3, 3), 9.0), faithfulness=torch.full((3,), float("nan")))
ONE_TARGET = replace(probed(), **first_targets(1))
MORE_MASKS = replace(probed("another"), settings=replace(probed().settings, masks=512))
DOLLARS = probed("$", (r"$\x", "$$", "\n", "\t", " ", "_^"))


@pytest.mark.parametrize(
    "probes",
    [[ONE_TARGET], [ALL_ZERO, NEVER_ENOUGH, DOLLARS], [probed(), MORE_MASKS]],
    ids=["one target", "odd ones", "by masks"],
)
def test_every_figure_can_be_drawn(probes):
    rows = summarise(probes)
    for draw in (survival_figure, kinds_figure, goes_with_figure, sufficiency_figure):
        assert draw(rows).axes
    assert faithfulness_figure(probes, rows).axes
    assert weights_figure(probes[0]).axes


def test_signs_of_mathematics_in_a_text_are_drawn_as_they_are():
    weights_figure(DOLLARS).draw_without_rendering()


def test_curves_are_the_shares_that_need_more():
    (weights, *_) = survival_figure(summarise([probed()])).axes
    places, left = weights.lines[0].get_data()
    assert dict(zip(places, left, strict=True)) == pytest.approx({0: 2 / 3, 1: 1 / 3, 2: 0, 3: 0, 4: 0, 6: 0})


def test_a_report_is_made_from_folders(tmp_path, capsys):
    probed().save(tmp_path / "out" / "one")
    probed("two").save(tmp_path / "out" / "two")
    assert [folder.name for folder in find_probes([tmp_path, tmp_path / "out"])] == ["one", "two"]
    assert main(["report", str(tmp_path / "out"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["texts"] == 2
    assert all((tmp_path / "out" / "report" / f"{name}.png").exists() for name in ("k", "kinds", "weights"))
    assert "six tokens" in (tmp_path / "out" / "report" / "probe.html").read_text()


def test_the_table_tells_each_group_once():
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(probe_table(summarise([probed(), MORE_MASKS, NEVER_ENOUGH])))
    told = console.export_text()
    assert told.count("masks 256") == told.count("masks 512") == 1
    assert told.count("faithfulness (LDS)") == 2
    assert "…" not in told
    assert "2..more" in told  # than any that was tried


def test_runs_and_probes_are_not_mixed(tmp_path, capsys):
    config = RunConfig(
        task=ParityScratchpad(),
        model=TINY,
        train=TrainConfig(lengths=Span(1, 4), steps=1, batch_size=2),
        evaluate=EvalConfig(lengths=Lengths((2,)), samples=2, free_samples=1),
    )
    execute_in(tmp_path / "run", config)
    probed().save(tmp_path / "probe")
    assert main(["report", str(tmp_path)]) == 2
    assert "both runs and probes" in capsys.readouterr().err


def test_a_report_without_predictions_is_refused(tmp_path):
    replace(probed(), **first_targets(0)).save(tmp_path)
    with pytest.raises(BadInput, match="no prediction was probed"):
        write_probe_report([tmp_path], tmp_path / "report")
