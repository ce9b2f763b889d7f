"""Figures for papers: no empty panel, no label over another, one colour per variant, the same bytes on every call."""

import json
import re
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path

import matplotlib
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from synthetic_results import CARD, RATES
from synthetic_results import make_result as _result
from synthetic_results import make_wrong as _wrong
from synthetic_runs import make_runs

import longreach as lr
from longreach.cli.main import main
from longreach.errors import BadInput
from longreach.evaluation import Loss
from longreach.reports import FIGURES, FigureConfig, load_results
from longreach.reports.axes import length_axis, limit_lengths, make_panels
from longreach.reports.errors_figure import errors_figure
from longreach.reports.figures import coverage_figure, reach_figure, styles
from longreach.reports.heatmap_figure import heatmap_figure
from longreach.reports.paper import draw_figure
from longreach.reports.style import as_svg
from longreach.reports.text import losses_figure

RESULTS = Path(__file__).parents[2] / "results"
SEEDS = [_result(variant, seed) for variant in RATES for seed in (0, 1)]
SWEPT = [
    replace(_result(variant), scores=[score for k in (1, 2) for score in _result(variant, k=k).scores])
    for variant in RATES
]
WRONG = [_wrong("a", 3, 5, {0: 5, 3: 3}), _wrong("b", 1, 0, {2: 1}, ids=False)]
LOSSES = [
    replace(_result("a"), scores=[], losses=[Loss(0, "context", size, 2.0, 1.9, 2.1, 64, 8) for size in (16, 64, 256)])
]
DRAWN = {
    "reach": lambda size: reach_figure(SEEDS, size=size),
    "reach of one seed": lambda size: reach_figure(SEEDS[::2], size=size),
    "reach by k": lambda size: reach_figure(SWEPT, panels="k", size=size),
    "reach of settings": lambda size: reach_figure(SWEPT, size=size),
    "heatmap": lambda size: heatmap_figure(SEEDS, size=size),
    "heatmap by k": lambda size: heatmap_figure(SWEPT, x="k", y="length", size=size),
    "errors": lambda size: errors_figure(WRONG, size),
    "coverage": lambda size: coverage_figure(SEEDS, size),
    "losses": lambda size: losses_figure(LOSSES, "", size),
}


def _axes_with_data(figure: Figure):
    """Assert that every panel shows something, and return all of them."""
    for axes in figure.axes:
        assert axes.has_data()
        drawn = [*axes.lines, *axes.collections, *axes.patches]
        assert any(len(part.get_paths() if hasattr(part, "get_paths") else part.get_path().vertices) for part in drawn)
    return figure.axes


