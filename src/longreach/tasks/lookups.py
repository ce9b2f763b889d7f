"""Programs that look words up: their cursors find what was just written, in a table or among what was written."""

import random
from dataclasses import dataclass
from functools import cached_property
from string import ascii_lowercase, ascii_uppercase
from typing import Annotated

from longreach.config import Bounds
from longreach.config.registry import register
from longreach.errors import BadInput
from longreach.tasks.cursors import Cursor, Write
from longreach.tasks.names import letters
from longreach.tasks.program import Program, Regions
from longreach.tasks.regions import Region


@dataclass(frozen=True, kw_only=True)
class _Named(Program):
    """Base of programs whose items have distinct names."""

    num_names: Annotated[int, Bounds(1, 1_000_000)] = 1000
    """How many different names there are."""

    @cached_property
    def alphabet(self) -> tuple[str, ...]:
        return ("-", *(letters(number) for number in range(self.num_names)))

    def check_length(self, length: int) -> None:
        if not 1 <= length <= self.num_names:
            raise BadInput(f"{self.name}: length must be in 1..{self.num_names} (num_names), got {length}")

    def names(self, rng: random.Random, count: int) -> list[str]:
        """Draw distinct names."""
        return rng.sample(self.alphabet[1:], count)


def _tree(rng: random.Random, names: list[str]) -> list[list[str]]:
    """Draw a tree whose nodes have up to two children: a name and its children's for each, the root first."""
    nodes = [[name, "-", "-"] for name in names]
    free = [(nodes[0], 1), (nodes[0], 2)]
    for node in nodes[1:]:
        parent, side = free.pop(rng.randrange(len(free)))
        parent[side] = node[0]
        free += [(node, 1), (node, 2)]
    return nodes


@register("task", "prompt_automaton")
@dataclass(frozen=True, kw_only=True)
class PromptAutomaton(Program):
    """Run the automaton of the prompt.  b a c  a b a  c c b ; 0 1 1 ; =  ->  b a a a .

    `length` counts the inputs, which are 0 and 1 and uniform.  A record `b a c` says that state b goes to a on 0 and to
    c on 1.  Either input permutes the states, and records stand in random order; the first is the start.  The answer is
    the start and every later state.  A state needs the one before, two words of its record and an input: 4-sparse.  The
    cursor `inputs` steps on; the cursor `table` finds the state just written.  Records have a level for their fields.
    """

    states: Annotated[int, Bounds(2, 26)] = 5
    """How many states there are."""

    regions = {"table": Region(record=3)}
    counted = ("inputs",)
    most_reads = 4

    @cached_property
    def alphabet(self) -> tuple[str, ...]:
        return (*ascii_lowercase[: self.states], "0", "1")

    def prompt(self, rng: random.Random, length: int) -> Regions:
        columns = [rng.sample(self.alphabet[:-2], self.states) for _ in range(3)]
        table = [name for record in zip(*columns, strict=True) for name in record]
        return {"table": table, "inputs": rng.choices("01", k=length)}

    def run(self, table: Cursor, inputs: Cursor, write: Write) -> None:
        write(table.read())
        table.find(write.last())
        while not inputs.at_end:
            table.read()  # so that the token before carries field 1, for the input to choose from there
            write(table.read(2 + int(inputs.read())))
            inputs.step()
            table.find(write.last())


@register("task", "tree_bfs")
@dataclass(frozen=True, kw_only=True)
class TreeBfs(_Named):
    """Walk a tree in breadth-first order.  a b c  c - -  b - - ; =  ->  a b c a b b c c .

    `length` counts the nodes.  A record `a b c` names a node and its children, `-` where there is none.  The root comes
    first, the others in random order.  A tree grows node by node, each in a uniformly drawn free place.  For each node
    of the queue the answer has the node, its children, which join the queue, and the node again: 4-sparse.  The cursor
    `table` finds the node just written.  The cursor `queue` reads the nodes that were pushed, and finds the place
    behind the node just written again; the cursor `tail` stands at the last of them.  The cursor `count`, over the
    records too, steps on with each node and says when all are done.  Records have a level for their fields.
    """

    regions = {"table": Region(record=3), "queue": Region(written=True)}
    cursors = {"count": "table", "tail": "queue"}
    counted, most_reads = ("table",), 4

    def prompt(self, rng: random.Random, length: int) -> Regions:
        root, *others = _tree(rng, self.names(rng, length))
        return {"table": [*root, *(name for node in rng.sample(others, length - 1) for name in node)]}

    def run(self, table: Cursor, count: Cursor, queue: Cursor, tail: Cursor, write: Write) -> None:
        tail.push(count.read())
        while table.find(write.last()):
            for field in (2, 3):
                if (child := table.read(field)) != "-":
                    tail.push(child)
            write(table.read())
            count.step()
            queue.find(write.last())
            queue.step()
            if count.at_end:
                return
            write(queue.read())


@register("task", "translate")
@dataclass(frozen=True, kw_only=True)
class Translate(Program):
    """Look up each letter in a table.  b B  c A  a C ; c a c ; =  ->  c A a C c A .

    `length` counts the letters of the text, which are uniform.  The table pairs `symbols` letters with as many
    capitals, and its records stand in random order.  The answer repeats each letter and translates it.  A capital needs
    the letter before it and both words of its record: 3-sparse.  The cursor `text` steps on; the cursor `table` finds
    the letter just written.  Records have a level for their fields.
    """

    symbols: Annotated[int, Bounds(2, 26)] = 10
    """How many letters there are."""

    regions = {"table": Region(record=2)}
    counted = ("text",)
    most_reads = 3

    @cached_property
    def alphabet(self) -> tuple[str, ...]:
        return (*ascii_lowercase[: self.symbols], *ascii_uppercase[: self.symbols])

    def prompt(self, rng: random.Random, length: int) -> Regions:
        small, capital = self.alphabet[: self.symbols], self.alphabet[self.symbols :]
        pairs = zip(rng.sample(small, self.symbols), rng.sample(capital, self.symbols), strict=True)
        return {"table": [word for pair in pairs for word in pair], "text": rng.choices(small, k=length)}

    def run(self, table: Cursor, text: Cursor, write: Write) -> None:
        while not text.at_end:
            write(text.read())
            table.find(write.last())
            write(table.read(2))
            text.step()
