"""Tasks that are programs with cursors: scratchpad, dependencies and IDs follow from the algorithm."""

import random
from dataclasses import dataclass
from functools import cached_property
from string import ascii_lowercase

from longreach.config.registry import register
from longreach.tasks.cursors import Cursor, Write
from longreach.tasks.program import Program, Regions
from longreach.tasks.regions import Region

DIGITS = tuple("0123456789")
PRIMED = tuple(f"{digit}'" for digit in DIGITS)
_BACK = ("!", "#", "<")


@register("task", "merge")
@dataclass(frozen=True, kw_only=True)
class Merge(Program):
    """Merge two sorted lists.  a c ; b b d ; =  ->  a b b c d .

    `length` counts the letters of both lists, which are cut anywhere.  Each prompt draws from its own set of 1 to 26
    letters, so that short lists have as many ties as long ones; on a tie the left list comes first.  A letter needs the
    two that are compared: 2-sparse.  Two cursors, `left` and `right`, each with its level; each stays or steps.
    """

    alphabet = tuple(ascii_lowercase)
    counted = ("left", "right")
    most_reads = 2

    def prompt(self, rng: random.Random, length: int) -> Regions:
        drawn = rng.choices(rng.sample(self.alphabet, rng.randint(1, 26)), k=length)
        cut = rng.randint(0, length)
        return {"left": sorted(drawn[:cut]), "right": sorted(drawn[cut:])}

    def run(self, left: Cursor, right: Cursor, write: Write) -> None:
        while not (left.at_end and right.at_end):
            smaller = left if right.at_end or (not left.at_end and left.read() <= right.read()) else right
            write(smaller.read())
            smaller.step()


@register("task", "insertion")
@dataclass(frozen=True, kw_only=True)
class Insertion(Program):
    """Insert an item into a sorted list.  c ; a b d ; =  ->  a b c d .

    `length` counts the letters of the list, which are drawn as for `merge`.  The item goes behind its equals.  A letter
    needs the item and a letter of the list: 2-sparse.  Two cursors, `item` and `items`: once the item is written its
    cursor stands at the mark behind it, which tells later steps that it is done.
    """

    alphabet = tuple(ascii_lowercase)
    counted = ("items",)
    most_reads = 2

    def prompt(self, rng: random.Random, length: int) -> Regions:
        drawn = rng.choices(rng.sample(self.alphabet, rng.randint(1, 26)), k=length + 1)
        return {"item": drawn[:1], "items": sorted(drawn[1:])}

    def run(self, item: Cursor, items: Cursor, write: Write) -> None:
        while not (item.at_end and items.at_end):
            smaller = items if item.at_end or (not items.at_end and items.read() <= item.read()) else item
            write(smaller.read())
            smaller.step()


@register("task", "polynomial")
@dataclass(frozen=True, kw_only=True)
class Polynomial(Program):
    """Evaluate a polynomial modulo 7 by Horner's rule.  3 : 2 0 5 ; =  ->  2 6 2 .

    `length` counts the coefficients, the highest in front; the number before `:` is the argument x, which is at least
    2.  Each value is x times the value before, plus a coefficient: 3-sparse.  The cursor `coefficients` steps on; the
    cursor `x` stays.
    """

    modulus: int = 7
    """A prime up to 97: all numbers are taken modulo it."""

    regions = {"x": Region(size=1, close=""), "coefficients": Region(opening=":")}
    counted = ("coefficients",)
    most_reads = 3

    def __post_init__(self) -> None:
        if self.modulus not in range(3, 98) or any(self.modulus % factor == 0 for factor in range(2, self.modulus)):
            raise ValueError(f"polynomial.modulus must be a prime in 3..97, got {self.modulus}")

    @cached_property
    def alphabet(self) -> tuple[str, ...]:
        return tuple(str(number) for number in range(self.modulus))

    def prompt(self, rng: random.Random, length: int) -> Regions:
        return {"x": [rng.choice(self.alphabet[2:])], "coefficients": rng.choices(self.alphabet, k=length)}

    def run(self, x: Cursor, coefficients: Cursor, write: Write) -> None:
        while not coefficients.at_end:
            value = int(write.last() or 0) * int(x.read()) + int(coefficients.read())
            write(str(value % self.modulus))
            coefficients.step()


