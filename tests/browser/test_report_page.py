"""The report page in a browser: what it draws, how it is steered, and that no name runs as code."""

import json
from dataclasses import replace

import pytest
from pages import page_of, result
from playwright.sync_api import Page, expect

from longreach.evaluation import Score
from longreach.reports.load import Result
from longreach.reports.style import shades

HITS = {10: 100, 20: 99, 40: 80, 160: 0}
GOOD = {10: 100, 20: 100, 40: 100, 160: 97}


@pytest.fixture
def report(tmp_path):
    results = [result("plain", seed, HITS) for seed in (0, 1)] + [result("coupled", seed, GOOD) for seed in (0, 1)]
    return page_of(results, tmp_path / "report.html", ("runs/lost is not finished",))


def _ready(page: Page) -> Page:
    page.wait_for_selector("html[data-ready=yes]")
    return page


def _traces(page: Page, figure: str) -> list[dict]:
    return page.evaluate(f"document.getElementById('{figure}').data.map(t => ({{...t, x: Array.from(t.x)}}))")


def test_curves_have_medians_seeds_and_the_training_range(visit, report):
    page = _ready(visit(report).page)
    traces = _traces(page, "curves")
    medians = [trace for trace in traces if trace["showlegend"]]
    assert [trace["name"] for trace in medians] == ["plain", "coupled"]
    assert medians[0]["y"] == [1, 0.99, 0.8, 0]
    assert "160 of 200 over all" in medians[0]["text"][2]
    assert sum(trace["opacity"] == 0.5 for trace in traces if "opacity" in trace) == 2
    shapes = page.evaluate("document.getElementById('curves').layout.shapes")
    assert any(shape["type"] == "rect" and shape["x1"] == 20 for shape in shapes)
    assert page.get_by_text("chance 0.125").is_visible()
    expect(page.get_by_text("1 left out")).to_be_visible()
    assert page.locator("#measures-section").is_hidden()
    assert page.locator("#training-section").is_hidden()


def test_hover_tells_counts_and_intervals(visit, report):
    page = _ready(visit(report).page)
    point = page.locator("#curves .scatterlayer .trace").nth(1).locator(".points path").nth(2)
    point.hover(force=True)
    expect(page.locator("#curves .hovertext")).to_contain_text("80 of 100 (0.800)95% interval 0.711 to 0.867")
    page.uncheck("#seeds")
    assert not any("opacity" in trace and trace["opacity"] == 0.5 for trace in _traces(page, "curves"))
    page.check("#intervals")
    assert sum(trace.get("fill") == "toself" for trace in _traces(page, "curves")) == 4


def test_metric_scale_and_filter_change_the_figure(visit, report):
    page = _ready(visit(report).page)
    page.select_option("#metric", "token_accuracy")
    assert next(trace["y"] for trace in _traces(page, "curves") if trace["showlegend"]) == [1, 0.999, 0.98, 0.9]
    assert page.evaluate("document.getElementById('curves').layout.xaxis.type") == "log"
    page.select_option("#scale", "linear")
    assert page.evaluate("document.getElementById('curves').layout.xaxis.type") == "linear"
    page.fill("#filter", "coupled")
    expect(page.locator("#filter-count")).to_have_text("2 of 4 curves")
    assert [trace["name"] for trace in _traces(page, "curves") if trace["showlegend"]] == ["coupled"]
    assert page.locator("#reach tbody tr").count() == 1
    page.fill("#filter", "nothing has this name")
    for section in ("curves", "reach", "heat"):
        expect(page.locator(f"#{section}-section")).to_be_hidden()
    page.fill("#filter", "")
    expect(page.locator("#heat-section")).to_be_visible()
    page.select_option("#metric", "error_token_first")
    expect(page.locator("#reach-section")).to_be_hidden()  # an error is nothing to reach
    assert page.get_by_text("chance 0.125").count() == 0


def test_nothing_can_be_uploaded(visit, report):
    page = _ready(visit(report).page)
    buttons = page.locator(".modebar-btn").evaluate_all("all => all.map(one => one.dataset.title ?? one.innerText)")
    assert buttons
    assert not [title for title in buttons if "hare" in title or "loud" in title]
    assert page.evaluate("document.getElementById('curves')._context.showSendToCloud") is False


def test_captions_say_what_is_drawn(visit, tmp_path, report):
    page = _ready(visit(report).page)
    caption = page.locator("#curves-caption")
    expect(caption).to_have_text("Thick: the median over seeds. Thin: every run. Shaded: the lengths of training.")
    page.select_option("#colour", "seed")
    expect(caption).to_have_text("Thick: the median over variant. Thin: every run. Shaded: the lengths of training.")
    page.select_option("#panel", "variant")
    expect(caption).to_have_text("Every curve is one run, with its 95% interval. Shaded: the lengths of training.")
    page.select_option("#panel", "")
    assert page.evaluate("document.getElementById('curves').layout.annotations.some(a => /none/.test(a.text))") is False
    unknown = Result(**{**result("plain", 0, HITS).__dict__, "trained_lengths": None})
    bare = _ready(visit(page_of([unknown], tmp_path / "bare.html")).page)
    expect(bare.locator("#curves-caption")).to_have_text("Every curve is one run, with its 95% interval.")


