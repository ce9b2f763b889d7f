"""Tables, figures and pages.  Reads saved results only."""

from longreach.report.curves import THRESHOLDS, Result, headline_groups, load_results
from longreach.report.figures import save_png
from longreach.report.probe_write import ProbeReport, find_probes, write_probe_report
from longreach.report.sparsity_figure import sparsity_figure
from longreach.report.tables import score_table
from longreach.report.text import losses_to_csv, tables
from longreach.report.write import Report, write_report

__all__ = [
    "THRESHOLDS",
    "ProbeReport",
    "Report",
    "Result",
    "find_probes",
    "headline_groups",
    "load_results",
    "losses_to_csv",
    "save_png",
    "score_table",
    "sparsity_figure",
    "tables",
    "write_probe_report",
    "write_report",
]