@register("task", "run_length_encode")
@dataclass(frozen=True, kw_only=True)
class RunLengthEncode(Program):
    """Count the runs of equal letters.  a a a b c c ; =  ->  a 1 2 3 b 1 c 1 2 .

    `length` counts the letters.  Runs have 1 to 9 letters, and the last is cut.  The answer names a run's letter and
    counts up; a run that goes on behind 9 is named again.  A count needs a letter, the one before it and the count
    before: 3-sparse.  Two cursors over the letters, `now` and, one place behind it, `before`.
    """

    alphabet = (*"abcdefgh", *DIGITS[1:])
    cursors = {"now": "symbols", "before": "symbols"}
    counted = ("symbols",)
    most_reads = 3

    def longest(self, length: int) -> Regions:
        return {"symbols": ("ab" * length)[:length]}

    def prompt(self, rng: random.Random, length: int) -> Regions:
        runs = [rng.choice("abcdefgh") * rng.randint(1, 9) for _ in range(length)]
        return {"symbols": "".join(runs)[:length]}

    def run(self, now: Cursor, before: Cursor, write: Write) -> None:
        while not now.at_end:
            last = write.last() or ""
            goes_on = last.isdigit() and last != "9" and now.read() == before.read()
            word = "1" if last.isalpha() else str(int(last) + 1) if goes_on else now.read()
            write(word)
            if word.isdigit():
                now.step()
            if last.isdigit():
                before.step()


@register("task", "run_length_decode")
@dataclass(frozen=True, kw_only=True)
class RunLengthDecode(Program):
    """Write out runs of letters.  1 2 3 : a 3 b 1 c 2 ; =  ->  a a a b c c .

    `length` counts the runs, whose sizes are uniform from 1 to 9.  A ruler, as long as the longest run, stands in
    front.  A letter needs its run's letter and size and a number of the ruler: 3-sparse.  The cursor `ruler` steps on
    with each letter; at the end of a run it goes back to its start, and the cursor `runs` steps on.
    """

    alphabet = (*"abcdefgh", *DIGITS[1:])
    regions = {"ruler": Region(close=""), "runs": Region(record=2, opening=":")}
    counted = ("runs",)
    most_reads = 3

    def longest(self, length: int) -> Regions:
        return {"ruler": DIGITS[1:], "runs": ["a", "9"] * length}

    def prompt(self, rng: random.Random, length: int) -> Regions:
        sizes = [rng.randint(1, 9) for _ in range(length)]
        runs = [word for size in sizes for word in (rng.choice("abcdefgh"), str(size))]
        return {"ruler": DIGITS[1 : max(sizes) + 1], "runs": runs}

    def run(self, ruler: Cursor, runs: Cursor, write: Write) -> None:
        while not runs.at_end:
            last = ruler.read() == runs.read(2)
            write(runs.read())
            if last:
                runs.step()
                ruler.rewind()
            else:
                ruler.step()


