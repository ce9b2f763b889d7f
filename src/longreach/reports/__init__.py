"""Tables, figures and pages.  Reads saved results only."""

from longreach.reports.curves import THRESHOLDS, headline_groups
from longreach.reports.figures import save_png
from longreach.reports.load import (
    ModelMeasures,
    Result,
    RunResult,
    in_recipe_order,
    load_results,
    load_runs,
    run_result,
)
from longreach.reports.measures import measure_tables, measured_runs, measures_data, measures_figure
from longreach.reports.page import render_page
from longreach.reports.paper import FIGURES, FigureConfig, write_figure
from longreach.reports.probe_write import ProbeReport, find_probes, write_probe_report
from longreach.reports.sparsity_figure import sparsity_figure
from longreach.reports.tables import score_table
from longreach.reports.text import losses_to_csv, tables
from longreach.reports.write import Report, write_report

__all__ = [
    "FIGURES",
    "THRESHOLDS",
    "FigureConfig",
    "ModelMeasures",
    "ProbeReport",
    "Report",
    "Result",
    "RunResult",
    "find_probes",
    "headline_groups",
    "in_recipe_order",
    "load_results",
    "load_runs",
    "losses_to_csv",
    "measure_tables",
    "measured_runs",
    "measures_data",
    "measures_figure",
    "render_page",
    "run_result",
    "save_png",
    "score_table",
    "sparsity_figure",
    "tables",
    "write_figure",
    "write_probe_report",
    "write_report",
]
