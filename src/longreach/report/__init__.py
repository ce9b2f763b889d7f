"""Tables, figures and pages.  Reads saved results only."""

from longreach.report.curves import THRESHOLDS, Result, headline_groups, load_results
from longreach.report.figures import save_png
from longreach.report.sparsity_figure import sparsity_figure
from longreach.report.tables import score_table
from longreach.report.text import tables
from longreach.report.write import Report, write_report

__all__ = [
    "THRESHOLDS",
    "Report",
    "Result",
    "headline_groups",
    "load_results",
    "save_png",
    "score_table",
    "sparsity_figure",
    "tables",
    "write_report",
]