@register("task", "string_search")
@dataclass(frozen=True, kw_only=True)
class StringSearch(Program):
    """Find a pattern wherever it occurs.  ^ a b ; c a b a ; =  ->  ^ ! > a b # < < > ! > a .

    `length` counts the letters of the text, which are uniform; the pattern is 1 to 3 of them in a row, from anywhere.
    From every place of the text, the first (`^`) and each next one (`>`), the answer repeats the letters that match, up
    to a mismatch (`!`) or the whole pattern (`#`), and steps back (`<`).  It ends where the text ends within a pattern.
    A step needs the token before, a letter of the pattern and one of the text: 3-sparse.  Two cursors,
    `pattern` and `text`, walk forward and back; the pattern's start is the sign `^`.
    """

    alphabet = (*"abcd", "^", ">", "<", "!", "#")
    counted = ("text",)
    most_reads = 3

    def longest(self, length: int) -> Regions:
        return {"pattern": "^aaa", "text": "a" * (length + 2)}

    def prompt(self, rng: random.Random, length: int) -> Regions:
        text, start = rng.choices("abcd", k=length), rng.randrange(length)
        return {"pattern": ["^", *text[start : start + rng.randint(1, 3)]], "text": text}

    def run(self, pattern: Cursor, text: Cursor, write: Write) -> None:
        while (last := write.last()) in _BACK or pattern.at_end or not text.at_end:
            if pattern.read() == "^" or last in _BACK:
                word = "<" if pattern.read() != "^" else ">" if last else "^"
            else:
                word = "#" if pattern.at_end else text.read() if text.read() == pattern.read() else "!"
            write(word)
            pattern.step(-1 if word in _BACK else 1)
            if word not in ("^", "!", "#"):
                text.step(-1 if word == "<" else 1)


@register("task", "long_division")
@dataclass(frozen=True, kw_only=True)
class LongDivision(Program):
    """Divide a number by a digit.  7 3 5 / 4 =  ->  1 3' 8 1' 3 3' .

    `length` counts the digits of the dividend, zeros in front included; divisors are 2 to 9.  The answer has a digit of
    the quotient and, with a prime, the remainder, for each digit of the dividend.  Either needs a digit, the divisor
    and the token before: 3-sparse.  The cursor `dividend` steps on behind each remainder; the cursor `divisor` stays.
    """

    alphabet = (*DIGITS, *PRIMED)
    regions = {"dividend": Region(close="/"), "divisor": Region(size=1, close="")}
    counted = ("dividend",)
    most_reads = 3

    def prompt(self, rng: random.Random, length: int) -> Regions:
        return {"dividend": rng.choices(DIGITS, k=length), "divisor": [rng.choice(DIGITS[2:])]}

    def run(self, dividend: Cursor, divisor: Cursor, write: Write) -> None:
        while not dividend.at_end:
            remainder = int((write.last() or "0")[0])
            write(str((10 * remainder + int(dividend.read())) // int(divisor.read())))
            # the remainder is below 10, so that the tens of what is divided do not matter
            write(PRIMED[(int(dividend.read()) - int(write.last() or 0) * int(divisor.read())) % 10])
            dividend.step()


@register("task", "stack_machine")
@dataclass(frozen=True, kw_only=True)
class StackMachine(Program):
    """Work out a stack of digits modulo 10.  3 4 5 : + ~ - ; =  ->  5 9 1 2 .

    `length` counts the digits, which are pushed in this order; operators follow.  `+`, `-` and `*` replace the two
    topmost numbers by their result, and `~` negates the topmost; there is one `~` for two digits, and operators come in
    random order.  The answer is the topmost number before and after each operator.  It needs the one before, an
    operator and a digit: 3-sparse.  The cursor `numbers` goes down the stack, and stays at a `~`; the cursor
    `operators` steps on.

    All digits stand in front of the operators, so that the number below a result is the next one of the prompt.  With
    digits between operators a pointer would have to dereference: to look up the place below one of the operands.
    """

    alphabet = (*DIGITS, "+", "-", "*", "~")
    regions = {"numbers": Region(backward=True, close=""), "operators": Region(opening=":")}
    counted = ("numbers",)
    most_reads = 3

    def prompt(self, rng: random.Random, length: int) -> Regions:
        operators = rng.choices("+-*", k=length - 1) + ["~"] * (length // 2)
        return {"numbers": rng.choices(DIGITS, k=length), "operators": rng.sample(operators, len(operators))}

    def run(self, numbers: Cursor, operators: Cursor, write: Write) -> None:
        write(numbers.read())
        numbers.step()
        while not operators.at_end:
            operator, top = operators.read(), int(write.last() or 0)
            if operator == "~":
                write(str(-top % 10))
            else:
                below = int(numbers.read())
                write(str({"+": below + top, "-": below - top, "*": below * top}[operator] % 10))
                numbers.step()
            operators.step()
