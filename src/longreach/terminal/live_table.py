"""The table of `longreach watch`: the runs of a folder while they run."""

import math
import time

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from longreach.live import Overview, RunView, State, Watched
from longreach.system.labels import visible
from longreach.terminal.durations import duration

STYLES: dict[State, str] = {
    "running": "cyan",
    "failed": "red",
    "damaged": "red",
    "stopped": "yellow",
    "waiting": "dim",
    "finished": "green",
}
ROWS = 30
"""Of a table that is printed once."""
POINTS = 12
"""Of a curve in the table."""
_BLOCKS, _ASCII = "▁▂▃▄▅▆▇█", "_.-=+*#@"
_WIDE, _MIDDLE = 100, 80
"""Characters of a terminal from which all columns, or all but the rate, are shown."""
_BESIDE = 7
"""Lines of the terminal beside those of runs."""


def overview_table(overview: Overview, width: int, ascii_only: bool = False) -> RenderableType:
    """Return a table of runs, with the numbers of those that it leaves out below."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("run", overflow="fold", min_width=12)
    table.add_column("state", no_wrap=True)
    cells = [_cells(run) for run in overview.runs]
    shown = ["step", *(["rate"] if width >= _WIDE else []), "left", "loss", *(["score"] if width >= _MIDDLE else [])]
    shown = [name for name in shown if any(row[name] for row in cells)]
    for name in shown:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("losses", overflow="fold", min_width=POINTS)
    for run, row in zip(overview.runs, cells, strict=True):
        about = Text(visible(run.reason)) if run.reason else Text(sparkline(run, _ASCII if ascii_only else _BLOCKS))
        state = Text(f"{run.state}, test" if run.phase == "test" else run.state, style=STYLES[run.state])
        table.add_row(Text(visible(run.name)), state, *(row[name] for name in shown), about)
    notes = [Text(visible(_summary(overview)))]
    for sweep in overview.sweeps:
        notes.append(Text(f"sweep {sweep.name}: {sweep.runs} runs, {'running' if sweep.running else 'not running'}"))
    notes += [Text(problem, style="red") for problem in overview.problems]
    return Group(*([table] if overview.runs else []), *notes)


def _summary(overview: Overview) -> str:
    counts = ", ".join(f"{count} {state}" for state, count in overview.counts.items())
    total = sum(overview.counts.values())
    if not total:
        return f"no run in {overview.folder} yet"
    more = f"; {overview.left_out} of them are not shown" if overview.left_out else ""
    return f"{overview.folder}: {total} {'run' if total == 1 else 'runs'}: {counts}{more}"


def _cells(run: RunView) -> dict[str, str]:
    step = "" if run.step is None else f"{run.step}{'' if run.total is None else f'/{run.total}'}"
    score = f"{run.scores[-1][1]:.3g}" if run.scores else ""
    if run.exact:
        score = f"{run.exact[-1][1]:.2f} at {run.exact[-1][0]}"
    return {
        "step": step,
        "rate": "" if run.rate is None else f"{run.rate:.3g}/s",
        "left": "" if run.left is None else duration(run.left),
        "loss": "" if run.loss is None else f"{run.loss:.3g}",
        "score": score,
    }


def sparkline(run: RunView, blocks: str = _BLOCKS) -> str:
    """Return a character for each point of the losses, on a logarithmic scale where all are above 0."""
    values = [value for _, value in run.losses]
    if not values:
        return ""
    heights = [math.log(value) for value in values] if min(values) > 0 else values
    low, high = min(heights), max(heights)
    scale = (len(blocks) - 1) / (high - low) if high > low else 0.0
    return "".join(blocks[round((height - low) * scale)] for height in heights)


def watch_folder(watched: Watched, console: Console, every: float) -> None:
    """Draw the table anew every so many seconds, until KeyboardInterrupt; at most a tenth of the time goes into it."""
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        while True:
            start = time.monotonic()
            rows = max(3, console.height - _BESIDE)
            overview = watched.look(rows, POINTS)
            live.update(overview_table(overview, console.width, console.options.ascii_only), refresh=True)
            time.sleep(max(every, 9 * (time.monotonic() - start)))
