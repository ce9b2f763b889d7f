"""Details of figures: rates in cells, first errors, few points, long and foreign names."""

import json
from dataclasses import asdict, replace

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from synthetic_results import CARD
from synthetic_results import make_result as _result
from synthetic_results import make_wrong as _wrong
from synthetic_runs import make_runs

from longreach.evaluation import Score
from longreach.reports import FigureConfig, load_results
from longreach.reports.errors_figure import errors_figure
from longreach.reports.figures import coverage_figure, reach_figure
from longreach.reports.heatmap_figure import heatmap_figure
from longreach.reports.paper import draw_figure
from longreach.reports.style import as_svg, save_figure, save_png


def test_rates_near_the_ends_are_not_clamped():
    hits = {0: "0", 1: "<.01", 49: "<.01", 51: ".01", 600: ".06", 9930: ".99", 9949: ".99", 9990: ">.99", 10_000: "1"}
    scores = [Score(0, n, "token_em_free", count, 10_000) for n, count in enumerate(hits, start=1)]
    figure = heatmap_figure([replace(_result("a"), scores=scores)])
    assert [text.get_text() for text in figure.axes[0].texts] == [*hits.values()]


def test_rates_fit_into_the_narrowest_cells_that_have_them():
    widths = []
    for count in range(20, 40, 3):
        scores = [Score(0, n, "token_em_free", 9999, 10_000) for n in range(1, count)]
        figure = heatmap_figure([replace(_result("a"), scores=scores)])
        figure.draw_without_rendering()
        axis, renderer = figure.axes[0], FigureCanvasAgg(figure).get_renderer()
        width = axis.get_window_extent(renderer).width / len(scores)
        assert all(text.get_window_extent(renderer).width < width for text in axis.texts)
        widths += [width * 72 / figure.dpi] if axis.texts else []
    assert min(widths) < 17


def test_where_all_ids_are_right_the_axis_is_whole():
    right = [Score(0, n, "id_accuracy", 1000, 1000) for n in (20, 40)]
    low, high = errors_figure([replace(_wrong("a", 3, 5, {0: 5, 3: 3}), scores=right)]).axes[0].get_ylim()
    assert low <= 0
    assert high >= 1


def test_places_of_first_errors_skip_tenths_that_no_answer_reaches():
    short = [_wrong(f"v{n}", 4, 0, {0: 1, 3: 1, 6: 2}, ids=False) for n in range(12)]
    lines = [line for line in errors_figure(short).axes[0].lines if len(line.get_xdata())]
    assert [list(line.get_ydata()) for line in lines] == [[0.25, 0.25, 0.5]] * 12
    assert all(line.get_marker() != "None" for line in lines)
    places = [place for line in lines for place in line.get_xdata()]
    assert len(set(places)) == len(places)  # no variant hides another
    assert [sorted({int(place // 10) for place in line.get_xdata()}) for line in lines] == [[0, 3, 6]] * 12


def test_a_single_logged_loss_is_a_point(tmp_path):
    folder = make_runs(tmp_path / "runs", 1, seeds=1)[0]
    (folder / "card.json").write_text(json.dumps(asdict(CARD)))
    (run,) = load_results([tmp_path / "runs"])[0]
    figure, _ = draw_figure([replace(run, training=[(5, 0.5)])], FigureConfig(figure="training"))
    assert figure.axes[0].lines[0].get_marker() == "o"
    figure, _ = draw_figure([run], FigureConfig(figure="training"))
    assert figure.axes[0].lines[0].get_marker() == ""


@pytest.mark.filterwarnings("error")
@pytest.mark.filterwarnings("error")
def test_letters_that_the_font_lacks_warn_nobody(tmp_path):
    results = [_result(name, rate=50) for name in ("\u6f22\u5b57", "\u0e01")]
    for number, draw in enumerate((reach_figure, heatmap_figure, coverage_figure)):
        figure = draw(results)
        as_svg(figure)
        save_figure(figure, tmp_path / f"{number}.pdf")
        save_png(figure, tmp_path / f"{number}.png")


def _tick_boxes(axis, renderer):
    low, high = sorted(axis.get_view_interval())
    shown = [tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high and tick.label1.get_text()]
    return [text.get_window_extent(renderer) for text in shown if text.get_visible()]


LONG = ["a_variant_with_a_very_long_name_of_sixty_letters_number_one_x", "another one " * 5, "x" * 60]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("size", ["column", "page"])
@pytest.mark.parametrize("draw", [coverage_figure, heatmap_figure, reach_figure, errors_figure])
@pytest.mark.parametrize("names", [["a", "b", "c"], LONG])
def test_no_text_is_cut_or_overprints_a_title(draw, size, names):
    make = _wrong if draw is errors_figure else _result
    arguments = (3, 5, {0: 5, 3: 3}) if draw is errors_figure else ()
    given = {} if draw is errors_figure else {"rate": 50}
    figure = draw([make(name, *arguments, **given) for name in names], size=size)
    figure.set_dpi(72)  # that of a PDF: letters are a little wider than at 100
    figure.draw_without_rendering()
    renderer, page = FigureCanvasAgg(figure).get_renderer(), figure.bbox
    texts = [text for axes in figure.axes for text in (axes.title, axes.xaxis.label, axes.yaxis.label)]
    boxes = [text.get_window_extent(renderer) for text in texts if text.get_text()]
    for box in [*boxes, *(box for axes in figure.axes for box in _tick_boxes(axes.yaxis, renderer))]:
        assert box.x0 >= page.x0
        assert box.x1 <= page.x1
        assert box.y0 >= page.y0
        assert box.y1 <= page.y1
    titles = [axes.title.get_window_extent(renderer) for axes in figure.axes if axes.get_title()]
    assert not any(one.overlaps(other) for n, one in enumerate(titles) for other in titles[:n])
