"""From a prompt to an answer."""

from longreach.decode.generate import Generated, answers, generate

__all__ = ["Generated", "answers", "generate"]
