"""The page of a generation: its data, what of it is rounded, and that text stays text."""

import base64
import json
import math
import re
import zlib
from dataclasses import replace

import torch
from synthetic_inside import ANSWER, PROMPT, READER, inside, page_samples, three_samples

from longreach.evaluation.inside import verdict
from longreach.evaluation.inside_data import pack_weights
from longreach.reports.inside_page import render_inside_page

HOSTILE = [
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(2)>",
    "&lt;b&gt;",
    "\u2028'\"",
    "\x1b[31m\u202e",
]


def _data(page: str) -> dict:
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, flags=re.S)
    return json.loads(text)


def test_weights_are_packed_step_by_step_with_a_known_error():
    made = inside()
    made.weights.copy_(torch.rand(made.weights.shape, generator=torch.Generator().manual_seed(0)) ** 4)
    roots = zlib.decompress(base64.b64decode(pack_weights(made)))
    before = 0
    for step in made.steps:
        for layer in range(2):
            for head in range(2):
                for place in range(step.index + 1):
                    weight = float(made.weights[layer, head, step.number, place])
                    assert abs((roots[before] / 255) ** 2 - weight) <= math.sqrt(weight) / 255 + 1e-5
                    before += 1
    assert before == len(roots)


def test_the_data_of_a_page_are_those_of_the_generation():
    right, wrong, unknown = _data(render_inside_page("runs/x", {"task": "copy"}, three_samples(), 2))["samples"]
    assert (right["tokens"], right["growing"]) == ([*PROMPT, *ANSWER], [True, False])
    assert [sample["right"] for sample in (right, wrong, unknown)] == [True, False, None]
    assert wrong["first_error"] == {"step": 1, "wrong": "token"}
    assert wrong["verdict"] == "wrong; the true answer is a b c .; the first error is the token of step 1"
    assert right["steps"][0]["levels"][0]["points_at"] == {"index": 0, "level": None, "move": 0, "probability": 0.5}
    assert [sorted(ids) for ids in right["likeliest"][0]["ids"]] == [[[0, 0.25], [1, 0.25], [2, 0.25], [3, 0.25]]] * 2
    assert right["likeliest"][-1]["ids"] == []  # the last token is never read
    assert right["likeliest"][0]["tokens"][0][1] == 0.1667  # four digits
    roots = zlib.decompress(base64.b64decode(right["attention"]["data"]))
    assert roots[(READER[0] * 2 + READER[1]) * len(PROMPT)] == round(math.sqrt(0.9) * 255)


def test_a_verdict_names_only_so_many_tokens():
    made = replace(inside(), true_answer=["a"] * 30)
    assert verdict(made, most=3).startswith("wrong; the true answer is a a a ... (30 tokens)")
    assert "..." not in verdict(made)


def test_hostile_text_stays_text():
    samples = page_samples(inside(words=HOSTILE, levels=tuple(HOSTILE[:2])))
    page = render_inside_page(HOSTILE[0], {"task": HOSTILE[1]}, samples, 0)
    for text in HOSTILE[:2]:
        assert text not in page
    assert "\u2028" not in page
    assert "\u202e" not in page
    found = _data(page)["samples"][0]
    assert found["tokens"][:4] == HOSTILE[:4]
    assert found["tokens"][4] == "\\x1b[31m\\u202e"  # control characters are shown as escapes
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page


def test_what_json_cannot_hold_is_null():
    made = inside()
    made.token_probabilities[0] = math.nan
    page = render_inside_page("x", {}, page_samples(made), 0)
    assert _data(page)["samples"][0]["likeliest"][0]["tokens"][0][1] is None


def test_the_page_asks_for_nothing_from_elsewhere():
    page = render_inside_page("x", {}, three_samples(), 0)
    assert "default-src 'none'" in page
    assert not re.search(r"(src|href)=[\"']?(https?:)?//|@import|url\(", page)
