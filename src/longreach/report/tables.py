"""The table that a run ends with."""

from rich.table import Table

from longreach.report.curves import THRESHOLDS, Group

METRIC_NAMES = {
    "token_em_free": "exact match, free-running",
    "token_em_tf": "exact match, one pass with the true prefix",
}


def score_table(groups: list[Group], title: str, most_lengths: int = 6) -> Table:
    """One row per variant and setting: median over seeds by length, and how far it reaches."""
    lengths = _spread(sorted({length for group in groups for length in group.middle()}), most_lengths)
    several = any(len(group.curves) > 1 for group in groups)
    caption = METRIC_NAMES[groups[0].metric] + ("; median over seeds (worst)" if several else "")
    table = Table(title=title, caption=caption, title_justify="left", caption_justify="left")
    table.add_column("variant", no_wrap=True)
    if any(group.setting for group in groups):
        table.add_column("setting")
    for length in lengths:
        trained = all(length <= group.trained_to for group in groups)
        table.add_column(f"{length}{'*' if trained else ''}", justify="right")
    for threshold in THRESHOLDS:
        table.add_column(f"reach@{threshold}", justify="right", no_wrap=True)
    for group in groups:
        middle, worst = group.middle(), group.worst()
        cells = [group.variant, *([group.setting] if any(g.setting for g in groups) else [])]
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
    """`160 (8x)`; with several seeds the worst and the best."""
    reaches = sorted(group.reaches(threshold))
    times = [f"{value / group.trained_to:.3g}x" for value in reaches]
    if reaches[0] == reaches[-1]:
        return f"{reaches[0]} ({times[0]})"
    return f"{reaches[0]}..{reaches[-1]} ({times[0]}..{times[-1]})"


def _spread(lengths: list[int], most: int) -> list[int]:
    """At most so many of the lengths, the first and the last among them."""
    if len(lengths) <= most:
        return lengths
    return [lengths[round(i * (len(lengths) - 1) / (most - 1))] for i in range(most)]
