"""From a prompt to an answer."""

from longreach.decoding.generate import Generated, answers, generate
from longreach.decoding.sampling import SamplingConfig

__all__ = ["Generated", "SamplingConfig", "answers", "generate"]
