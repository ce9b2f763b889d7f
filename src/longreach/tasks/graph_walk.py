"""A walk on a labelled graph: like pointer chasing, but which edge to take is decided while the answer is written."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from longreach.config.registry import register
from longreach.config.spans import Span
from longreach.errors import BadInput
from longreach.seeding import Draws
from longreach.tasks.base import Form, Level, Part, Sample, Task, build_sample, join
from longreach.tasks.names import distinct, letters, renew

_QUERY, _EQUALS, _STOP, _FIRST_MOVE = 1, 2, 3, 4


@register("task", "graph_walk")
@dataclass(frozen=True, kw_only=True)
class GraphWalk(Task):
    """Walk on a graph along given edges.  b a c  a b b  c c a ? a =  ->  a >2 b >2 c >1 c .

    `length` counts the nodes.  A statement `b a c` says that edge 1 of b leads to a and edge 2 to c; every edge
    leads to any node with equal probability.  The moves `>1`, `>2`, ... and the stop are given: drawn while the
    answer is written, never predicted.  A node needs the node before it, the move, that node's statement and the
    edge: 4-sparse, but where the last two stand depends on the whole walk.  With degree 1 it is a linked list.

    Coupling on two levels: the number of a statement, and within it the field: the node is 1, edge e is e + 1.
    Aligned: a node carries its own statement and field 1, and a move carries the statement and the field that
    the next step reads.  Published: a node carries the statement and the field that it was read from, none for
    the first, and a move the statement alone.  Everything else is reserved.  The task and both couplings are
    ours, after Golowich et al. (ICML 2025).
    """

    degree: int = 2
    """Edges that leave each node."""
    steps: Span = Span(4, 4)
    """Moves of the walk: a number, or a range such as 1..8."""
    num_names: int = 1000
    """How many different names there are."""

    stop_token = _STOP
    coupling_by_rule = False
    has_given = True

    def __post_init__(self) -> None:
        if not 1 <= self.degree <= 9:
            raise ValueError(f"graph_walk.degree must be in 1..9, got {self.degree}")
        if self.steps.low < 1:
            raise ValueError(f"graph_walk.steps must be at least 1, got {self.steps}")
        if self.num_names < 2:
            raise ValueError(f"graph_walk.num_names must be at least 2, got {self.num_names}")

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        moves = (f">{edge + 1}" for edge in range(self.degree))
        return ("_", "?", "=", ".", *moves, *(letters(number) for number in range(self.num_names)))

    @property
    def coupling_levels(self) -> tuple[Level, ...]:
        return (Level("node"), Level("field", size=self.degree + 1))

    def check_length(self, length: int) -> None:
        if not 2 <= length <= self.num_names:
            raise BadInput(f"graph_walk: length must be in 2..{self.num_names} (num_names), got {length}")

    def max_tokens(self, length: int) -> int:
        return (self.degree + 1) * length + 3 + self.max_answer(length)

    def max_answer(self, length: int) -> int:
        return 2 * self.steps.high + 2

    def sample(self, length: Int[Tensor, "b"], draws: Draws, max_length: int) -> Sample:
        steps = self.steps.draw(draws, "steps")
        names = distinct(draws, "names", self.num_names, max_length)  # of the nodes, in the order of the prompt
        targets = draws.below("targets", length[:, None], max_length * self.degree)
        moves = draws.below("moves", self.degree, self.steps.high + 1)  # one more than is written
        walk = [draws.below("start", length[:, None], 1)]
        for step in range(self.steps.high):
            walk.append(targets.gather(1, walk[-1] * self.degree + moves[:, step : step + 1]))
        facts = {"names": names, "targets": targets, "nodes": torch.cat(walk, dim=1), "moves": moves}
        return self._assemble(length, steps, facts, self.max_tokens(max_length))

    def redraw(self, sample: Sample, draws: Draws) -> Sample:
        """Edges that the walk does not take lead elsewhere; nodes that it does not meet get other names."""
        names, targets, nodes, moves = (sample.hidden[name] for name in ("names", "targets", "nodes", "moves"))
        steps = (sample.num_tokens - sample.prompt_tokens) // 2 - 1
        step = torch.arange(nodes.shape[1], device=nodes.device)
        taken = torch.zeros_like(targets, dtype=torch.bool)
        met = torch.zeros_like(names, dtype=torch.bool)
        edges = nodes * self.degree + moves  # beyond the end of the walk the first stands in: it is taken anyway
        taken.scatter_(1, torch.where(step < steps[:, None], edges, edges[:, :1]), True)
        met.scatter_(1, torch.where(step <= steps[:, None], nodes, nodes[:, :1]), True)
        targets = torch.where(taken, targets, draws.below("targets", sample.length[:, None], targets.shape[1]))
        facts = {"names": renew(names, met, self.num_names, draws, "names"), "targets": targets}
        return self._assemble(sample.length, steps, {**sample.hidden, **facts}, width=sample.tokens.shape[1])

    def _assemble(
        self, length: Int[Tensor, "b"], steps: Int[Tensor, "b"], facts: dict[str, Tensor], width: int
    ) -> Sample:
        spelled = facts["names"] + _FIRST_MOVE + self.degree
        edges = spelled.gather(1, facts["targets"]).view(len(spelled), -1, self.degree)
        statements = torch.cat([spelled[:, :, None], edges], dim=2).flatten(1)
        met = spelled.gather(1, facts["nodes"])
        written = torch.stack([met, _FIRST_MOVE + facts["moves"]], dim=2).flatten(1)
        parts: list[Part] = [(statements, (self.degree + 1) * length), (_QUERY, 1), (met[:, :1], 1), (_EQUALS, 1)]
        parts += [(written, 2 * steps + 1), (_STOP, 1)]
        prompt_tokens = (self.degree + 1) * length + 3
        sample = build_sample(join(parts, width), length, prompt_tokens, prompt_tokens + 2 * steps + 2, facts)
        return replace(sample, given=sample.answer & (self._after(sample) % 2 == 1))  # the moves and the stop

    def solve(self, sample: Sample, row: int) -> list[int]:
        end = int(sample.prompt_tokens[row])
        prompt, drawn = sample.tokens[row, :end].tolist(), sample.tokens[row, end + 1 :: 2].tolist()
        size = self.degree + 1
        statements = [prompt[i : i + size] for i in range(0, prompt.index(_QUERY), size)]
        edges = {statement[0]: statement[1:] for statement in statements}
        answer = [prompt[-2]]
        for move in drawn:
            if move == _STOP:
                return [*answer, _STOP]
            if not 0 <= move - _FIRST_MOVE < self.degree or answer[-1] not in edges:
                break
            answer += [move, edges[answer[-1]][move - _FIRST_MOVE]]
        raise BadInput("graph_walk: the prompt alone does not decide the answer, which also needs the moves")

    def sparsity(self, length: int) -> int:
        return 4  # the node before, the move, the same node in its statement, the edge

    def depends_on(self, sample: Sample) -> Bool[Tensor, "b t t"]:
        column = torch.arange(sample.tokens.shape[1], device=sample.tokens.device)[None, None, :]
        row, after = column.transpose(1, 2), self._after(sample)
        node, move = (self._at(sample, what, after // 2 - 1)[:, :, None] for what in ("nodes", "moves"))
        statement = (self.degree + 1) * node
        read = (column == statement) | (column == statement + 1 + move)
        start = column == sample.prompt_tokens[:, None, None] - 2
        needed = torch.where(after[:, :, None] == 0, start, read | (column == row - 2) | (column == row - 1))
        return needed & (sample.answer & ~sample.given)[:, :, None]

    def coupling(self, sample: Sample, form: Form) -> Int[Tensor, "b g t"]:
        size = self.degree + 1
        index = torch.arange(sample.tokens.shape[1], device=sample.tokens.device).expand_as(sample.tokens)
        in_statement = index < size * sample.length[:, None]
        node, field = torch.where(in_statement, index // size + 1, 0), torch.where(in_statement, index % size + 1, 0)
        if "nodes" in sample.hidden:
            after = self._after(sample)
            is_move = after % 2 == 1
            step = after // 2 if form == "aligned" else (after - 1) // 2  # published: what came before
            edge = self._at(sample, "moves", step) + 2
            read = torch.where(is_move, edge, 1) if form == "aligned" else torch.where(is_move, 0, edge)
            in_walk = (after >= 0) & (step >= 0) & (index < sample.num_tokens[:, None] - 1)
            node = torch.where(in_walk, self._at(sample, "nodes", step) + 1, node)
            field = torch.where(in_walk, read, field)
        return torch.stack([node, field], dim=1)

    def parse(self, text: str) -> list[int]:
        """Statements, a question mark and a node, with = behind them or not."""
        tokens = super().parse(text.strip().removesuffix("="))
        names = [token for token in tokens if token >= _FIRST_MOVE + self.degree]
        size = self.degree + 1
        if len(tokens) != len(names) + 1 or tokens[-2:-1] != [_QUERY] or len(names) % size != 1:
            raise BadInput(f"graph_walk: a prompt is statements of {size} names, ? and a name, got {text!r}")
        return [*tokens, _EQUALS]

    def prompt_length(self, tokens: Sequence[int]) -> int:
        length = (len(tokens) - 3) // (self.degree + 1)
        self.check_length(length)
        return length

    @staticmethod
    def _after(sample: Sample) -> Int[Tensor, "b t"]:
        """0 at the first answer token, negative in the prompt; odd at the moves."""
        index = torch.arange(sample.tokens.shape[1], device=sample.tokens.device)
        return index - sample.prompt_tokens[:, None]

    @staticmethod
    def _at(sample: Sample, what: str, step: Int[Tensor, "b t"]) -> Int[Tensor, "b t"]:
        """The node before a step of the walk, or the move made then."""
        walk = sample.hidden[what]
        return walk.gather(1, step.clamp(0, walk.shape[1] - 1))
