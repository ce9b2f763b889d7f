"""Two consoles: results go to stdout, everything else to stderr.

Text from files reaches the terminal as text: the consoles read no markup and show control characters as escapes.
"""

import re
from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

_UNSAFE = re.compile("[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u202a-\\u202e\\u2066-\\u2069\\ud800-\\udfff]")
"""Control characters but tab and newline, marks that reverse the direction of text, and halves of characters."""


def visible(text: str) -> str:
    r"""Return a text with every character that would steer the terminal written as an escape, such as \x1b."""
    return _UNSAFE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


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
