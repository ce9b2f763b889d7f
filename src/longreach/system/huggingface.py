"""The one place that imports the optional package transformers."""

import importlib
import re
from importlib import metadata
from typing import Any

from longreach.errors import BadInput

LEAST = (5, 5)
"""The first release that works: older ones compute a wrong rotary fraction for GPT-NeoX."""
_INSTALL = "pip install 'longreach[hf]'"


def import_transformers(for_what: str, module: str = "") -> Any:
    """Return the package transformers, or a module of it; raise BadInput if it is absent or too old.

    The import takes seconds, so callers do it late.
    """
    try:
        found = metadata.version("transformers")
    except metadata.PackageNotFoundError as error:
        raise BadInput(f"{for_what} needs the package transformers: {_INSTALL}") from error
    numbers = tuple(int(number) for number in re.findall(r"\d+", found)[:2])
    if numbers < LEAST:
        least = ".".join(map(str, LEAST))
        raise BadInput(f"{for_what} needs transformers {least} or newer, found {found}: {_INSTALL} --upgrade")
    return importlib.import_module(f"transformers.{module}" if module else "transformers")
