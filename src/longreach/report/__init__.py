"""Tables, figures and pages.  Reads saved results only."""

from longreach.report.curves import THRESHOLDS, Result, headline_groups, load_results
from longreach.report.tables import score_table
from longreach.report.text import tables
from longreach.report.write import Report, write_report

__all__ = ["THRESHOLDS", "Report", "Result", "headline_groups", "load_results", "score_table", "tables", "write_report"]