def test_each_row_of_coverage_spans_its_own_range(visit, tmp_path):
    few = result("few", 0, HITS)
    few = Result(**{**few.__dict__, "card": replace(few.card, id_coverage=[1, 1])})
    page = _ready(visit(page_of([few, result("plain", 0, HITS)], tmp_path / "page.html")).page)
    (trace,) = _traces(page, "coverage")
    assert trace["z"] == [[1, 1, 1, 1], [2, 4 / 3, None, 2 / 3]]


def test_one_logged_loss_is_a_point(visit, tmp_path):
    path = page_of([result("plain", 0, HITS)], tmp_path / "page.html")
    path.write_text(path.read_text().replace('"training":[null]', '"training":[{"step":[30],"loss":[0.5]}]'))
    page = _ready(visit(path).page)
    assert [trace["mode"] for trace in _traces(page, "training")] == ["lines+markers"]


def test_the_table_of_reach_sorts_and_filters(visit, report):
    page = _ready(visit(report).page)
    cells = page.locator("#reach tbody tr td:first-child")
    assert cells.all_inner_texts() == ["plain", "coupled"]
    header = page.locator("#reach th button", has_text="reach@0.9").first
    header.click()
    assert cells.all_inner_texts() == ["plain", "coupled"]
    header.press("Enter")  # a second time, by the keyboard
    assert cells.all_inner_texts() == ["coupled", "plain"]
    assert page.locator("#reach th[aria-sort=descending]").count() == 1
    page.locator("#reach input").fill("160 8x")
    assert cells.all_inner_texts() == ["coupled"]
    expect(page.locator("#reach [role=status]")).to_have_text("1 of 2 rows")


def test_arrow_keys_walk_over_the_points(visit, report):
    page = _ready(visit(report).page)
    page.locator("#curves").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#spoken")).to_contain_text("plain, length 10")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    expect(page.locator("#spoken")).to_contain_text("coupled, length 20")
    expect(page.locator("#curves .hovertext").first).to_be_visible()


@pytest.mark.parametrize("figure", ["errors", "training"])
def test_arrow_keys_walk_over_the_points_of_other_figures(visit, tmp_path, figure):
    path = page_of([result("plain", 0, HITS)], tmp_path / "page.html")
    text = path.read_text().replace('"training":[null]', '"training":[{"step":[1,2],"loss":[2.5,0.5]}]')
    path.write_text(text)
    page = _ready(visit(path).page)
    page.locator(f"#{figure}").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#spoken")).to_contain_text("length 20: 0 of 100" if figure == "errors" else "step 2: loss 0.5")


def test_variants_without_the_metric_are_named(visit, tmp_path, report):
    one_pass = result("one pass", 0, {})
    one_pass.scores.append(Score(0, 10, "token_em_tf", 5, 10))
    page = _ready(visit(page_of([result("plain", 0, HITS), one_pass], tmp_path / "page.html")).page)
    expect(page.locator("#curves-note")).to_have_text("Without this metric: one pass.")
    page.select_option("#metric", "token_em_tf")
    expect(page.locator("#curves-note")).to_have_text("Without this metric: plain.")
    whole = _ready(visit(report).page)
    expect(whole.locator("#curves-note")).to_have_text("")


def test_panels_and_the_heat_map_take_any_field(visit, tmp_path):
    results = [result(variant, 0, HITS if k == 8 else GOOD, k=k) for variant in ("a", "b") for k in (4, 8, 12)]
    # one run was tested under several settings
    merged = [
        Result(**{**results[3 * n].__dict__, "scores": [s for r in results[3 * n : 3 * n + 3] for s in r.scores]})
        for n in (0, 1)
    ]
    page = _ready(visit(page_of(merged, tmp_path / "page.html")).page)
    assert page.input_value("#colour") == "k"
    assert page.input_value("#panel") == "variant"
    assert [trace["name"] for trace in _traces(page, "curves") if trace["showlegend"]] == ["4", "8", "12"]
    assert {trace["xaxis"] for trace in _traces(page, "curves")} == {"x", "x2"}
    colours = [trace["line"]["color"] for trace in _traces(page, "curves") if trace["showlegend"]]
    assert colours == [look["color"] for look in shades(["4", "8", "12"]).values()]
    expect(page.locator("#heat-note")).to_have_text("Each cell is one run.")
    page.select_option("#heat-x", "length")
    expect(page.locator("#heat-note")).to_have_text("Each cell is the median over variant.")
    page.select_option("#heat-x", "variant")
    page.select_option("#heat-value", "reach@0.9")
    (trace,) = _traces(page, "heat")
    assert trace["x"] == ["a", "b"]
    assert trace["y"] == ["4", "8", "12"]
    assert trace["z"] == [[160, 160], [20, 20], [160, 160]]


