"""A task of your own.  `longreach show examples.my_task.CopyDigits --length 4` draws a sample of it."""

from dataclasses import dataclass

from longreach.api import Task, build_sample, join


@dataclass(frozen=True, kw_only=True)
class CopyDigits(Task):
    """Copy the digits.  3 1 4 =  ->  3 1 4 ."""

    vocabulary = ("_", "=", ".", *"0123456789")
    stop_token = 2

    def max_tokens(self, length):
        return 2 * length + 2

    def sample(self, length, draws, max_length):
        digits = 3 + draws.below("digits", 10, max_length)
        tokens = join([(digits, length), (1, 1), (digits, length), (2, 1)], self.max_tokens(max_length))
        return build_sample(tokens, length, prompt_tokens=length + 1, num_tokens=2 * length + 2)

    def solve(self, sample, row):
        return [*sample.tokens[row, : sample.prompt_tokens[row] - 1].tolist(), 2]

    def prompt_length(self, tokens):
        return len(tokens) - 1
