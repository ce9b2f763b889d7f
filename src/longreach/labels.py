"""Text of users in figures."""


def label(text: str) -> str:
    r"""Return a text that matplotlib draws as it is: with two dollar signs it would otherwise be a formula."""
    return text.replace("$", r"\$")
