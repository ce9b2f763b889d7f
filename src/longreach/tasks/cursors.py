"""Cursors over the regions of a prompt, and the record of all that they read: where a program's IDs come from."""

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from longreach.errors import BadInput
from longreach.tasks.base import Form
from longreach.tasks.plain import Row
from longreach.tasks.regions import Layout, Region, RegionWords

_MOST_OPERATIONS = 20_000_000


class Trace:
    """One run of a program: the words that it wrote, with all that it read and all moves of its cursors."""

    def __init__(self, name: str, sign: str, stop: str, layout: Layout, regions: Mapping[str, list[str]]) -> None:
        self.name, self.stop, self.layout = name, stop, layout
        self.words: list[str] = []
        """Prompt and answer."""
        self.found: dict[str, RegionWords] = {}
        for name, spec in self.layout.specs.items():
            if spec.written:
                self.found[name] = RegionWords(spec)
            elif not spec.given:
                self._lay_out(name, spec, regions[name])
        self.words.append(sign)
        self.end = len(self.words)
        for words in self.found.values():
            if words.spec.written:
                words.places.append((self.end - 1,))
                self._index(words)
        self.operations = 0
        self._most_operations = min(_MOST_OPERATIONS, 10_000 + 100 * self.end**2)
        self.reads: list[list[tuple[str, int, int]]] = []
        """For each written token, and the stop: cursor (or `last`), field and index of every read, in order."""
        self.moves: list[list[tuple[str, str]]] = [[]]
        """Moves after the reads of each written token and before those of the next; those of the sign come first."""
        self.given: list[int] = []
        self.aligned: list[dict[str, int]] = []
        """IDs by level of the sign and of each written token."""
        self.published: list[dict[str, int]] = []
        self.strays: list[tuple[int, str]] = []
        """Number of a written token, and a cursor that it was read through at a place that no token before carries."""
        self._now: list[tuple[str, int, int]] = []
        self._early: list[tuple[str, str]] = []
        self._pushed: dict[str, int] = {}
        self._carried = True  # the sign carries the places at which cursors start
        given = {name: at for name, at in self.layout.of_cursor.items() if self.layout.specs[at].given}
        self._given = {name: Given(self, regions[region]) for name, region in given.items()}
        self._cursors = {name: Cursor(self, name) for name in self.layout.of_cursor if name not in given}
        self._placing = []
        """Each level with its cursors, their regions, and whether a closing word ends one of them."""
        for level, names in self.layout.placing.items():
            cursors = [self._cursors[one] for one in names]
            at = [self.found[cursor.region] for cursor in cursors]
            self._placing.append((level, cursors, at, any(region.closes for region in at)))
        self._placed = [cursor for _, cursors, _, _ in self._placing for cursor in cursors]
        self.aligned.append(self._places())
        self._sign = dict(self.aligned[0])
        self._held = self._places_of_cursors()

    @property
    def arguments(self) -> dict[str, Any]:
        return {**self._cursors, **self._given, "write": Write(self)}

    @property
    def answer(self) -> list[str]:
        return self.words[self.end :]

    def _lay_out(self, name: str, spec: Region, words: list[str]) -> None:
        mine = self.found[name] = RegionWords(spec, start=None if spec.start == "nowhere" else 1)
        self.words += [spec.opening] * bool(spec.opening)
        closing = (len(self.words),)
        if spec.close and spec.backward:
            self.words.append(spec.close)
        first, marked = len(self.words), []
        self.words += words
        if spec.close and not spec.backward:
            closing = (len(self.words),)
            self.words.append(spec.close)
        plain: list[int] = []
        for index in range(first, first + len(words)):
            if spec.mark and self.words[index] == spec.mark:
                marked.append((index, len(plain)))
            else:
                plain.append(index)
        mine.places = [tuple(plain[at : at + spec.record]) for at in range(0, len(plain), spec.record)]
        if spec.backward:
            mine.places.reverse()
        for index, before in marked:
            mine.start = len(plain) - before if spec.backward else before + 1
            mine.marks.append((index, mine.start))
        if spec.close:
            mine.places.append(closing)
        self._index(mine)

    def _index(self, words: RegionWords) -> None:
        """Let `find` know the places of a region."""
        for place, indices in enumerate(words.places, start=1):
            words.beginning.setdefault(self.words[indices[0]], []).append(place)

    # what cursors and `write` report

    def operate(self) -> None:
        self.operations += 1
        if self.operations > self._most_operations:
            raise BadInput(f"{self.name}: the program does not end: {self._most_operations:,} operations were made")

    def moved(self, cursor: str, how: str) -> None:
        self.operate()
        (self._early if self._carried else self.moves[-1]).append((cursor, how))

    def read(self, cursor: "Cursor", place: int, field: int) -> str:
        self.operate()
        if not self._carried:
            self._carry()
        if self._held.get(cursor.name, place) != place:
            self.strays.append((len(self.words) - self.end, cursor.name))
        index = self.found[cursor.region].places[place - 1][field - 1]
        self._now.append((cursor.name, field, index))
        return self.words[index]

    def notice(self, cursor: str, indices: Sequence[int]) -> None:
        """Record the words that `find` matched.  The token before still carries the moves that follow."""
        self._now += [(cursor, field, index) for field, index in enumerate(indices, start=1)]

    def take_stop(self) -> None:
        """Let the stop token be given."""
        self.given.append(len(self.words) - self.end)

    def read_last(self) -> str | None:
        self.operate()
        if len(self.words) == self.end:
            return None
        self._now.append(("last", 1, len(self.words) - 1))
        return self.words[-1]

    def write(self, word: str, given: bool = False, pushed_by: "Cursor | None" = None) -> None:
        self.operate()
        if not isinstance(word, str):
            raise BadInput(f"{self.name}: write takes a word, got {word!r}")
        self._carry()
        self._pushed = {}
        if pushed_by is not None:
            region = self.found[pushed_by.region]
            region.places.append((len(self.words),))
            region.beginning.setdefault(word, []).append(len(region.places))
            pushed_by.place = len(region.places)
            self._pushed = {pushed_by.region: len(region.places)}
        self.published.append(self._places())
        if given:
            self.given.append(len(self.words) - self.end)
        self.words.append(word)
        self.reads.append(self._now)
        self.moves.append(self._early)
        self._now, self._early, self._carried = [], [], False

    def finish(self) -> None:
        """End the answer.  A stop before which nothing was read depends on the last word."""
        self._carry()
        if not self._now:
            self.read_last()
        self.reads.append(self._now)

    def _carry(self) -> None:
        """Let the last token carry the places of the cursors, before the first read behind it."""
        if not self._carried:
            self._carried = True
            self.aligned.append(self._places())
            self._held = self._places_of_cursors()

    def _places_of_cursors(self) -> dict[str, int | None]:
        """Return the place of each cursor with a level, as the last token carries it."""
        return {cursor.name: self._pushed.get(cursor.region, cursor.place) for cursor in self._placed}

    def _places(self) -> dict[str, int]:
        """Return the ID of each level: 0 where its cursors stand nowhere, or behind a closing word."""
        found: dict[str, int] = {}
        for level, cursors, regions, closes in self._placing:
            place = cursors[0].place
            for other in cursors[1:]:
                if other.place != place:
                    raise BadInput(
                        f"{self.name}: {cursors[0].name} and {other.name} share the level {level}, but stand at"
                        f" {place} and {other.place}"
                    )
            pushed = [self._pushed[cursor.region] for cursor in cursors if cursor.region in self._pushed]
            # whether a region without a closing word ends here could only be known by looking ahead
            known = place is not None and place > 0 and (not closes or any(region.inside(place) for region in regions))
            found[level] = pushed[0] if pushed else (place or 0) * known
        for region, name in self.layout.fielded.items():
            cursor = self._cursors[name]
            found[f"{region} field"] = cursor.field if self.found[region].inside(cursor.place) else 0
        return found

    # results

    def columns(self) -> list[list[int]]:
        """Return the indices of the prompt's words that stand in the same field of the same region, without signs."""
        found = []
        for words in self.found.values():
            if not words.spec.written:
                places = words.places[:-1] if words.spec.close else words.places
                found += [list(column) for column in zip(*places, strict=True)]
        return found

    def prompt_ids(self, form: Form) -> list[list[int]]:
        """Return the IDs of the prompt for each level."""
        names = [level.name for level in self.layout.coupling_levels]
        ids = {name: [0] * self.end for name in names}
        for level, cursors, _, _ in self._placing:
            for region in {cursor.region for cursor in cursors}:
                words = self.found[region]
                for place, indices in enumerate(words.places, start=1):
                    for at, index in enumerate(indices, start=1):
                        if index < self.end:
                            ids[level][index] = place
                            if region in self.layout.fielded and (place < len(words.places) or not words.spec.close):
                                ids[f"{region} field"][index] = at
                for index, place in words.marks:
                    ids[level][index] = place
        for level, place in self._sign.items():
            written = any(
                self.layout.specs[self.layout.of_cursor[one]].written for one in self.layout.placing.get(level, ())
            )
            if form == "aligned" or written:
                ids[level][self.end - 1] = place
        return [ids[name] for name in names]

    def row(self) -> Row:
        names = [level.name for level in self.layout.coupling_levels]
        ids: dict[Form, list[list[int]]] = {}
        all_carried: dict[Form, list[dict[str, int]]] = {"published": self.published, "aligned": self.aligned[1:]}
        for form, carried in all_carried.items():
            answer = [[step.get(name, 0) for step in carried] for name in names]
            ids[form] = [before + behind for before, behind in zip(self.prompt_ids(form), answer, strict=True)]
        reads = [sorted({index for _, _, index in step}) for step in self.reads]
        return Row(self.words[: self.end], self.answer, ids, reads, self.given)

    def steps(self) -> Iterable[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        """Return, for each token that is predicted: the words it was read from, and what came of them.

        Equal words must have equal outcomes: the written word, and the moves of the cursors behind it.
        """
        for number, reads in enumerate(self.reads):
            seen = tuple((cursor, at, self.words[index]) for cursor, at, index in dict.fromkeys(reads))
            nowhere = tuple(level for level, place in self.aligned[number].items() if place == 0)
            if number not in self.given:
                yield (seen, nowhere), self._outcome(number)

    def views(self) -> Iterable[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        """Return, for each token that is predicted: all that could be read for it, and what came of it.

        That is the last word, for every level the words at the place that the last token carries, and whatever was read
        elsewhere.  A step may read more or fewer of them; equal ones must have equal outcomes all the same.
        """
        regions = {level: self.layout.of_cursor[cursors[0]] for level, cursors in self.layout.placing.items()}
        for number, reads in enumerate(self.reads):
            carried, last = self.aligned[number], self.end + number - 1
            seen: list[tuple[Any, ...]] = []
            visible = {last}
            for level, region in regions.items():
                words = self.found[region]
                if words.inside(carried[level]):
                    indices = words.places[carried[level] - 1]
                    visible.update(indices)
                    seen.append((level, *(self.words[index] for index in indices)))
            seen += [(level, at) for level, at in carried.items() if level not in regions]
            elsewhere = dict.fromkeys((name, index) for name, _, index in reads if index not in visible)
            seen += [(name, self.words[index]) for name, index in elsewhere]
            if number not in self.given:
                yield (self.words[last], *seen), self._outcome(number)

    def _outcome(self, number: int) -> tuple[Any, ...]:
        if number == len(self.answer):
            return self.stop, ()
        return self.answer[number], tuple(self.moves[number + 1])


class Cursor:
    """A place in a region.  Moves cost nothing; every read counts as a token that the next written one depends on."""

    def __init__(self, trace: Trace, name: str) -> None:
        self.name, self._trace = name, trace
        self.region = trace.layout.of_cursor[name]
        self._words = trace.found[self.region]
        self.place: int | None = self._words.start
        self.field = self._words.spec.field
        """The word of a record that was read last, or `Region.field` after a move."""

    def read(self, field: int = 1) -> str:
        """Return the word here, or word number `field` of the record."""
        place, places = self.place, self._words.places
        if place is None or not 1 <= place <= len(places):
            where = "nowhere" if place is None else f"at {place} of {len(places)} places"
            raise BadInput(f"{self._trace.name}: {self.name} reads, but stands {where}{_caller()}")
        if not 1 <= field <= len(places[place - 1]):
            raise BadInput(f"{self._trace.name}: {self.name} has no word {field} at {place}{_caller()}")
        word = self._trace.read(self, place, field)
        self.field = field
        return word

    @property
    def at_end(self) -> bool:
        """Read whether the closing word stands here."""
        spec = self._words.spec
        if not spec.close or spec.written:
            raise BadInput(f"{self._trace.name}: region {self.region} has no closing word to read{_caller()}")
        closed: bool = self.read() == spec.close and self.place == len(self._words.places)
        return closed

    def step(self, by: Literal[1, -1] = 1) -> None:
        """Move to the next place, or to the one before."""
        if by not in (1, -1):
            raise BadInput(f"{self._trace.name}: a step is 1 or -1, got {by!r}{_caller()}")
        self._move(None if self.place is None else self.place + by, f"step {by}")

    def find(self, word: str | None, *more: str) -> bool:
        """Move to the first place that begins with these words, which are read; nowhere and False if there is none."""
        if word is None:
            raise BadInput(f"{self._trace.name}: {self.name} finds no word before the first is written{_caller()}")
        words, how = (word, *more), " ".join(["find", word, *more])
        for place in self._words.beginning.get(word, ()):
            indices = self._words.places[place - 1][: len(words)]
            if tuple(self._trace.words[index] for index in indices) == words:
                self._move(place, how)
                self._trace.notice(self.name, indices)
                return True
        self._move(None, how)
        return False

    def jump(self, other: "Cursor") -> None:
        """Move to where another cursor of the same region stands."""
        if other.region != self.region:
            raise BadInput(f"{self._trace.name}: {self.name} and {other.name} are in different regions{_caller()}")
        self._move(other.place, f"jump {other.name}")

    def rewind(self) -> None:
        """Move to where the cursor started, which the sign in front of the answer shows."""
        self._move(self._words.start, "rewind")

    def push(self, word: str) -> None:
        """Write a word of the answer that becomes the last place of this region, and move there.

        The token carries its own place on all levels of the region.
        """
        if not self._words.spec.written:
            raise BadInput(f"{self._trace.name}: region {self.region} is not written{_caller()}")
        self._trace.write(word, pushed_by=self)

    def _move(self, place: int | None, how: str) -> None:
        self.place, self.field = place, self._words.spec.field
        self._trace.moved(self.name, how)


class Given:
    """Words that are drawn while the answer is written."""

    def __init__(self, trace: Trace, words: list[str]) -> None:
        self._trace, self._words, self._at = trace, words, 0

    def take(self) -> str | None:
        """Write the next word into the answer and read it; None behind the last: then the stop token is given."""
        if self._at == len(self._words):
            self._trace.take_stop()
            return None
        word, self._at = self._words[self._at], self._at + 1
        self._trace.write(word, given=True)
        self._trace.read_last()
        return word


class Write:
    """Writes the answer."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    def __call__(self, word: str) -> None:
        """Write one word."""
        self._trace.write(word)

    def last(self) -> str | None:
        """Return the word written last, which is read; None before the first."""
        return self._trace.read_last()


def _caller() -> str:
    """Return where a user's code called a cursor."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__") == __name__:
        frame = frame.f_back
    return "" if frame is None else f" ({frame.f_code.co_filename}:{frame.f_lineno})"
