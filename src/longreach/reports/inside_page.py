"""The page that shows generations of a trained model step by step.  One file that needs nothing else."""

import math
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from longreach.system.labels import visible


def render_inside_page(title: str, facts: Mapping[str, str], samples: Sequence[Mapping[str, Any]], step: int) -> str:
    """Return a page of `samples`, each as `page_data` returns it with a `name`; it opens at a step of the first one.

    `facts` are named lines below the title.
    """
    # autoescape, and `tojson` for the data of the script: tokens and titles hold any text
    template = Environment(autoescape=True).from_string(_own("inside.html.j2"))
    return template.render(
        title=visible(title),
        facts={name: visible(text) for name, text in facts.items()},
        style=Markup(_own("inside.css")),
        scripts=[Markup(_own(name)) for name in ("inside_heads.js", "inside_map.js", "inside.js")],
        data={"samples": [_plain(sample) for sample in samples], "step": step},
    )


def _own(name: str) -> str:
    return files("longreach.reports").joinpath(name).read_text(encoding="utf-8")


def _plain(value: Any) -> Any:
    """Round numbers to four digits, None for what JSON cannot hold; escape control characters of texts."""
    if isinstance(value, float):
        return float(f"{value:.4g}") if math.isfinite(value) else None
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