def _boxes(figure: Figure, axis):
    """Return the bounding boxes of the tick labels that are drawn."""
    renderer = FigureCanvasAgg(figure).get_renderer()
    low, high = sorted(axis.get_view_interval())
    ticks = [tick for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
    return [
        tick.label1.get_window_extent(renderer)
        for tick in ticks
        if tick.label1.get_visible() and tick.label1.get_text()
    ]


def _assert_apart(figure: Figure) -> None:
    figure.draw_without_rendering()
    for axes in figure.axes:
        boxes = _boxes(figure, axes.xaxis)
        assert all(left.x1 < right.x0 for left, right in pairwise(sorted(boxes, key=lambda box: box.x0)))
        boxes = _boxes(figure, axes.yaxis)
        assert all(low.y1 < high.y0 + 1 for low, high in pairwise(sorted(boxes, key=lambda box: box.y0)))


@pytest.mark.parametrize("size", ["column", "page"])
@pytest.mark.parametrize("name", DRAWN)
def test_every_panel_has_data_and_labels_stand_apart(name, size):
    figure = DRAWN[name](size)
    _axes_with_data(figure)
    _assert_apart(figure)
    assert figure.get_figwidth() == {"column": 3.25, "page": 6.75}[size]
    assert {text.get_fontsize() for axes in figure.axes for text in axes.get_xticklabels()} <= {7.0}


@given(
    st.sets(st.integers(4, 40_000), min_size=1, max_size=20),
    st.sampled_from(["log", "linear", None]),
    st.integers(1, 2),
)
@settings(max_examples=12)
def test_labels_of_lengths_never_touch(lengths, scale, panels):
    lengths = sorted(lengths)
    figure, axes = make_panels(panels, "page")
    for axis in axes:
        axis.plot(lengths, lengths)
        limit_lengths(axis, lengths, scale)
        length_axis(axis, lengths, scale)
    _assert_apart(figure)
    assert all({*axis.get_xticks()} <= {*lengths} for axis in axes)
    assert axes[0].get_xticks()[0] == lengths[0]


def test_large_lengths_are_readable():
    figure, (axis,) = make_panels(1, "page")
    lengths = [1000, 10_000, 1_000_000]
    limit_lengths(axis, lengths, None)
    length_axis(axis, lengths)
    figure.draw_without_rendering()
    assert [text.get_text() for text in axis.get_xticklabels()] == ["1000", "10,000", "1,000,000"]


def test_many_curves_can_be_told_apart():
    names = ["pose-top", "pose-softmax", "pose", "oracle (one pass)", "oracle-softmax (one pass)", *map(str, range(12))]
    found = styles(names)
    assert list(found) == names
    assert len({tuple(style.values()) for style in found.values()}) == len(names)
    assert found["pose"]["color"] == found["pose-softmax"]["color"] != found["oracle (one pass)"]["color"]
    assert found["oracle (one pass)"]["color"] == found["oracle-softmax (one pass)"]["color"]
    assert found["pose"]["linestyle"] == "-" != found["pose-softmax"]["linestyle"]
    assert found["pose"]["marker"] != found["oracle (one pass)"]["marker"]


def _colours(figure: Figure) -> dict[str, str]:
    return {
        handle.get_label(): to_hex(handle.get_color())
        for legend in figure.legends
        for handle in legend.legend_handles
        if hasattr(handle, "get_color")
    }


def test_a_variant_keeps_its_colour_in_a_report_on_a_part_of_a_recipe():
    recipe = tuple(RATES)
    whole = [_result(variant, variants=recipe) for variant in RATES]
    first = _colours(reach_figure(whole))
    for part in (whole[1:], whole[2:], whole[::2]):
        colours = _colours(reach_figure(part))
        assert colours == {name: first[name] for name in (*(r.variant for r in part), "chance")}
    wrong = [_wrong("b", 1, 0, {2: 1}), _wrong("a", 1, 0, {2: 1})]
    in_errors = _colours(errors_figure([replace(result, variants=recipe) for result in wrong]))
    assert in_errors == {f"{name} (1 wrong)": first[name] for name in ("a", "b")}
    in_panels = coverage_figure([replace(result, variants=recipe) for result in whole[1:]])
    assert [to_hex(axes.patches[0].get_facecolor()) for axes in in_panels.axes] == [first["a-softmax"], first["b"]]


def test_every_curve_of_every_panel_is_in_the_legend():
    uneven = [*SWEPT[:1], replace(SWEPT[2], scores=_result("b", k=3).scores)]
    (legend,) = reach_figure(uneven).legends
    names = [text.get_text() for text in legend.get_texts()]
    assert names == ["k=1", "k=2", "k=3", "training lengths", "chance"]


def test_the_legend_covers_no_panel():
    for size in ("column", "page"):
        figure = reach_figure([_result(f"variant number {n}", rate=5 * n) for n in range(12)], size=size)
        figure.draw_without_rendering()
        (legend,) = figure.legends
        assert legend.get_window_extent().y1 <= figure.axes[0].get_window_extent().y0
        assert legend.get_window_extent().width <= figure.get_window_extent().width


def test_training_range_intervals_and_chance_are_drawn():
    axes = reach_figure(SEEDS[:1]).axes[0]
    assert axes.patches[0].get_x() + axes.patches[0].get_width() == 20
    assert any(0.25 in line.get_ydata() for line in axes.lines)
    assert len(axes.collections) == 1  # the interval of one seed
    low, _ = SEEDS[0].scores[0].interval()
    assert low in axes.collections[0].get_paths()[0].vertices[:, 1]
    several = reach_figure(SEEDS[:2]).axes[0]
    assert not several.collections
    assert len(several.lines) == 2 + 1 + 1  # seeds, median, chance
    assert reach_figure(SEEDS, scale="linear").axes[0].get_xscale() == "linear"
    assert reach_figure(SEEDS, scale="log").axes[0].get_xscale() == "log"


def test_a_heat_map_shows_medians_and_never_mixes_questions():
    figure = heatmap_figure([_result("a", seed, rate=rate) for seed, rate in enumerate((90, 50, 10))])
    assert [text.get_text() for text in figure.axes[0].texts] == [".50", ".49", ".48"]
    by_k = heatmap_figure(SWEPT)  # k makes panels of its own accord
    assert [axes.get_title() for axes in by_k.axes[:-1]] == ["k = 1", "k = 2"]
    several = [
        replace(
            result,
            scores=[replace(score, overrides={"k": "1", "hops": hops}) for score in result.scores for hops in "12"],
        )
        for result in SEEDS
    ]
    with pytest.raises(BadInput, match="scores that differ in hops meet in one cell"):
        heatmap_figure(several, x="k", y="variant")


def test_only_kinds_of_errors_that_were_counted_have_a_panel():
    titles = [axes.get_title() for axes in errors_figure(WRONG).axes]
    assert titles == ["IDs right, given the true prefix", "place of the first error", "first error was an ID"]
    assert [text.get_text() for text in errors_figure(WRONG).axes[2].texts] == ["5 of 8"]
    assert [axes.get_title() for axes in errors_figure(WRONG[1:]).axes] == ["place of the first error"]
    assert errors_figure(SEEDS) is None
    inside = [replace(score, length=20) for score in WRONG[1].scores]
    assert errors_figure([replace(WRONG[1], scores=inside)]) is None  # nothing is wrong beyond training


def test_one_wrong_answer_is_drawn_with_its_count_and_a_wide_interval():
    figure = errors_figure(WRONG[1:])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["b (1 wrong)"]
    band = figure.axes[0].collections[0].get_paths()[0].vertices[:, 1]
    assert band.max() - band.min() > 0.7


def test_names_of_files_are_no_formulas():
    figure = reach_figure([_result("$a$ & _b_ \x1b[31m", rate=50), _result("\u202e$", rate=20)])
    svg = as_svg(figure)
    assert "$a$ &amp; _b_ \\x1b[31m" in svg
    assert "\\u202e$" in svg


FORMS = [".pdf", ".svg", ".png"]
COMMITTED = {
    "reach": ["parity_small.csv"],
    "heatmap": ["parity_small.csv", "--figure", "heatmap", "--y", "length", "--x", "variant"],
    "errors": ["parity_small.csv", "--figure", "errors", "--size", "column"],
    "coverage": ["tape.json", "--figure", "coverage"],
}


def _check_form(path):
    content = path.read_bytes()
    assert content.startswith({".pdf": b"%PDF", ".svg": b"<?xml", ".png": b"\x89PNG"}[path.suffix])
    if path.suffix == ".pdf":
        assert b"/FontFile2" in content
        assert b"/Type3" not in content
        assert b"/CreationDate" not in content
    if path.suffix == ".svg":
        assert b"<text" not in content  # letters are outlines


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", COMMITTED)
def test_figures_of_committed_files_in_every_form(name, form, tmp_path, capsys):
    file, *options = COMMITTED[name]
    path = tmp_path / f"x{form}"
    assert main(["report", str(RESULTS / file), *options, "--out", str(path)]) == 0
    assert capsys.readouterr().out == f"{form[1:]:5} {path}\n"
    assert list(tmp_path.iterdir()) == [path]
    _check_form(path)


def test_a_committed_sweep_has_a_panel_for_each_k():
    results, _ = load_results([RESULTS / "planted.csv"])
    titles = [f"k = {k}" for k in range(1, 9)]
    for config in (FigureConfig(panels="k"), FigureConfig(figure="heatmap", panels="k")):
        figure, _ = draw_figure(results, config)
        assert [axes.get_title() for axes in _axes_with_data(figure)][:8] == titles
        _assert_apart(figure)


def test_the_same_figure_has_the_same_bytes(tmp_path):
    for form in FORMS:
        for name in "ab":
            lr.report(RESULTS / "parity_small.csv", out=tmp_path / f"{name}{form}", size="column")
        assert (tmp_path / f"a{form}").read_bytes() == (tmp_path / f"b{form}").read_bytes()


def test_runs_have_figures_of_training_and_of_their_settings(tmp_path):
    for folder in make_runs(tmp_path / "runs", 6, seeds=2):
        (folder / "card.json").write_text(json.dumps(asdict(CARD)))
    results, _ = load_results([tmp_path / "runs"])
    for config in (
        FigureConfig(figure="training"),
        FigureConfig(figure="heatmap", y="model.width"),
        FigureConfig(panels="model.width", metric="token_accuracy"),
    ):
        figure, notes = draw_figure(results, config)
        _axes_with_data(figure)
        assert notes == []
    assert [axes.get_title() for axes in figure.axes] == [f"model.width = {width}" for width in (64, 128, 192)]


def test_a_figure_of_many_variants_says_which_it_shows():
    figure, notes = draw_figure([_result(f"v{n}", rate=n) for n in range(40)], FigureConfig())
    assert notes == ["the figure shows the first 24 of 40 variants"]
    assert len(figure.legends[0].get_texts()) == 24 + 2


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--out", "x.docx"], "x.docx: a report is a folder or a file that ends in .html, .pdf, .svg, .png"),
        (["--out", "no/x.pdf"], "no/x.pdf: there is no folder no"),
        (["--out", "taken"], "taken is a file"),
        (["--figure", "errors"], "--figure concerns one figure: name a .pdf, .svg or .png in --out"),
        (["--size", "page", "--out", "x.html"], "--size concerns one figure"),
        (["--figure", "pie", "--out", "x.pdf"], "unknown --figure pie: choose reach, heatmap, errors, mass"),
        (["--size", "a4", "--out", "x.pdf"], "unknown --size a4: choose column or page"),
        (["--scale", "ln", "--out", "x.pdf"], "unknown --scale ln: choose log or linear"),
        (["--figure", "heatmap", "--scale", "log", "--out", "x.pdf"], "--figure heatmap does not use --scale"),
        (["--figure", "errors", "--metric", "m", "--x", "k", "--out", "x.pdf"], "does not use --metric, --x"),
        (
            ["--metric", "token_em", "--out", "x.pdf"],
            "there is no metric 'token_em'; there are token_em_tf, token_em_free",
        ),
        (["--panels", "kk", "--out", "x.pdf"], "there is no field 'kk'; there are length, variant"),
        (["--panels", "length", "--out", "x.pdf"], "length is the axis of this figure"),
        (["--figure", "heatmap", "--x", "variant", "--out", "x.pdf"], "a heat map needs different fields"),
        (["--figure", "training", "--out", "x.pdf"], "only folders of runs have a training log"),
        (["--figure", "coverage", "--out", "x.pdf"], "no result has an information card"),
        (["--figure", "losses", "--out", "x.pdf"], "no result has losses of texts"),
        (["--figure", "mass", "--out", "x.pdf"], "no result has measures of attention"),
    ],
)
def test_each_mistake_has_one_line(tmp_path, monkeypatch, capsys, arguments, complaint):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").write_text("")
    assert main(["report", str(RESULTS / "parity_small.csv"), *arguments]) == 2
    error = capsys.readouterr().err
    assert complaint in error
    assert error.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_settings_that_a_figure_does_not_use_are_refused():
    names = [name for name in FigureConfig.__dataclass_fields__ if name != "figure"]
    values = {"size": "page", "scale": "log"}
    for kind, used in FIGURES.items():
        for name in set(names) - set(used):
            with pytest.raises(BadInput, match=f"figure='{kind}' does not use {name}"):
                draw_figure(SEEDS, FigureConfig(figure=kind, **{name: values.get(name, "k")}))


