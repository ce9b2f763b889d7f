"""A search in a maze: every way that turns out wrong is walked back, and that is written down too."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from longreach.config.registry import register
from longreach.errors import BadInput
from longreach.seeding import Draws
from longreach.tasks.base import Level, Part, Sample, Worksheet, build_sample, join
from longreach.tasks.names import LAST, distinct, letters, renew, smallest

_QUERY, _END, _EQUALS, _STOP, _FIRST_NAME = 1, 2, 3, 4, 5


@register("task", "maze")
@dataclass(frozen=True, kw_only=True)
class Maze(Worksheet):
    """Search a maze without loops, depth first.  a b  c b  b d ? a d =  ->  a b c b d .

    `length` counts the nodes.  A pair `a b` is an edge between a and b; the question `? a d` names the start and the
    goal.  The edges form a random tree, in which every node but the first is joined to any of those before it, and
    stand in random order, turned either way.  The answer is the search with all its ways back: from each node take
    the next edge in the order of the prompt, behind the one that led there, and the first again behind the last.
    So neighbours are tried in turn, the way back comes last, and no list of visited nodes is needed.

    With pairs the next edge is known only from all edges in between, which must not have the node.  A step out of
    a dead end looks at every edge: k grows, 2n + 1.  With `layout: lists` each node has a statement with its
    neighbours in their order and a mark `;` behind them, `b a c d ;`.  Then a step needs the last two nodes, the goal
    (it is not there yet), and in the statement its node, the neighbour it came from, the next one and perhaps
    the mark: 7-sparse.

    Coupling on two levels: the edge, and which of its two tokens; or with lists the statement, and the place in it.
    Published: a node of the answer carries the IDs of the token that it was read from, none for the start.  Aligned:
    of the token that the next one is read from, none for the goal.  No rule gives them during generation.  The task
    and the couplings are ours.
    """

    layout: Literal["pairs", "lists"] = "pairs"
    """Whether the prompt has the edges, as pairs of nodes, or every node with all its neighbours."""
    num_names: int = 1000
    """How many different names there are."""

    stop_token = _STOP
    coupling_by_rule = False

    def __post_init__(self) -> None:
        if self.num_names < 2:
            raise ValueError(f"maze.num_names must be at least 2, got {self.num_names}")

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        return ("_", "?", ";", "=", ".", *(letters(number) for number in range(self.num_names)))

    @property
    def coupling_levels(self) -> tuple[Level, ...]:
        if self.layout == "pairs":
            return (Level("edge"), Level("field", size=2))
        return (Level("node"), Level("place"))

    def check_length(self, length: int) -> None:
        if not 2 <= length <= self.num_names:
            raise BadInput(f"maze: length must be in 2..{self.num_names} (num_names), got {length}")

    def max_tokens(self, length: int) -> int:
        graph = 2 * length - 2 if self.layout == "pairs" else 4 * length - 2
        return graph + 4 + self.max_answer(length)

    def max_answer(self, length: int) -> int:
        return 2 * length - 1  # both ways along every edge, but the goal is not the start

    def sample(self, length: Int[Tensor, "b"], draws: Draws, max_length: int) -> Sample:
        names = _FIRST_NAME + distinct(draws, "names", self.num_names, max_length)
        ends = self._edges(length, draws, max_length)
        index = torch.arange(ends.shape[1], device=length.device).expand_as(ends)
        # the ends by node, and for each node in the order of the prompt
        by_node = ends.argsort(dim=1, stable=True)
        rank = torch.empty_like(by_node).scatter_(1, by_node, index)
        degree = torch.zeros_like(names).scatter_add_(1, ends, (index < 2 * length[:, None] - 2).long())
        first = degree.cumsum(1) - degree
        in_turn = rank - first.gather(1, ends)
        behind = first.gather(1, ends) + (in_turn + 1) % degree.gather(1, ends).clamp(min=1)
        behind = by_node.gather(1, behind)

        # a way begins at an end, comes out at the other end of the edge, and goes on at the end behind that
        goes_on = behind.gather(1, index ^ 1)
        start = draws.below("start", length[:, None], 1)
        goal = (start + 1 + draws.below("goal", length[:, None] - 1, 1)) % length[:, None]
        ways = [by_node.gather(1, first.gather(1, start))]
        for _ in range(2 * max_length - 4):
            ways.append(goes_on.gather(1, ways[-1]))
        way = torch.cat(ways, dim=1)
        met = ends.gather(1, way ^ 1)
        moves = 1 + (met == goal).long().argmax(1)

        if self.layout == "pairs":
            graph, size, source, came = names.gather(1, ends), 2 * length - 2, way ^ 1, way
        else:
            beyond = torch.arange(max_length, device=length.device) >= length[:, None]
            order = smallest(draws.bits("statements", max_length).masked_fill(beyond, LAST), max_length)
            sizes = (degree + 2).gather(1, order)
            begins = torch.empty_like(order).scatter_(1, order, sizes.cumsum(1) - sizes)
            stands = begins.gather(1, ends) + 1 + in_turn  # where the other end is named
            size, source, came = 4 * length - 2, stands.gather(1, way), stands.gather(1, way ^ 1)
            graph = torch.full((len(names), 4 * max_length), _END, device=length.device)
            graph.scatter_(1, begins, names)
            stands = stands.masked_fill(index >= 2 * length[:, None] - 2, graph.shape[1] - 1)  # out of the way
            graph.scatter_(1, stands, names.gather(1, ends.gather(1, index ^ 1)))
        asked = torch.cat([names.gather(1, start), names.gather(1, goal)], dim=1)
        parts: list[Part] = [(graph, size), (_QUERY, 1), (asked, 2), (_EQUALS, 1), (asked[:, :1], 1)]
        parts += [(names.gather(1, met), moves), (_STOP, 1)]
        tokens = join(parts, self.max_tokens(max_length))
        hidden = {"names": names - _FIRST_NAME, "source": source, "came": came}
        return build_sample(tokens, length, size + 4, size + 6 + moves, hidden)

    def _edges(self, length: Int[Tensor, "b"], draws: Draws, max_length: int) -> Int[Tensor, "b ends"]:
        """The nodes of all edges, in the order of the prompt: two for each."""
        child = torch.arange(1, max_length, device=length.device)
        parent = draws.below("parents", child[None], max_length - 1)
        beyond = child >= length[:, None]
        order = smallest(draws.bits("order", max_length - 1).masked_fill(beyond, LAST), max_length - 1)
        pair = torch.stack([child.expand_as(parent).gather(1, order), parent.gather(1, order)], dim=2)
        turned = draws.below("turned", 2, max_length - 1)[:, :, None].bool()
        # edges beyond the length are set to the last node, where they stand behind all others
        return torch.where(turned, pair, pair.flip(2)).masked_fill(beyond[:, :, None], max_length - 1).flatten(1)

    def redraw(self, sample: Sample, draws: Draws) -> Sample:
        """Nodes that no step looks at get other names."""
        names = sample.hidden["names"]
        needed = self.depends_on(sample).any(1) | sample.answer
        kept = torch.zeros(len(names), len(self.vocabulary), dtype=torch.bool, device=names.device)
        kept.scatter_(1, torch.where(needed, sample.tokens, 0), True)
        again = renew(names, kept.gather(1, _FIRST_NAME + names), self.num_names, draws, "names")
        word = torch.arange(len(self.vocabulary), device=names.device).repeat(len(names), 1)
        word.scatter_(1, _FIRST_NAME + names, _FIRST_NAME + again)
        hidden = {**sample.hidden, "names": again}
        return replace(sample, tokens=word.gather(1, sample.tokens), hidden=hidden)

    def work_out(self, prompt: Sequence[str]) -> list[str]:
        graph, question = list(prompt[:-4]), list(prompt[-4:])
        neighbours = self._neighbours(graph)
        if question[:1] != ["?"] or question[-1:] != ["="] or not neighbours.keys() >= {*question[1:3]}:
            raise self._no_prompt()
        start, goal = question[1:3]
        trace, path, open_ways = [start], [start], [neighbours[start]]
        while trace[-1] != goal and path:
            if open_ways[-1]:
                node, *open_ways[-1] = open_ways[-1]
                at = neighbours[node].index(path[-1]) if path[-1] in neighbours[node] else -1
                if at < 0 or node in path:
                    raise self._no_prompt()
                open_ways.append(neighbours[node][at + 1 :] + neighbours[node][:at])
                path.append(node)
            else:
                path.pop()
                open_ways.pop()
            trace += path[-1:]
        if not path:
            raise self._no_prompt()
        return trace

    def _neighbours(self, graph: Sequence[str]) -> dict[str, list[str]]:
        """Of every node, in the order of the prompt; what is no tree is refused where the search meets it."""
        found: dict[str, list[str]] = {}
        if self.layout == "lists":
            *statements, rest = " ".join(graph).split(";")
            for words in map(str.split, statements):
                found.update({words[0]: words[1:]} if words else {})
            named = {name for names in found.values() for name in names}
            sound = not rest and len(found) == len(statements) and named <= found.keys()
        else:
            for first, second in zip(graph[::2], graph[1::2], strict=False):
                found.setdefault(first, []).append(second)
                found.setdefault(second, []).append(first)
            sound = len(graph) % 2 == 0
        if not sound or len(found) < 2 or {"?", ";", "=", "."} & found.keys():
            raise self._no_prompt()
        return found

    def _no_prompt(self) -> BadInput:
        edges = "a b c b b d" if self.layout == "pairs" else "b a c d ; a b ; c b ; d b ;"
        return BadInput(f"maze: a prompt is the edges of a tree, the start and the goal: {edges} ? a d =")

    def sparsity(self, length: int) -> int:
        if length == 2:
            return 4  # from the start to the goal at once
        return 7 if self.layout == "lists" else 2 * length + 1

    def reads(self, sample: Sample) -> Int[Tensor, "b t k"]:
        """With pairs these are not all: see `depends_on`."""
        index = torch.arange(sample.tokens.shape[1], device=sample.tokens.device)
        step, asked = self.step(sample), sample.prompt_tokens[:, None] - 3
        walks = sample.answer & (step >= 1) & (index < sample.num_tokens[:, None] - 1)
        comes = walks & (step >= 2)  # the first move comes from nowhere
        source, came = self._at(sample, "source", step - 1), self._at(sample, "came", step - 2)
        columns = [
            torch.where(sample.answer & (step == 0), asked, -1),
            torch.where(sample.answer & (step >= 1), asked + 1, -1),
            torch.where(sample.answer & (step >= 1), index - 1, -1),
            torch.where(comes, index - 2, -1),
            torch.where(walks, source, -1),
        ]
        if self.layout == "lists":
            node = self._begins(sample).gather(1, source)
            wraps = comes & (source <= came)  # behind the last neighbour stands the mark
            columns += [torch.where(walks, node, -1), torch.where(comes, came, -1), torch.where(wraps, came + 1, -1)]
        return torch.stack(columns, dim=2)

    def depends_on(self, sample: Sample) -> Bool[Tensor, "b t t"]:
        needs = super().depends_on(sample)
        if self.layout == "lists":
            return needs
        step, count = self.step(sample)[:, :, None], sample.length[:, None, None] - 1
        edge = torch.arange(sample.tokens.shape[1], device=sample.tokens.device) // 2
        source, came = (self._at(sample, "source", step[:, :, 0] - by)[:, :, None] // 2 for by in (1, 2))
        # edges behind the one it came by, up to the one it takes, which may be the same, all round
        later = (edge - came - 1) % count <= (source - came - 1) % count
        between = torch.where(step == 1, edge <= source, later) & (edge < count)
        walks = sample.answer & (step[:, :, 0] >= 1)
        walks &= torch.arange(sample.tokens.shape[1], device=needs.device) < sample.num_tokens[:, None] - 1
        came_by = (edge == came) & (step >= 2)
        return needs | ((between | came_by) & walks[:, :, None])

    def places(self, sample: Sample) -> Int[Tensor, "b g t"]:
        index = torch.arange(sample.tokens.shape[1], device=sample.tokens.device).expand_as(sample.tokens)
        step = self.step(sample)
        if self.layout == "pairs":
            ids = torch.stack([index // 2 + 1, index % 2 + 1], dim=1)
        else:
            begins = self._begins(sample)
            ids = torch.stack([(begins == index).cumsum(1), index - begins + 1], dim=1)
        ids = ids.masked_fill((step >= -4)[:, None], 0)
        if "source" not in sample.hidden:
            return ids
        source = self._at(sample, "source", step - 1)
        walks = (step >= 1) & (index < sample.num_tokens[:, None] - 1)
        return torch.where(walks[:, None], ids.gather(2, source[:, None].expand_as(ids)), ids)

    def prompt_length(self, tokens: Sequence[int]) -> int:
        return (len(tokens) - 2) // 2 if self.layout == "pairs" else list(tokens).count(_END)

    @staticmethod
    def _at(sample: Sample, what: str, move: Int[Tensor, "b t"]) -> Int[Tensor, "b t"]:
        """Where the node that a move leads to is read, or, once there, the node that the move came from."""
        walk = sample.hidden[what]
        return walk.gather(1, move.clamp(0, walk.shape[1] - 1))

    @staticmethod
    def _begins(sample: Sample) -> Int[Tensor, "b t"]:
        """Where the statement of each token begins."""
        index = torch.arange(sample.tokens.shape[1], device=sample.tokens.device)
        behind = torch.nn.functional.pad(sample.tokens == _END, (1, 0))[:, :-1]
        return torch.where(behind, index, 0).cummax(1).values
