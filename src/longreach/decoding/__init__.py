"""From a prompt to an answer."""

from longreach.decoding.generate import Generated, Writing, answers, generate, write_answers
from longreach.decoding.sampling import Sampling

__all__ = ["Generated", "Sampling", "Writing", "answers", "generate", "write_answers"]
