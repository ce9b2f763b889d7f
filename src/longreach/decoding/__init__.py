"""From a prompt to an answer."""

from longreach.decoding.generate import Generated, answers, generate
from longreach.decoding.sampling import Sampling

__all__ = ["Generated", "Sampling", "answers", "generate"]
