"""The program of the README."""

from dataclasses import dataclass

from longreach.api import Program


@dataclass(frozen=True, kw_only=True)
class Merge(Program):
    """Merge two sorted lists.  1 4 ; 2 3 3 ; =  ->  1 2 3 3 4 ."""

    alphabet = tuple("0123456789")

    def prompt(self, rng, length):
        digits, cut = rng.choices(self.alphabet, k=length), rng.randint(0, length)
        return {"left": sorted(digits[:cut]), "right": sorted(digits[cut:])}

    def run(self, left, right, write):
        while not (left.at_end and right.at_end):
            smaller = left if right.at_end or (not left.at_end and left.read() <= right.read()) else right
            write(smaller.read())
            smaller.step()
