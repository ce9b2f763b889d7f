"""Tables, figures and pages.  Reads saved results only."""

from longreach.report.curves import THRESHOLDS, Result, group, headline_metric, load_results
from longreach.report.tables import score_table
from longreach.report.write import Report, write_report

__all__ = ["THRESHOLDS", "Report", "Result", "group", "headline_metric", "load_results", "score_table", "write_report"]
