"""Text of users and of files, made fit for a terminal or a figure."""

import re

_UNSAFE = re.compile("[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u202a-\\u202e\\u2066-\\u2069\\ud800-\\udfff]")
"""Control characters but tab and newline, marks that reverse the direction of text, and halves of characters."""


def visible(text: str) -> str:
    r"""Return a text with every character that would steer the terminal written as an escape, such as \x1b."""
    return _UNSAFE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def label(text: str) -> str:
    r"""Return a text that matplotlib draws as it is: with two dollar signs it would otherwise be a formula."""
    return visible(text).replace("$", r"\$")
