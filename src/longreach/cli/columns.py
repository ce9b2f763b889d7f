"""Plain columns for tables of any length: rich would take seconds to draw 10,000 lines."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from longreach.system.labels import visible
from longreach.terminal.console import out


def print_columns(columns: Mapping[str, Sequence[Any]], keep: Collection[str] = ()) -> list[str]:
    """Print columns side by side and skip empty ones; return the names of columns too wide for the terminal.

    The columns in `keep` are printed in any case, the others in order as long as there is room beside these.
    """
    texts = {name: [_text(value) for value in values] for name, values in columns.items()}
    filled = {name: column for name, column in texts.items() if any(column)}
    widths = {name: max(len(name), *map(len, column)) for name, column in filled.items()}
    room = out.width if out.is_terminal else None  # a file, or a program that reads along, has room
    chosen = {name for number, name in enumerate(filled) if not number or name in keep}
    for name in filled:
        wider = chosen | {name}
        if room is not None and name not in chosen and sum(widths[other] + 2 for other in wider) - 2 > room:
            break
        chosen = wider
    shown = [name for name in filled if name in chosen]
    numbers = {name for name in shown if all(isinstance(value, int | float | None) for value in columns[name])}
    for line in (shown, *zip(*(filled[name] for name in shown), strict=True)):
        cells = zip(shown, line, strict=True)
        padded = [text.rjust(widths[name]) if name in numbers else text.ljust(widths[name]) for name, text in cells]
        print("  ".join(padded).rstrip())
    return [name for name in filled if name not in shown]


def _text(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else visible(str(value))
