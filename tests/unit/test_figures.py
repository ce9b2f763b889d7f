"""Figures for papers: no empty panel, no label over another, one colour per variant, the same bytes on every call."""

import csv
import re
import zlib
from itertools import pairwise
from pathlib import Path

import pytest
from helpers import CPU_CARD
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

import longreach as lr
from longreach.cli.main import main
from longreach.errors import BadInput
from longreach.evaluation import Loss, Score
from longreach.reports import FIGURES, FigureConfig, load_results
from longreach.reports.axes import length_axis, limit_lengths
from longreach.reports.errors_figure import errors_figure
from longreach.reports.figures import coverage_figure, reach_figure, styles
from longreach.reports.heatmap_figure import heatmap_figure
from longreach.reports.load import Result
from longreach.reports.paper import draw_figure
from longreach.reports.text import losses_figure
