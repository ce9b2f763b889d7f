"""The interactive page: one file that needs nothing else."""

from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from longreach.reports.explorer import as_script, explorer_data
from longreach.reports.load import Result


def render_page(results: Sequence[Result], title: str, problems: Sequence[str] = ()) -> str:
    """Return the page as HTML; `problems` are lines about runs that are left out."""
    data = explorer_data(results, title, problems)
    variants, runs = len(data["variants"]), len(results)
    summary = f"{variants} variant{'s' * (variants != 1)}, {runs} run{'s' * (runs != 1)}"
    # autoescape: names and settings come from files that anyone may have written
    page: str = template("page.html.j2").render(
        title=title,
        summary=summary,
        problems=data["problems"],
        css=asset("explorer.css"),
        data=Markup(as_script(data)),
        plotly=asset("vendor/plotly-cartesian.min.js"),
        tables_js=asset("tables.js"),
        explorer_js=asset("explorer.js"),
        sections_js=asset("sections.js"),
    )
    return page


def template(name: str) -> Any:
    """Return a template of this package, which escapes every value that is not marked as safe."""
    return Environment(autoescape=True).from_string(files("longreach.reports").joinpath(name).read_text())


def asset(name: str) -> Markup:
    """Return a style sheet or script of this package, to stand in a page as it is."""
    return Markup(files("longreach.reports").joinpath(name).read_text(encoding="utf-8"))