def test_a_report_on_a_file_goes_into_the_working_folder(tmp_path, monkeypatch, capsys):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "mine.csv").write_text((RESULTS / "parity_small.csv").read_text())
    monkeypatch.chdir(tmp_path)
    report = lr.report("data/mine.csv")
    assert report.html == Path("mine-report/report.html")
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["mine.csv"]
    names = {path.name for path in Path("mine-report").iterdir()}
    assert names == {"accuracy.png", "errors.png", "report.html", "scores.csv"}
    assert lr.report("data/mine.csv", out="page.html") == Path("page.html")
    assert "<html" in Path("page.html").read_text()
    assert main(["report", "data/mine.csv", "--out", "x.svg", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"runs": 3, "unfinished": 0, "svg": "x.svg"}


def test_files_and_runs_may_be_mixed(tmp_path):
    for folder in make_runs(tmp_path / "runs", 2, seeds=2):
        (folder / "card.json").write_text(json.dumps(asdict(CARD)))
    lr.report(RESULTS / "tape.json", tmp_path / "runs", out=tmp_path / "x.svg", metric="token_em_tf")
    titles = re.findall("<!-- (.*?) -->", (tmp_path / "x.svg").read_text())
    assert {"tape", "v0"} <= {*titles}
    assert matplotlib.rcParams["font.size"] == 10  # no setting leaks
