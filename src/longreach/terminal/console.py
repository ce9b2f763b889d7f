"""Two consoles: results go to stdout, everything else to stderr.

Text from files reaches the terminal as text: the consoles read no markup and show control characters as escapes.
"""

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from longreach.system.labels import visible


class _SafeConsole(Console):
    """A console on which only the program, and no text that it prints, can move the cursor or change a colour."""

    def render_str(self, text: str, **options: Any) -> Text:  # before it is measured, so that tables keep their form
        return super().render_str(visible(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)


# emoji: a range of lengths, 200:100:50, would have a picture in its middle
out = _SafeConsole(emoji=False, markup=False)
say = _SafeConsole(stderr=True, emoji=False, markup=False)
