"""The table that a run ends with."""

from rich.table import Table
from rich.text import Text

from longreach.reports.curves import THRESHOLDS, Group

METRIC_NAMES = {
    "token_em_free": "exact match, free-running",
    "token_id_em_tf": "exact match of tokens and IDs, one pass with the true prefix",
    "token_em_tf": "exact match, one pass with the true prefix",
    "next_token": "next token right, given the true text before it",
}


def score_table(groups: list[Group], title: str, width: int = 80) -> Table:
    """One row per variant and setting: median over seeds by length, and how far it reaches.

    Of the lengths as many are shown as fit into the width, the first and the last among them.
    """
    several = any(len(group.curves) > 1 for group in groups)
    varied = any(group.setting for group in groups)
    columns = [["variant     ", *(group.variant[:16] for group in groups)]]
    columns += [["setting", *(group.setting for group in groups)]] if varied else []
    columns += [[f"reach@{p}", *(reach_text(group, p) for group in groups)] for p in THRESHOLDS]
    taken = sum(3 + max(map(len, column)) for column in columns) + 1
    most = max(0, (width - taken) // (14 if several else 7))
    lengths = spread_out(sorted({length for group in groups for length in group.middle()}), most)
    caption = METRIC_NAMES[groups[0].metric] + ("; median over seeds (worst)" if several else "")
    table = Table(title=Text(title, style="table.title"), caption=caption, title_justify="left", caption_justify="left")
    table.add_column("variant", overflow="fold", min_width=12)
    if varied:
        table.add_column("setting", no_wrap=True)
    for length in lengths:
        trained = all(group.trained_to is not None and length <= group.trained_to for group in groups)
        table.add_column(f"{length}{'*' if trained else ''}", justify="right", no_wrap=True)
    for threshold in THRESHOLDS:
        table.add_column(f"reach@{threshold}", justify="right", no_wrap=True)
    for group in groups:
        middle, worst = group.middle(), group.worst()
        cells: list[str | Text] = [Text(group.variant), *([Text(group.setting)] if varied else [])]
        for length in lengths:
            if length not in middle:
                cells.append("-")
            else:
                spread = f" ({worst[length]:.2f})" if len(group.curves) > 1 else ""
                cells.append(f"{middle[length]:.2f}{spread}")
        cells += [reach_text(group, threshold) for threshold in THRESHOLDS]
        table.add_row(*cells)
    table.caption = f"{table.caption}.  * = within the training lengths"
    return table


def reach_text(group: Group, threshold: float) -> str:
    """`160 (8x)`, or `80..160 (4x..8x)` from the worst seed to the best."""
    return reach_ratio(group.reaches(threshold), group.trained_to)


def reach_ratio(lengths: list[int], trained_to: int | None) -> str:
    """From the least to the greatest, and in multiples of the longest training length."""
    ends = sorted({min(lengths), max(lengths)})
    if trained_to is None:
        return "..".join(map(str, ends))
    times = "..".join(_times(length / trained_to) for length in ends)
    return f"{'..'.join(map(str, ends))} ({times})"


def _times(ratio: float) -> str:
    return f"{ratio:.0f}x" if ratio >= 1000 else f"{ratio:.3g}x"


def spread_out(lengths: list[int], most: int) -> list[int]:
    """At most so many of the lengths, the last and, if there is room, the first among them."""
    if most <= 1 or len(lengths) <= most:
        return lengths[max(0, len(lengths) - most) :]
    return [lengths[round(i * (len(lengths) - 1) / (most - 1))] for i in range(most)]
