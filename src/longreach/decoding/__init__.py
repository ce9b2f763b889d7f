"""From a prompt to an answer."""

from longreach.decoding.generate import Generated, Writing, answers, generate, write_answers
from longreach.decoding.room import prompt_with_room
from longreach.decoding.sampling import SamplingConfig

__all__ = ["Generated", "SamplingConfig", "Writing", "answers", "generate", "prompt_with_room", "write_answers"]
