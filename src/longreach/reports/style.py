"""One look for every figure: colours, sizes of a paper's columns, and files that are the same on every call."""

import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from longreach.system.files import write_atomically
from longreach.system.palette import DASHES, MARKERS, Style, styles

__all__ = [
    "PAPER",
    "TRAINED",
    "WIDTHS",
    "Style",
    "any_letters",
    "as_svg",
    "paper_style",
    "save_figure",
    "save_png",
    "shades",
    "styles",
]

WIDTHS = {"column": 3.25, "page": 6.75}
"""Inches."""

PAPER: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # ships with matplotlib: figures are the same on every machine
    "font.size": 7.5,
    "axes.titlesize": 8,
    "axes.labelsize": 7.5,
    "legend.fontsize": 7,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "figure.constrained_layout.h_pad": 0.03,
    "figure.constrained_layout.w_pad": 0.03,
}
"""Settings of matplotlib: sizes are read at the printed width."""


@contextmanager
def paper_style() -> Iterator[None]:
    """Draw with `PAPER` and `any_letters`."""
    with matplotlib.rc_context(PAPER), any_letters():
        yield


@contextmanager
def any_letters() -> Iterator[None]:
    """Silence warnings about letters that the font lacks: they are drawn as boxes."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from (current )?font", UserWarning)
        yield


TRAINED = "#ECECEC"
"""The range of training lengths."""


def shades(names: Sequence[str]) -> dict[str, Style]:
    """Return a style for each value of a setting: colours run from dark to bright, unlike those of variants."""
    scale = matplotlib.colormaps["viridis"]
    return {
        name: {
            "color": matplotlib.colors.to_hex(scale(0.88 * number / max(1, len(names) - 1))),
            "linestyle": DASHES[number // len(MARKERS) % len(DASHES)],
            "marker": MARKERS[number % len(MARKERS)],
        }
        for number, name in enumerate(names)
    }


@any_letters()
def save_png(figure: Figure, path: Path) -> None:
    figure.savefig(path, dpi=150)


@any_letters()
def save_figure(figure: Figure, path: Path) -> None:
    """Write a PDF with embedded fonts, an SVG with letters as outlines, or a PNG of 300 dots per inch.

    The same figure gives the same bytes: no date is written.
    """
    form = path.suffix[1:].lower()
    no_date = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {}}[form]
    content = io.BytesIO()
    with matplotlib.rc_context({"pdf.fonttype": 42, "svg.fonttype": "path", "svg.hashsalt": "longreach"}):
        figure.savefig(content, format=form, dpi=300, metadata=no_date)
    write_atomically(path, content.getvalue())


@any_letters()
def as_svg(figure: Figure) -> str:
    """Return the drawing alone, without XML's preamble, to stand in a page."""
    out = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "longreach"}):
        figure.savefig(out, format="svg", metadata={"Date": None})
    text = out.getvalue()
    return text[text.index("<svg") :]
