"""Small tasks in plain Python, in a module that worker processes can import."""

import os
from dataclasses import dataclass

from longreach.api import PlainTask, Program, Row


def in_worker():
    """Return whether this is another process than the test's, which sets the variable."""
    return os.environ.get("DRAWN_TASKS_TEST") != str(os.getpid())


@dataclass(frozen=True, kw_only=True)
class Letters(PlainTask):
    """a b c =  ->  c b a ."""

    letters: int = 3
    """How many letters there are."""
    alphabet = ("=", *"abcdefgh")

    def row(self, rng, length):
        drawn = rng.choices("abcdefgh"[: self.letters], k=length)
        return Row([*drawn, "="], drawn[::-1])


@dataclass(frozen=True, kw_only=True)
class Fragile(Letters):
    """Fails in one sample of thirty."""

    def max_tokens(self, length):
        return 2 * length + 2

    def max_answer(self, length):
        return length + 1

    def row(self, rng, length):
        return super().row(rng, length // min(1, rng.randrange(30)))


@dataclass(frozen=True, kw_only=True)
class Quitting(Letters):
    """Fails in worker processes."""

    def row(self, rng, length):
        if in_worker():
            raise OSError("no more files")
        return super().row(rng, length)


@dataclass(frozen=True, kw_only=True)
class Untrue(Letters):
    """Draws from more than `rng`."""

    def row(self, rng, length):
        return Row(["=", *"ab"[in_worker()]], "a" * length)


@dataclass(frozen=True, kw_only=True)
class Echo(Program):
    """a b ; =  ->  a b ."""

    alphabet = tuple("abcd")
    coupling_by_rule = True

    def prompt(self, rng, length):
        return {"symbols": rng.choices(self.alphabet, k=length)}

    def run(self, symbols, write):
        while not symbols.at_end:
            write(symbols.read())
            symbols.step()
