"""From a prompt to an answer."""

from longreach.decoding.generate import Generated, Writing, answers, generate, write_answers
from longreach.decoding.sampling import SamplingConfig

__all__ = ["Generated", "SamplingConfig", "Writing", "answers", "generate", "write_answers"]
