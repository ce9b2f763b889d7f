"""The programs on which the preset `ppc` was chosen; docs/results.md has programs that it had not seen."""

from dataclasses import dataclass

from longreach.api import Program, Region

DIGITS = tuple("0123456789")
LETTERS = tuple("abcdefgh")
NAMES = tuple(f"n{number}" for number in range(1100))


@dataclass(frozen=True, kw_only=True)
class MergeDigits(Program):
    """Merge two sorted lists of digits: cursors that stay or step.  1 4 ; 2 3 ; =  ->  1 2 3 4 ."""

    alphabet = DIGITS

    def prompt(self, rng, length):
        cut = rng.randrange(length + 1)
        return {"left": sorted(rng.choices(DIGITS, k=cut)), "right": sorted(rng.choices(DIGITS, k=length - cut))}

    def run(self, left, right, write):
        while not (left.at_end and right.at_end):
            smaller = left if right.at_end or (not left.at_end and left.read() <= right.read()) else right
            write(smaller.read())
            smaller.step()


@dataclass(frozen=True, kw_only=True)
class TranslateNames(Program):
    """Look names up in a table that grows: a cursor that finds.  n7 n3 ; n3 5 n7 1 ; =  ->  n7 1 n3 5 ."""

    alphabet = (*NAMES, *DIGITS)
    regions = {"text": Region(), "table": Region(record=2, start="nowhere")}

    def prompt(self, rng, length):
        names = rng.sample(NAMES, length)
        table = [word for name in names for word in (name, rng.choice(DIGITS))]
        return {"text": rng.choices(names, k=max(1, length // 2)), "table": table}

    def run(self, text, table, write):
        while not text.at_end:
            write(text.read())
            table.find(write.last())
            write(table.read(2))
            text.step()


@dataclass(frozen=True, kw_only=True)
class Repeat(Program):
    """Copy a list once for each mark: a cursor that rewinds.  a b ; # # ; =  ->  a b | a b | ."""

    alphabet = (*LETTERS, "|", "#")

    def prompt(self, rng, length):
        return {"items": rng.choices(LETTERS, k=length), "marks": "#" * rng.randrange(1, 4)}

    def run(self, items, marks, write):
        while not marks.at_end:
            while not items.at_end:
                write(items.read())
                items.step()
            write("|")
            items.rewind()
            marks.step()


@dataclass(frozen=True, kw_only=True)
class Blocks(Program):
    """Write every block twice: a cursor that jumps to another.  a b | c | ; =  ->  a b < a' b' | c < c' | ."""

    alphabet = (*LETTERS, *(f"{letter}'" for letter in LETTERS), "|", "<")
    cursors = {"here": "items", "start": "items"}

    def prompt(self, rng, length):
        items = []
        while len(items) < length:
            items += [*rng.choices(LETTERS, k=rng.randrange(1, 7)), "|"]
        return {"items": items}

    def run(self, here, start, write):
        while not here.at_end:
            word, last = here.read(), write.last() or "|"
            again = last == "<" or last.endswith("'")
            if word != "|":
                write(word + "'" * again)
                here.step()
            elif again:
                write("|")
                here.step()
                start.jump(here)
            else:
                write("<")
                here.jump(start)


@dataclass(frozen=True, kw_only=True)
class Pick(Program):
    """Look letters up and take the field that a bit says: records.  a d e  b c a ; b 1 a 0 ; =  ->  b a a d ."""

    alphabet = (*LETTERS, "0", "1")
    regions = {"table": Region(record=3, start="nowhere"), "text": Region(record=2)}

    def prompt(self, rng, length):
        table = [word for key in rng.sample(LETTERS, 8) for word in (key, *rng.choices(LETTERS, k=2))]
        return {
            "table": table,
            "text": [word for _ in range(length) for word in (rng.choice(LETTERS), rng.choice("01"))],
        }

    def run(self, table, text, write):
        while not text.at_end:
            write(text.read())
            table.find(write.last())
            write(table.read(2 + int(text.read(2))))
            text.step()
