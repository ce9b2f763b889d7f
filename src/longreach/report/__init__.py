"""Tables, figures and pages.  Reads saved results only."""

from longreach.report.curves import THRESHOLDS, Result, headline_groups, load_results
from longreach.report.tables import score_table
from longreach.report.write import Report, write_report

__all__ = ["THRESHOLDS", "Report", "Result", "headline_groups", "load_results", "score_table", "write_report"]
