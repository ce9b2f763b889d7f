"""The page of a generation in a browser: steps, levels, samples and heads, by keyboard and by mouse."""

from dataclasses import replace

import pytest
from helpers import TINY
from synthetic_inside import inside, page_samples, three_samples

import longreach as lr
from longreach.api import EvalConfig, Lengths, PointerChasing, PointerConfig, Predicted, RunConfig, Span, TrainConfig
from longreach.cli.main import main
from longreach.reports.inside_page import render_inside_page
from longreach.runs import RunFolder, execute, gather_info


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("inside") / "page.html"
    path.write_text(render_inside_page("runs/copy", {"task": "copy"}, three_samples(), 0), encoding="utf-8")
    return path


def _open(visit, path, **options):
    page = visit(path, **options).page
    page.wait_for_selector("#map canvas.cells")
    return page


def _text(page, selector):
    return page.locator(selector).inner_text().replace("\n", "")


def _starts(page):
    return int(page.locator(".token.start").get_attribute("data-place"))


def test_steps_by_keyboard(visit, file):
    page = _open(visit, file)
    assert "Starts from =@4 and writes a@5 with probability 0.88. ✓ The token is right." in _text(page, "#summary")
    for key, place in [
        ("ArrowRight", 5),
        ("ArrowRight", 6),
        ("ArrowLeft", 5),
        ("End", 7),
        ("ArrowRight", 7),
        ("Home", 4),
    ]:
        page.keyboard.press(key)
        assert _starts(page) == place
        assert _text(page, "#where") == f"step {place - 4} of 0..3"
    page.focus("button.word[data-step='0']")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.dataset.step") == "1"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"


def test_steps_by_mouse(visit, file):
    page = _open(visit, file)
    page.click("button.word[data-step='2']")
    assert _starts(page) == 6
    for name, place in [("#back", 5), ("#forward", 6), ("#home", 4), ("#end", 7)]:
        page.click(name)
        assert _starts(page) == place
    page.fill("#slider", "1")
    assert _starts(page) == 5


def test_a_step_names_ids_pointer_and_dependencies(visit, file):
    page = _open(visit, file)
    page.keyboard.press("ArrowRight")
    table = page.locator("#facts table").inner_text()
    for line in (
        "level\tplace\tpart (fixed)",
        "next ID\t2 (0.75) ✓\t2 (0.75) ✓",
        "true ID\t2\t2",
        "pointer\tb@1 (0.50)\t–",
    ):
        assert line in table.replace(" \t", "\t").replace("\n\t", "\t")
    assert "◆ Needed: b@1" in _text(page, "#facts p")
    assert page.locator(".token.needed").get_attribute("data-place") == "1"
    assert _text(page, ".token[data-place='1'] .marks") == "◆P"
    assert _text(page, ".token[data-place='0'] .marks") == "="  # its ID is that of the token the step starts from


def test_the_first_error_is_marked_and_reached(visit, file):
    page = _open(visit, file)
    assert page.is_disabled("#first-error")
    assert page.locator(".flag").count() == 0
    page.keyboard.press("w")
    page.wait_for_selector(".flag")
    assert (
        _text(page, "#verdict")
        == "✗ sample 1: wrong; the true answer is a b c .; the first error is the token of step 1"
    )
    assert _text(page, ".flag") == "first error: token"
    page.keyboard.press("e")
    assert _starts(page) == 5
    assert "✗ The true token is b." in _text(page, "#summary")
    assert "≠ b" in _text(page, ".token[data-place='6']")
    assert "2≠3" in _text(page, ".token[data-place='7']")
    page.keyboard.press("End")
    page.click("#first-error")
    assert _starts(page) == 5


def test_levels_colour_the_tokens(visit, file):
    page = _open(visit, file)
    hues = "[...document.querySelectorAll('.token')].map(box => box.style.getPropertyValue('--hue'))"
    names = "[...document.querySelectorAll('.token .id.chosen')].map(line => line.textContent)"
    first = page.evaluate(hues)
    assert page.evaluate(names) == ["1", "2", "3", "0", "0", "1", "2", "3", "–"]
    assert first[0] == first[5] != first[1]
    assert first[3] == ""
    assert "reserved" in page.locator(".token[data-place='3']").get_attribute("class")
    page.click("#levels button:nth-child(2)")
    assert page.evaluate(names) == ["1", "1", "1", "1", "2", "2", "2", "2", "–"]
    assert page.evaluate(hues) != first
    page.keyboard.press("l")
    assert page.evaluate(hues) == first
    assert page.locator(".token[data-place='0'] .id").count() == 1
    page.check("#all-ids")
    assert page.locator(".token[data-place='0'] .id").all_inner_texts() == ["1", "1"]


