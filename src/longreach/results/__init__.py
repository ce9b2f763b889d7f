"""Thousands of runs as one table.  Reads saved results only; needs the extra `table`."""

from longreach.errors import BadInput

try:
    import pyarrow  # noqa: F401
except ImportError as error:
    raise BadInput("tables of results need pyarrow: pip install 'longreach[table]'") from error

from longreach.results.export import TYPESET, check_form, export
from longreach.results.pivot import SUMMARIES, pivot
from longreach.results.select import Selection
from longreach.results.table import cells, load_runs, varied
from longreach.results.where import ColumnCondition, parse_condition

__all__ = [
    "SUMMARIES",
    "TYPESET",
    "ColumnCondition",
    "Selection",
    "cells",
    "check_form",
    "export",
    "load_runs",
    "parse_condition",
    "pivot",
    "varied",
]
