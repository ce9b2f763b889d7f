"""Two consoles: results go to stdout, everything else to stderr."""

from rich.console import Console

out = Console()
say = Console(stderr=True)
