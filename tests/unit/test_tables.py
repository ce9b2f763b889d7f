"""Tables by length at any width: the longest trained and the longest tested length are always there."""

import re

from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from longreach.evaluation import Loss, Score
from longreach.reports import score_table
from longreach.reports.curves import Curve, Group
from longreach.reports.tables import reach_ratio
from longreach.reports.text import LossCurves, loss_table

LENGTHS = (5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560, 5120, 10240, 20480)
NAMES = st.text("abc 12=_,", min_size=1, max_size=40).filter(str.strip)


def group(variant, trained_to, lengths=LENGTHS, setting="", seeds=1, hits=10):
    curves = [
        Curve(variant, setting, seed, "token_em_free", [Score(seed, n, "token_em_free", hits, 10) for n in lengths])
        for seed in range(seeds)
    ]
    made = Group(variant, setting, "token_em_free", curves, 1)
    object.__setattr__(made, "trained_to", trained_to)  # unknown in results that are files
    return made


def losses(variant, trained_to, lengths=LENGTHS, seeds=1):
    curve = [Loss(0, "context", n, 1.234, 1.2, 1.3, 10, 10) for n in lengths]
    return LossCurves(variant, [curve] * seeds, trained_to)


def printed(table, width):
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(table)
    lines = console.export_text().splitlines()
    assert max(map(len, lines)) <= width
    return lines


def heads(lines):
    (line,) = (line for line in lines if line.startswith("┃ "))
    return [name.strip() for name in line.strip("┃").split("┃")]


def shown_lengths(lines):
    return [int(name.rstrip("*")) for name in heads(lines) if re.fullmatch(r"\d+\*?", name)]


def caption(lines):
    return " ".join(" ".join(lines[[line[:1] for line in lines].index("└") + 1 :]).split())


@st.composite
def tables(draw):
    found = []
    varied = draw(st.booleans())
    for number in range(draw(st.integers(1, 4))):
        lengths = sorted(draw(st.sets(st.integers(1, 10**6), min_size=1, max_size=16)))
        trained_to = draw(st.none() | st.integers(1, 10**6))
        setting = draw(st.sampled_from(["k=12", "hops=3, k=4", "operand_order=reversed"])) if varied else ""
        seeds, hits = draw(st.integers(1, 2)), draw(st.integers(0, 10))
        found.append((f"{number}{draw(NAMES)}", trained_to, lengths, setting, seeds, hits))
    return found


@settings(max_examples=150, deadline=None)
@given(drawn=tables(), width=st.integers(60, 200))
def test_both_ends_are_shown_at_any_width(drawn, width):
    groups = [group(*one) for one in drawn]
    lines = printed(score_table(groups, "title", width), width)
    lengths = sorted({n for one in groups for n in one.middle()})
    trained = [n for one in groups for n in one.middle() if one.trained_to is not None and n <= one.trained_to]
    shown = shown_lengths(lines)
    assert shown == sorted(shown)
    assert {lengths[-1], *([max(trained)] if trained else [])} <= set(shown) <= set(lengths)
    left_out = re.search(r"(\d+) of (\d+) lengths", caption(lines))
    if len(shown) == len(lengths):
        assert left_out is None
    else:
        assert left_out is not None
        assert [int(n) for n in left_out.groups()] == [len(shown), len(lengths)]
    for threshold in ("reach@0.9", "reach@0.99"):
        assert (threshold in heads(lines)) != (f"{threshold}," in caption(lines) or caption(lines).endswith(threshold))
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in lines if line.startswith("│")]
    first = heads(lines).index(f"{shown[0]}*" if f"{shown[0]}*" in heads(lines) else str(shown[0]))
    cells = [cell for row in rows if any(row[first:]) for cell in row[first : first + len(shown)]]
    assert all(re.fullmatch(r"\d\.\d\d( \(\d\.\d\d\))?\*?|-", cell) for cell in cells)


def test_the_trained_length_of_each_variant_is_kept_if_there_is_room():
    both = [group("a", 40), group("b", 1280)]
    assert {5, 40, 1280, 20480} <= set(shown_lengths(printed(score_table(both, "title", 80), 80)))
    assert shown_lengths(printed(score_table([group("a" * 40, 40, seeds=2), group("b", 1280)], "t", 60), 60)) == [
        1280,
        20480,
    ]


def test_stars_mark_what_each_variant_was_trained_on():
    assert {"5*", "20*", "40"} <= set(heads(printed(score_table([group("a", 20), group("b", 20)], "t", 200), 200)))
    lines = printed(score_table([group("a", 20), group("b", 40)], "t", 200), 200)
    assert {"20", "40"} <= set(heads(lines))
    assert [line.count("*") for line in lines if line.startswith("│")] == [3, 4]


def test_an_unknown_training_length_has_no_star_and_no_ratio():
    lines = printed(score_table([group("a", None)], "t", 80), 80)
    assert "*" not in "".join(lines)
    assert "reach@0.99" in heads(lines)
    assert reach_ratio([20480], None) == "20480"
    assert "holds to" in heads(printed(loss_table([losses("a", None)], "t", 80), 80))


def test_room_that_is_left_goes_to_names():
    lines = printed(score_table([group("a name that is far too long for a table", 20, (5, 10))], "t", 100), 100)
    assert "a name that is far too long for a table" in "\n".join(lines)


@settings(max_examples=50, deadline=None)
@given(
    width=st.integers(60, 200),
    trained_to=st.none() | st.sampled_from(LENGTHS),
    seeds=st.integers(1, 2),
    lengths=st.sets(st.sampled_from(LENGTHS), min_size=1),
)
def test_losses_show_both_ends_too(width, trained_to, seeds, lengths):
    lines = printed(loss_table([losses("variant", trained_to, sorted(lengths), seeds)], "title", width), width)
    trained = [n for n in lengths if trained_to is not None and n <= trained_to]
    shown = shown_lengths(lines)
    assert {max(lengths), *([max(trained)] if trained else [])} <= set(shown)
    if len(shown) < len(lengths):
        assert f"{len(shown)} of {len(lengths)} lengths" in caption(lines)
