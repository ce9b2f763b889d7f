"""A table as a file, in the form its name asks for."""

import io
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from longreach.errors import BadInput
from longreach.system.files import write_atomically
from longreach.system.labels import visible

FORMS = (".parquet", ".csv", ".json", ".tex", ".md")
TYPESET = (".tex", ".md")
"""Forms to be read by people."""
_MOST = 5_000
"""Rows of a table that is typeset."""


def check_form(path: Path) -> None:
    """Raise BadInput if the name has no known ending, or lies in no folder."""
    if path.suffix not in FORMS:
        raise BadInput(f"{path}: the name must end in {', '.join(FORMS)}")
    if not path.resolve().parent.is_dir():
        raise BadInput(f"{path}: there is no folder {path.resolve().parent}")


def export(table: pa.Table, path: Path, command: str = "") -> None:
    """Write a table.  Parquet keeps the types; JSON is a list with an object for each row.

    LaTeX (booktabs) and Markdown round rates to three digits and name the command in a comment.
    """
    content = io.BytesIO()
    if path.suffix == ".parquet":
        pq.write_table(table, content, compression="zstd")
    elif path.suffix == ".csv":
        pa.csv.write_csv(table, content)
    elif path.suffix == ".json":
        content.write((json.dumps(table.to_pylist()) + "\n").encode())
    else:
        if len(table) > _MOST:
            raise BadInput(
                f"{path}: {len(table):,} rows are too many to typeset, at most {_MOST:,}: narrow with --where"
            )
        typeset = to_latex if path.suffix == ".tex" else to_markdown
        content.write(typeset(table, command).encode())
    write_atomically(path, content.getvalue())


def to_latex(table: pa.Table, command: str = "") -> str:
    r"""Return a tabular for the package booktabs, without \begin{table} and \usepackage."""
    names, rows, numbers = _texts(table)
    lines = [r"% needs \usepackage{booktabs}"]
    lines += [f"% {visible(line)}" for line in command.splitlines()]
    lines += [rf"\begin{{tabular}}{{{''.join('r' if number else 'l' for number in numbers)}}}", r"\toprule"]
    lines += [" & ".join(map(escape_latex, names)) + r" \\", r"\midrule"]
    lines += [" & ".join(map(escape_latex, row)) + r" \\" for row in rows]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def to_markdown(table: pa.Table, command: str = "") -> str:
    """Return a table with pipes; the command stands above it in a comment."""
    names, rows, numbers = _texts(table)
    # a comment of HTML ends at its first --> or --!>
    comments = [re.sub("--(!?>)", r"-- \1", visible(line)) for line in command.splitlines()]
    lines = [f"<!-- {comment} -->\n" for comment in comments]
    lines += ["| " + " | ".join(map(escape_markdown, names)) + " |"]
    lines += ["|" + "|".join("---:" if number else "---" for number in numbers) + "|"]
    lines += ["| " + " | ".join(map(escape_markdown, row)) + " |" for row in rows]
    return "\n".join([*lines, ""])


_LATEX = {mark: rf"\{mark}" for mark in "&%_#${}"} | {
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\\": r"\textbackslash{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "`": r"\textasciigrave{}",
    # after a line break these two would be its arguments
    "[": "{[}",
    "*": "{*}",
}


def escape_latex(text: str) -> str:
    """Return a text that LaTeX prints as it is."""
    escaped = "".join(_LATEX.get(mark, mark) for mark in _on_one_line(text))
    return re.sub("-(?=-)", "-{}", escaped)  # two would be joined to a dash


def escape_markdown(text: str) -> str:
    """Return a text that Markdown prints as it is, inside a cell and without HTML."""
    plain = _on_one_line(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_{}\[\]()#+!|~$])", r"\\\1", plain)


def _on_one_line(text: str) -> str:
    """Return a text without line breaks and control characters."""
    return visible(" ".join(text.split()))


def _texts(table: pa.Table) -> tuple[list[str], list[list[str]], list[bool]]:
    """Return the names of filled columns, the rows as text, and which columns hold numbers."""
    columns = {name: column.to_pylist() for name, column in zip(table.column_names, table.columns, strict=True)}
    columns = {name: values for name, values in columns.items() if any(value not in (None, "") for value in values)}
    rows = zip(*map(_format, columns.values()), strict=True)
    numbers = [all(type(value) in (int, float, type(None)) for value in values) for values in columns.values()]
    return list(columns), [list(row) for row in rows], numbers


def _format(values: Sequence[Any]) -> list[str]:
    """Return a column as text: rates with three digits, counts as they are, nothing for values that are absent."""
    floats = [value for value in values if isinstance(value, float)]
    are_rates = all(value == 0 or 5e-4 <= value <= 1 for value in floats)
    form = ".3f" if are_rates else ".3g"
    return [
        "" if value is None else format(value, form) if isinstance(value, float) else str(value) for value in values
    ]
