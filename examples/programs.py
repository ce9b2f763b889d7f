"""Shipped tasks, written again as programs with cursors.  The tests compare their tokens, IDs and dependencies."""

from dataclasses import dataclass
from itertools import pairwise

from longreach.api import BadInput, Program, Region

DIGITS = tuple("0123456789")
PRIMED = tuple(f"{digit}'" for digit in DIGITS)


@dataclass(frozen=True, kw_only=True)
class Copy(Program):
    """c a b ; =  ->  c a b ."""

    alphabet = tuple("abcdefgh")

    def prompt(self, rng, length):
        return {"symbols": rng.choices(self.alphabet, k=length)}

    def run(self, symbols, write):
        while not symbols.at_end:
            write(symbols.read())
            symbols.step()


@dataclass(frozen=True, kw_only=True)
class Reverse(Copy):
    """; c a b =  ->  b a c ."""

    regions = {"symbols": Region(backward=True)}


@dataclass(frozen=True, kw_only=True)
class ParityScratchpad(Program):
    """1 0 1 1 ; =  ->  1 1 0 1 ."""

    alphabet = ("0", "1")

    def prompt(self, rng, length):
        return {"bits": rng.choices("01", k=length)}

    def run(self, bits, write):
        while not bits.at_end:
            parity = int(bits.read()) ^ int(write.last() or 0)
            write(str(parity))
            bits.step()


@dataclass(frozen=True, kw_only=True)
class Addition(Program):
    """; 3 7 + 4 8 =  ->  5' 8 0 ."""

    alphabet = (*DIGITS, *PRIMED)
    regions = {"first": Region(backward=True), "second": Region(backward=True, opening="+", close="")}
    levels = {"first": "digit", "second": "digit"}

    def prompt(self, rng, length):
        return {"first": rng.choices(DIGITS, k=length), "second": rng.choices(DIGITS, k=length)}

    def run(self, first, second, write):
        while not first.at_end:
            carry = (write.last() or "0").endswith("'")
            total = int(first.read()) + int(second.read()) + carry
            write((DIGITS + PRIMED)[total % 10 + 10 * (total > 9)])
            first.step(), second.step()
        write("1" if write.last().endswith("'") else "0")
        first.step(), second.step()


@dataclass(frozen=True, kw_only=True)
class VariableAssignment(Program):
    """c d  a b  b c  x b ? a =  ->  a b c d .   A statement `d .` may end the chain, too."""

    alphabet = tuple("abcdefghijklmnopqrstuvwxyz")
    regions = {
        "statements": Region(record=2, field=2, close="", start="nowhere"),
        "query": Region(opening="?", close="", placed=False, size=1),
    }

    def prompt(self, rng, length):
        names = rng.sample(self.alphabet, length + 2)  # at most 24 statements
        chain = [*pairwise(names[:4])]
        others = [(left, rng.choice(names)) for left in names[4 : length + 1]]
        statements = rng.sample(chain + others, length)
        return {"statements": [name for pair in statements for name in pair], "query": names[:1]}

    def run(self, statements, query, write):
        write(query.read())
        while statements.find(write.last()) and (name := statements.read(2)) != self.stop:
            write(name)


@dataclass(frozen=True, kw_only=True)
class PointerChasing(Program):
    """b c  a b  c a ? a # # ; =  ->  a b c ."""

    alphabet = ("#", *"abcdefghijklmnopqrstuvwxyz")
    regions = {
        "statements": Region(record=2, field=2, close="", start="nowhere"),
        "query": Region(opening="?", close="", placed=False, size=1),
        "marks": Region(),
    }

    def prompt(self, rng, length):
        names = rng.sample(self.alphabet[1:], length)
        pairs = rng.sample([*zip(names, [*names[1:], names[0]], strict=True)], length)
        return {"statements": [name for pair in pairs for name in pair], "query": names[:1], "marks": "###"}

    def run(self, statements, query, marks, write):
        write(query.read())
        statements.find(write.last())
        while not marks.at_end:
            write(statements.read(2))
            marks.step()
            statements.find(write.last())


@dataclass(frozen=True, kw_only=True)
class Tape(Program):
    """a b ^ c d =  ->  c > d < c < b ."""

    alphabet = (*"abcd", "<", ">")
    regions = {"cells": Region(close="", mark="^"), "moves": Region(given=True)}

    def check_length(self, length):
        if length < 2:
            raise BadInput(f"a tape has at least 2 cells, got {length}")

    def prompt(self, rng, length):
        place, moves = rng.randrange(length), []
        cells = rng.choices("abcd", k=length)
        head = place
        for _ in range(length):
            move = 1 if head == 0 else -1 if head == length - 1 else rng.choice((1, -1))
            head += move
            moves.append("<>"[move > 0])
        return {"cells": [*cells[:place], "^", *cells[place:]], "moves": moves}

    def run(self, cells, moves, write):
        write(cells.read())
        while move := moves.take():
            cells.step(1 if move == ">" else -1)
            write(cells.read())