def test_samples_by_keyboard_and_by_mouse(visit, file):
    page = _open(visit, file)
    assert page.locator("#samples button").all_inner_texts() == ["✓ 0", "✗ 1", "? 2"]
    for key, verdict in [("ArrowDown", "✗ sample 1"), ("ArrowDown", "? sample 2"), ("ArrowUp", "✗ sample 1")]:
        page.keyboard.press(key)
        page.wait_for_selector(f"#verdict:has-text('{verdict}')")
    page.click("#samples button:nth-child(3)")
    page.wait_for_selector("#verdict:has-text('? sample 2')")
    assert "The true token is not known." in _text(page, "#summary")
    assert "the dependencies are not known" in _text(page, "#facts p")


def test_heads_are_chosen_and_hover_names_a_weight(visit, file):
    page = _open(visit, file)
    assert page.locator("#map .row").all_inner_texts() == ["0.0", "0.1", "1.0", "1.1"]
    page.click("#map .row:nth-child(3)")
    assert page.locator("#map .row[aria-current]").inner_text() == "1.0"
    assert _text(page, "#strongest").startswith("Head 1.0 in step 0: a@0 0.90 ◆")
    assert _text(page, "#map .numbers.current") == "0.900.90–a@0 0.90"
    assert page.locator(".token[data-place='0'] .meter i").evaluate("bar => parseFloat(bar.style.height)") > 85
    cells = page.locator("canvas.cells").bounding_box()
    page.mouse.move(cells["x"] + 5, cells["y"] + 2.5 * cells["height"] / 4)
    tip = page.locator("#tip").inner_text()
    assert tip == "a@0, IDs: place 1, part 1\nhead 1.0, step 0: 0.90\nneeded"
    page.mouse.move(0, 0)
    assert page.is_hidden("#tip")
    page.keyboard.press("]")
    assert page.input_value("#head") == "1.1"
    page.focus("#map .row:nth-child(2)")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.textContent") == "0.1"  # the map was drawn anew


def test_the_map_of_one_head_shows_every_step(visit, file):
    page = _open(visit, file)
    page.select_option("#head", "1.0")
    page.click("#mode-steps")
    assert page.locator("#map .row").all_inner_texts() == ["0 =@4", "1 a@5", "2 b@6", "3 c@7"]
    box = page.locator("canvas.cells").bounding_box()
    high = box["height"] / 4
    rows = page.evaluate("""() => {
        const cells = document.querySelector('canvas.cells'), [wide, high] = [cells.width / 8, cells.height / 4];
        const pixels = cells.getContext('2d').getImageData(0, 0, cells.width, cells.height).data;
        const at = (x, y) => pixels[4 * (Math.floor((y + 0.5) * high) * cells.width + Math.floor((x + 0.5) * wide))];
        return [0, 1, 2, 3].map(y => [...Array(8).keys()].map(x => at(x, y)));
    }""")
    for step, row in enumerate(rows):
        assert row[step] < 80  # the token that the step needs
        assert min(row[:step] + row[step + 1 :]) > 200
    page.mouse.click(box["x"] + 5, box["y"] + 2.5 * high)
    assert _starts(page) == 6
    page.keyboard.press("m")
    assert page.get_attribute("#mode-heads", "aria-pressed") == "true"


CONTRASTS = """() => {
  const numbers = text => text.match(/[\\d.]+/g).map(Number);
  const linear = part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  const light = text => numbers(text).slice(0, 3).map(part => linear(part / (text.startsWith('color(') ? 1 : 255)))
    .reduce((sum, part, at) => sum + [0.2126, 0.7152, 0.0722][at] * part, 0);
  const back = box => getComputedStyle(box).backgroundColor;
  return [...document.querySelectorAll('.word, .id, .marks span, .flag, .row, #verdict, .small')].map(box => {
    let under = box;
    while (under.parentElement && (numbers(back(under))[3] ?? 1) === 0) under = under.parentElement;
    const [dim, bright] = [light(getComputedStyle(box).color), light(back(under))].sort((a, b) => a - b);
    return [(bright + 0.05) / (dim + 0.05), box.className];
  });
}"""