def test_errors_are_counted_by_kind_and_place(visit, report):
    page = _ready(visit(report).page)
    page.select_option("#errors-variant", "plain")
    token, identity, place = _traces(page, "errors")
    assert token["y"] == [0, 0, 20, 100]
    assert identity["y"] == [0, 2, 20, 100]
    assert place["y"] == [0, 0, 0, 240, 0, 0, 0, 0, 0, 0]
    assert "100 of 200" in token["text"][3]


def test_colours_follow_the_recipe_and_not_the_choice(visit, tmp_path, report):
    whole = _ready(visit(report).page)
    part = _ready(visit(page_of([result("coupled", 0, GOOD)], tmp_path / "part.html")).page)
    colours = [
        {t["name"]: t["line"]["color"] for t in _traces(page, "curves") if t["showlegend"]} for page in (whole, part)
    ]
    assert colours[0]["coupled"] == colours[1]["coupled"]


def test_dark_and_light(visit, report):
    page = _ready(visit(report, dark=True).page)
    back = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(back) == "rgb(21, 23, 26)"
    page.click("#theme")
    assert page.evaluate(back) == "rgb(255, 255, 255)"
    page.locator("#theme").press("Enter")
    assert page.evaluate(back) == "rgb(21, 23, 26)"


def test_no_name_runs_as_code(visit, tmp_path):
    bad = "</script><script>window.broken = 1</script><img src=x onerror=window.broken=2>"
    results = [result(f"{bad}{number}", 0, HITS, **{bad: bad}) for number in range(2)]
    results = [
        Result(**{**one.__dict__, "source": bad, "title": bad, "command": bad, "variants": (bad,)}) for one in results
    ]
    page = _ready(visit(page_of(results, tmp_path / "page.html", (bad,))).page)
    page.locator("#curves").focus()
    page.keyboard.press("ArrowRight")
    page.locator("#scores-section summary").click()
    assert page.evaluate("window.broken") is None
    assert page.locator("h1").inner_text() == bad
    assert page.locator("body img").count() == 0
    assert page.locator("#commands tbody td").last.inner_text() == bad


def test_scores_are_listed_and_saved(visit, report, tmp_path):
    page = _ready(visit(report).page)
    page.locator("#scores-section summary").click()
    expect(page.locator("#scores tbody tr")).to_have_count(16)
    with page.expect_download() as download:
        page.click("#scores-save")
    download.value.save_as(tmp_path / "scores.csv")
    lines = (tmp_path / "scores.csv").read_text().splitlines()
    assert lines[0] == "variant,setting,seed,metric,length,value,hits,samples"
    assert lines[3] == "plain,,0,token_em_free,40,0.8,80,100"
    assert len(lines) == 17


def test_two_thousand_runs_stay_small_and_quick(visit, tmp_path):
    lengths = (5, 10, 20, 40, 80, 160, 320, 640)
    results = [
        result(f"v{number // 4}", number % 4, {n: (number * 7 + n) % 101 for n in lengths}) for number in range(2000)
    ]
    path = page_of(results, tmp_path / "page.html")
    assert path.stat().st_size < 10_000_000
    page = _ready(visit(path).page)
    # of the browser's own clock: parsing, drawing and all
    assert page.evaluate("performance.now()") < 3000 * _slowness(page)
    page.fill("#filter", "v123")
    expect(page.locator("#filter-count")).to_have_text("4 of 2000 curves")
    assert page.locator("#reach tbody tr").count() == 1


def _slowness(page: Page) -> float:
    """Return how much slower this machine computes than the one on which 3 s were measured, at least 1."""
    loop = "let sum = 0; for (let i = 0; i < 3e7; i++) sum += Math.sqrt(i)"
    timed = f"(() => {{const start = performance.now(); {loop}; return performance.now() - start}})()"
    return max(1.0, page.evaluate(timed) / 40)


def test_a_narrow_window_is_not_too_wide(visit, report):
    page = _ready(visit(report, width=400).page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 400


def test_the_data_of_the_page_is_json(report):
    text = report.read_text()
    start = text.index('id="data">') + len('id="data">')
    found = json.loads(text[start : text.index("</script>", start)])
    assert [one["name"] for one in found["variants"]] == ["plain", "coupled"]


def test_paper_gets_light_colours(visit, report, tmp_path):
    page = _ready(visit(report, dark=True).page)
    theme = "document.documentElement.dataset.theme"
    page.evaluate(f"window.printed = []; addEventListener('beforeprint', () => printed.push({theme}))")
    page.pdf(path=tmp_path / "page.pdf")
    assert page.evaluate("printed") == ["light"]
    assert page.evaluate(theme) == "dark"
