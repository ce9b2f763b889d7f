"""Two consoles: results go to stdout, everything else to stderr."""

from rich.console import Console

# emoji: a range of lengths, 200:100:50, would have a picture in its middle
out = Console(emoji=False)
say = Console(stderr=True, emoji=False)
