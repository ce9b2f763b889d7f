"""The page of `longreach watch --serve` in a browser."""

import threading
from contextlib import ExitStack

import pytest
from live_runs import advance, finish, make_run, note

from longreach.live import Watched
from longreach.system.lock import hold
from longreach.terminal.live_server import LiveServer

EVIL = "<script>alert(1)<img src=x onerror=alert(2)>"
POINTS = "() => (document.getElementById('loss').data || []).map(trace => trace.x.length)"


@pytest.fixture
def runs(tmp_path):
    """Two runs that are running, one finished, one failed and one whose metrics are damaged."""
    with ExitStack() as held:
        for name, steps in (("demo/aligned/seed-0", 600), (f"demo/{EVIL.replace('/', '|')}/seed-1", 300)):
            held.enter_context(hold(make_run(tmp_path, name, steps) / ".run.lock"))
        finish(make_run(tmp_path, "demo/counting/seed-0", 1000, events=("started", "finished")))
        note(make_run(tmp_path, "demo/counting/seed-1", 200), "failed", message="RunFailed: the loss became <b>nan</b>")
        with (make_run(tmp_path, "demo/counting/seed-2", 200) / "metrics.jsonl").open("a") as file:
            file.write('{"step": 201, "lo\n')
        yield tmp_path


@pytest.fixture
def server(runs):
    server = LiveServer(Watched(runs), every=0.2)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def end(server):
    """Return a function that ends the server as Ctrl-C does."""

    def end():
        server.shutdown()
        server.socket.close()

    return end


def open_page(visit, server, **options):
    page = visit(server.address, **options).page
    page.wait_for_function("() => document.querySelectorAll('#runs tr').length === 5")
    page.wait_for_function(f"() => ({POINTS})().length === 2")
    return page


def rows(page):
    return page.evaluate("() => [...document.querySelectorAll('#runs tr')].map(row => row.innerText)")


def test_the_page_shows_runs_and_curves_and_follows_a_run(visit, server, runs):
    page = open_page(visit, server)
    assert page.evaluate(POINTS) == [3, 6]
    assert "5 runs: 2 running, 1 failed, 1 damaged, 1 finished" in page.inner_text("#summary")
    first = next(row for row in rows(page) if "aligned" in row)
    assert "600 / 1000" in first
    assert "50" in first.split()
    advance(runs / "demo/aligned/seed-0", 600, 700, 100)
    page.wait_for_function(f"() => ({POINTS})().join() === '3,7'")
    finish(runs / "demo/aligned/seed-0")
    page.wait_for_function("() => document.querySelectorAll('.state.finished').length === 2")


def test_names_and_reasons_are_text(visit, server):
    page = open_page(visit, server)
    shown = "\n".join(rows(page))
    assert EVIL.replace("/", "|") in shown
    assert "<b>nan</b>" in shown
    assert "metrics.jsonl is damaged in line 5" in shown
    assert page.locator("#runs img, #runs b, #runs script, .plot img").count() == 0
    names = page.evaluate("() => document.getElementById('loss').data.map(trace => trace.name)")
    assert any(name.startswith("demo/&lt;script&gt;") for name in names)


def test_a_choice_outlives_an_update_and_the_keyboard_makes_it(visit, server, runs):
    page = open_page(visit, server, height=400)
    box = page.locator("#runs tr", has_text="counting/seed-0").locator("input")
    box.focus()
    page.keyboard.press("Space")
    page.wait_for_function(f"() => ({POINTS})().length === 3")
    page.evaluate("() => scrollTo(0, 300)")
    before = page.evaluate("() => scrollY")
    assert before > 0
    advance(runs / "demo/aligned/seed-0", 600, 800, 100)
    page.wait_for_function(f"() => ({POINTS})().includes(8)")
    assert len(page.evaluate(POINTS)) == 3
    assert box.is_checked()
    assert page.evaluate("() => scrollY") == before
    assert page.evaluate("() => document.activeElement.type") == "checkbox"
    assert page.locator("#s-exact").is_visible()


def test_the_page_is_dark_where_the_browser_is(visit, server):
    colours = {}
    for dark in (False, True):
        page = open_page(visit, server, dark=dark)
        colours[dark] = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
        paper = page.evaluate("() => document.getElementById('loss').layout.paper_bgcolor")
        assert paper == ("#1f2228" if dark else "#f5f6f8")
    assert colours == {False: "rgb(255, 255, 255)", True: "rgb(22, 24, 28)"}


def test_the_page_says_when_the_server_is_gone(visit, server, end):
    made = visit(server.address)
    made.page.wait_for_function("() => document.querySelectorAll('#runs tr').length === 5")
    assert not made.page.locator("#gone").is_visible()
    end()
    made.page.wait_for_selector("#gone", state="visible")
    assert made.page.locator("#runs tr").count() == 5
    refused = [line for line in made.complaints if "ERR_CONNECTION_REFUSED" in line]
    assert made.complaints == refused
    made.complaints.clear()
    made.page.close()
