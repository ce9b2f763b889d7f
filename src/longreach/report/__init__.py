"""Tables, figures and pages.  Reads saved results only."""

from longreach.report.curves import THRESHOLDS, Result, headline_groups, load_results
from longreach.report.probe_write import ProbeReport, find_probes, write_probe_report
from longreach.report.tables import score_table
from longreach.report.write import Report, write_report

__all__ = [
    "THRESHOLDS",
    "ProbeReport",
    "Report",
    "Result",
    "find_probes",
    "headline_groups",
    "load_results",
    "score_table",
    "write_probe_report",
    "write_report",
]
