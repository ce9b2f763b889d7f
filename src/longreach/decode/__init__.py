"""From a prompt to an answer."""

from longreach.decode.generate import Generated, answers, generate
from longreach.decode.sampling import Sampling

__all__ = ["Generated", "Sampling", "answers", "generate"]