@pytest.mark.parametrize("dark", [False, True])
def test_light_and_dark_are_readable(visit, file, dark):
    page = _open(visit, file, dark=dark)
    page.keyboard.press("ArrowDown")
    page.wait_for_selector(".flag")
    background = "getComputedStyle(document.body).backgroundColor"
    before = page.evaluate(background)
    assert (before == "rgb(255, 255, 255)") == (not dark)
    found = page.evaluate(CONTRASTS)
    assert len(found) > 30
    assert min(found)[0] >= 4.5, min(found)
    page.click("#theme")
    assert page.evaluate(background) != before
    page.keyboard.press("t")
    assert page.evaluate(background) == before


def test_hostile_text_is_shown_as_text(visit, tmp_path):
    words = ["<script>alert(1)</script>", "</script><img src=x onerror=alert(2)>", "c", ";", "="]
    path = tmp_path / "hostile.html"
    samples = page_samples(inside(words=words, levels=(words[0], words[1])))
    path.write_text(render_inside_page(words[0], {"task": words[1]}, samples, 0), encoding="utf-8")
    page = _open(visit, path)
    assert page.locator(".token .word").all_inner_texts()[:2] == words[:2]
    assert words[0] in page.locator("header").inner_text()
    assert page.locator("#levels button").all_inner_texts() == words[:2]
    assert page.locator("img").count() == 0


@pytest.mark.parametrize("width", [1150, 1300, 1600, 1900])
def test_no_token_of_the_map_is_covered_by_the_numbers(visit, tmp_path, width):
    prompt, answer = [*"abcdefgh" * 4, "="], [*"abc", "."]
    ids = [[0] * (len(prompt) + len(answer) - 1)] * 2
    path = tmp_path / "middle.html"
    samples = page_samples(inside(answer=answer, truth=None, ids=ids, words=prompt))
    path.write_text(render_inside_page("middle", {}, samples, 0), encoding="utf-8")
    page = _open(visit, path, width=width)
    right = "Math.round(document.querySelector('canvas.cells').getBoundingClientRect().right)"
    left = "Math.round(document.querySelector('#map > .side:not(.top)').getBoundingClientRect().left)"
    assert page.evaluate(right) <= page.evaluate(left)


def test_long_sequences_stay_usable(visit, tmp_path):
    size = 240
    prompt, ids = [*"ab" * (size // 2), "="], [[*range(1, size + 1), 0, *range(1, size)], [1] * (2 * size)]
    made = inside(answer=[*"ab" * (size // 2)], truth=None, ids=ids, words=prompt)
    path = tmp_path / "long.html"
    made = replace(made, weights=made.weights.repeat(2, 4, 1, 1))
    path.write_text(render_inside_page("long", {}, page_samples(made), 0), encoding="utf-8")
    page = _open(visit, path)
    assert page.locator("#map .row").count() == 32
    page.keyboard.press("End")
    assert page.locator(".token.writes").is_visible()
    low = page.locator(".token.writes").bounding_box()["y"]
    area = page.locator("#tokens").bounding_box()
    assert area["y"] <= low <= area["y"] + area["height"]
    page.keyboard.press("m")
    assert page.locator("#map .row").count() == size
    row, around = (page.locator(name).bounding_box() for name in ("#map .row[aria-current]", "#map"))
    assert around["y"] < row["y"] < around["y"] + around["height"]


def test_a_trained_model_through_the_command(visit, tmp_path, capsys):
    config = RunConfig(
        task=PointerChasing(num_names=12),
        ids=Predicted(max_id=40),
        model=replace(TINY, position_head=PointerConfig()),
        train=TrainConfig(lengths=Span(3, 5), steps=20, batch_size=8),
        evaluate=EvalConfig(lengths=Lengths((5,)), samples=2, free_samples=2),
    )
    run = tmp_path / "run"
    execute(config, RunFolder(run), gather_info("test", "", "", 0, "cpu"), "cpu")
    path = tmp_path / "look.html"
    command = [
        "inspect",
        str(run),
        "--length",
        "4",
        "--samples",
        "3",
        "--out",
        str(path),
        "--device",
        "cpu",
        "--step",
        "1",
    ]
    assert main(command) == 0
    printed = capsys.readouterr().out
    page = _open(visit, path)
    verdicts = [button.get_attribute("title") for button in page.locator("#samples button").all()]
    assert len(verdicts) == 3
    for number, verdict in enumerate(verdicts):
        assert f"{number:5} {verdict.removeprefix(f'sample {number} of seed 0: ')}" in printed
    first = lr.inspect(run, length=4, device="cpu").inside
    assert page.locator(".token .word").all_inner_texts() == first.words
    assert _starts(page) == first.prompt_tokens + min(1, len(first.steps) - 1) - 1
