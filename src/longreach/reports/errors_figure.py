"""How answers go wrong: predicted IDs by length, places of first errors, and shares of first errors that are IDs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from longreach.evaluation import TENTHS, wilson
from longreach.reports.axes import Scale, Size, legend_below, length_axis, limit_lengths, make_panels, wrap
from longreach.reports.curves import Group, group
from longreach.reports.load import Result, variant_order
from longreach.reports.style import Style, paper_style, styles
from longreach.system.labels import label


@dataclass(frozen=True)
class ErrorCounts:
    """Wrong answers of a variant's free runs, at all lengths beyond training."""

    token_first: int
    id_first: int
    predicts_ids: bool
    tenths: list[int]
    """First errors by tenth of the answer."""

    @property
    def wrong(self) -> int:
        return self.token_first + self.id_first


def count_errors(results: Sequence[Result]) -> ErrorCounts:
    """Add up the errors of all seeds; where the training lengths are unknown, at all lengths."""
    counts, tenths = {"error_token_first": 0, "error_id_first": 0}, [0] * TENTHS
    predicts_ids = False
    for result in results:
        for score in result.scores:
            predicts_ids |= score.metric == "error_id_first"
            if result.trained_to is not None and score.length <= result.trained_to:
                continue
            if score.metric in counts:
                counts[score.metric] += score.hits
            elif score.metric.startswith("first_error_tenth_"):
                tenths[int(score.metric.rsplit("_", 1)[1])] += score.hits
    return ErrorCounts(counts["error_token_first"], counts["error_id_first"], predicts_ids, tenths)


def has_errors(result: Result) -> bool:
    """Return whether a result has something that the figure of errors draws."""
    counts = count_errors([result])
    return bool(counts.wrong or sum(counts.tenths)) or any(score.metric == "id_accuracy" for score in result.scores)


@paper_style()
def errors_figure(results: Sequence[Result], size: Size = "page", scale: Scale | None = None) -> Figure | None:
    """Draw a panel for each kind of error that was counted; None if there is none."""
    counts = {name: count_errors([r for r in results if r.variant == name]) for name in variant_order(results)}
    style = styles(list(counts))
    ids = [one for one in group(results, "id_accuracy") if not one.setting]
    placed = {name: found for name, found in counts.items() if sum(found.tenths)}
    kinds = {name: found for name, found in counts.items() if found.wrong and found.predicts_ids}
    panels: list[Callable[[Any], None]] = []
    if ids:
        panels.append(lambda axis: _draw_ids(axis, ids, style, scale))
    if placed:
        panels.append(lambda axis: _draw_places(axis, placed, style))
    if kinds:
        panels.append(lambda axis: _draw_kinds(axis, kinds, style))
    if not panels:
        return None
    figure, axes = make_panels(len(panels), size, narrowest=2.1, ratio=0.78 if size == "page" else 0.55, share_y=False)
    for axis, draw in zip(axes, panels, strict=True):
        draw(axis)
    shown = [name for name in counts if name in placed or any(one.variant == name for one in ids)]
    handles = [
        Line2D([], [], lw=1.4, ms=3.5, label=label(f"{name} ({sum(counts[name].tenths)} wrong)"), **style[name])
        for name in shown
    ]
    if handles:
        legend_below(figure, handles)
    return figure


def _draw_ids(axis: Any, ids: Sequence[Group], style: dict[str, Style], scale: Scale | None) -> None:
    lowest = 1.0
    for one in ids:
        middle = one.middle()
        axis.plot(list(middle), list(middle.values()), lw=1.4, ms=3.5, markeredgewidth=0, **style[one.variant])
        for curve in one.curves:
            lowest = min(lowest, *curve.rates.values())
            if len(one.curves) > 1:
                axis.plot(list(curve.rates), list(curve.rates.values()), color=style[one.variant]["color"], lw=0.5)
    lengths = sorted({length for one in ids for length in one.middle()})
    limit_lengths(axis, lengths, scale)
    length_axis(axis, lengths, scale)
    # where nothing is wrong there is no difference to enlarge
    room = next(room for room in (0.001, 0.01, 0.1, 1.0) if room >= 1 - lowest) if lowest < 1 else 1.0
    axis.set(title="IDs right, given the true prefix", xlabel="length", ylim=(1 - 1.05 * room, 1 + 0.05 * room))


def _draw_places(axis: Any, placed: dict[str, ErrorCounts], style: dict[str, Style]) -> None:
    """Draw shares of wrong answers with Wilson's intervals, which are wide where few answers are wrong.

    Tenths without an error of any variant are left out, such as those in which short answers have no token.
    """
    filled = [tenth for tenth in range(TENTHS) if any(found.tenths[tenth] for found in placed.values())]
    for number, (name, found) in enumerate(placed.items()):
        total = sum(found.tenths)
        # side by side, within 6 of the 10 percent
        aside = 6 * ((number + 0.5) / len(placed) - 0.5)
        places = [100 * (tenth + 0.5) / TENTHS + aside for tenth in filled]
        shares = [found.tenths[tenth] / total for tenth in filled]
        bounds = [wilson(found.tenths[tenth], total) for tenth in filled]
        ends = [[abs(share - bound[side]) for share, bound in zip(shares, bounds, strict=True)] for side in (0, 1)]
        axis.errorbar(places, shares, yerr=ends, lw=0.5, elinewidth=0.7, ms=2.8, markeredgewidth=0, **style[name])
    axis.set(
        xlim=(0, 100),
        xticks=[0, 25, 50, 75, 100],
        ylim=(-0.03, 1.04),
        yticks=[0, 0.5, 1],
        yticklabels=["0", "0.5", "1"],
    )
    axis.set(title="place of the first error", xlabel="answer written (%)", ylabel="share of wrong answers")


def _draw_kinds(axis: Any, kinds: dict[str, ErrorCounts], style: dict[str, Style]) -> None:
    """Draw the share of wrong answers whose first error was an ID, with Wilson's interval and counts."""
    for row, (name, found) in enumerate(kinds.items()):
        share = found.id_first / found.wrong
        low, high = wilson(found.id_first, found.wrong)
        look = {"color": style[name]["color"], "fmt": style[name]["marker"]}
        axis.errorbar([share], [row], xerr=[[share - low], [high - share]], ms=4, lw=1.2, **look)
        # on the side with more room
        side, place = ("left", high + 0.04) if share < 0.5 else ("right", low - 0.04)
        axis.text(place, row, f"{found.id_first} of {found.wrong}", ha=side, va="center", fontsize=6.5)
    axis.set_yticks(range(len(kinds)), [wrap(name, 14) for name in kinds])
    axis.set(ylim=(len(kinds) - 0.4, -0.6), xlim=(-0.04, 1.04), xticks=[0, 0.5, 1])
    axis.set_xticklabels(["0", "0.5", "1"])
    axis.set(title="first error was an ID", xlabel="share of wrong answers")
