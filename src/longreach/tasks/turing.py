"""The trace of a Turing machine that the prompt describes: a tape that is written on, and IDs that address it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn.functional import pad

from longreach.config.registry import register
from longreach.config.spans import Span
from longreach.errors import BadInput
from longreach.seeding import Draws
from longreach.tasks.base import Form, Level, Part, Sample, Worksheet, build_sample, join
from longreach.tasks.names import letters, smallest

_TICK, _END, _EQUALS, _STOP, _LEFT, _RIGHT, _FIRST_SYMBOL = 1, 2, 3, 4, 5, 6, 7
_STATE, _READ, _MOVE, _WRITTEN, _NEXT = 1, 2, 3, 4, 5
"""The fields of a rule."""


@register("task", "turing")
@dataclass(frozen=True, kw_only=True)
class Turing(Worksheet):
    """Run a Turing machine.  A a > b A  A b > a A  A [ > [ A  A ] < ] A  [ A a b ] # # ; =  ->  A a > b A b > a A .

    `length` counts the cells of the tape between its ends `[` and `]`.  A rule `A a > b B` says: in state A, where an
    a is read, move right, leave a b behind and go to state B.  There is one for every state and symbol, in random
    order.  On the tape the start state stands before the cell where the head starts.  The answer is the trace: every
    step is written as the rule that it follows, and the new state begins the next step.  A mark `#` says that the
    machine reads once more; `;` ends it.  Rules for the ends lead back onto the tape and leave the ends as they are,
    so that the head never falls off.

    A move needs the state, the symbol read and three tokens of the rule, and so do the symbol written and the new
    state: 5-sparse.  A symbol read needs its mark and the token last written into its cell, in the answer or in the
    prompt.  *Which* that is depends on all moves so far; they are not counted, since the cell's ID tells it.

    Coupling on four levels: the cell; the rule; the field within a rule, which is 4 for the tape, as for a written
    symbol; and the time, which numbers the marks.  Published: an answer token carries the head's cell, the time,
    and the rule and field that it was read from.  Aligned: those of the next token.  So all tokens of a step share
    its cell and its time, and a symbol in a cell that was written twice is the one whose time is nearer; the tape and
    the states, which look for written symbols, have their field, now 5.  No rule gives these IDs during generation.
    The task and both couplings are ours, after Hou et al. (2024), where a trace repeats the whole tape in every step,
    and the predicted position coupling of Golowich et al. (ICML 2025).
    """

    states: int = 2
    """How many states a machine has."""
    symbols: int = 2
    """How many different symbols there are, besides the ends."""
    steps: Span | None = None
    """Steps of the machine: a number, or a range such as 1..8; none: as many as the tape has cells."""
    sweep: float = 0.8
    """Probability that a rule goes on in its state's own direction and keeps the state, or, at an end, goes to a state
    that leads inwards.  0: moves and new states are uniform, and most machines soon go to and fro between two cells;
    1: the head turns at the ends only."""

    stop_token = _STOP
    coupling_by_rule = False
    # rules do not grow with length, but they are there to be pointed at: no class of its own for each
    coupling_levels = (Level("cell"), Level("rule"), Level("field", size=_NEXT), Level("time"))

    def __post_init__(self) -> None:
        if self.states < 1:
            raise ValueError(f"turing.states must be at least 1, got {self.states}")
        if self.symbols < 2:
            raise ValueError(f"turing.symbols must be at least 2, got {self.symbols}")
        if self.steps is not None and self.steps.low < 1:
            raise ValueError(f"turing.steps must be at least 1, got {self.steps}")
        if not 0 <= self.sweep <= 1:
            raise ValueError(f"turing.sweep must be in 0..1, got {self.sweep}")

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        symbols = (letters(number) for number in range(self.symbols))
        states = (letters(number).upper() for number in range(self.states))
        return ("_", "#", ";", "=", ".", "<", ">", *symbols, "[", "]", *states)

    def max_tokens(self, length: int) -> int:
        return self._tape + length + self._most_steps(length) + 5 + self.max_answer(length)

    def max_answer(self, length: int) -> int:
        return 4 * self._most_steps(length) + 2

    def sample(self, length: Int[Tensor, "b"], draws: Draws, max_length: int) -> Sample:
        steps = length if self.steps is None else self.steps.draw(draws, "steps")
        leaning = draws.below("leaning", 2, 1)
        moves, written, following = self._table(leaning, draws)
        index = torch.arange(max_length + 3, device=length.device)
        tape = pad(draws.below("cells", self.symbols, max_length), (1, 1), value=self.symbols)  # `[` in front
        tape = tape.masked_fill(index[:-1] == length[:, None] + 1, self.symbols + 1)
        start = 1 + draws.below("start", length[:, None], 1)

        heads, rules, memory = [start], [], tape.clone()
        state = draws.below("state", self.states, 1)
        for _ in range(self._most_steps(max_length)):
            rules.append(state * self._readable + memory.gather(1, heads[-1]))
            memory.scatter_(1, heads[-1], written.gather(1, rules[-1]))
            heads.append(heads[-1] + 2 * moves.gather(1, rules[-1]) - 1)
            state = following.gather(1, rules[-1])
        head, rule = torch.cat(heads, dim=1), torch.cat(rules, dim=1)

        order = smallest(draws.bits("order", self._rules), self._rules)  # the rule in each place
        fields = self._spelled(moves, written, following)
        statements = torch.stack([field.gather(1, order) for field in fields], dim=2)
        trace = torch.stack([field.gather(1, rule) for field in fields[1:]], dim=2)  # the new state is the next one's
        cells = _FIRST_SYMBOL + tape.gather(1, index - (index > start).long())
        first_state = fields[0].gather(1, rule[:, :1])
        parts: list[Part] = [(statements.flatten(1), self._tape)]
        parts += [(torch.where(index == start, first_state, cells), length + 3), (_TICK, steps), (_END, 1)]
        parts += [(_EQUALS, 1), (first_state, 1), (trace.flatten(1), 4 * steps), (_STOP, 1)]
        prompt_tokens = self._tape + length + steps + 5
        hidden = {"head": head, "rule": order.argsort(dim=1).gather(1, rule), "leaning": leaning}
        tokens = join(parts, self.max_tokens(max_length))
        return build_sample(tokens, length, prompt_tokens, prompt_tokens + 4 * steps + 2, hidden)

    def _table(self, leaning: Int[Tensor, "b 1"], draws: Draws) -> tuple[Int[Tensor, "b r"], ...]:
        """Moves (1 is right), symbols written and new states, by the number of the rule."""
        number = torch.arange(self._rules, device=leaning.device)
        state, symbol = number // self._readable, number % self._readable
        sweeps = draws.uniform("sweeps", self._rules) < self.sweep
        moves = torch.where(sweeps, (state + leaning) % 2, draws.below("moves", 2, self._rules))
        moves = torch.where(symbol < self.symbols, moves, (symbol == self.symbols).long())
        written = torch.where(symbol < self.symbols, draws.below("written", self.symbols, self._rules), symbol)
        drawn = draws.below("following", self.states, self._rules)
        beside = drawn ^ 1  # leads the other way; the last of an odd number has its partner below
        beside = torch.where(beside < self.states, beside, (drawn - 1).clamp(min=0))
        inwards = torch.where((drawn + leaning) % 2 == moves, drawn, beside)
        goes_on = torch.where(symbol < self.symbols, state, inwards)
        return moves, written, torch.where(sweeps, goes_on, drawn)

    def _spelled(
        self, moves: Int[Tensor, "b r"], written: Int[Tensor, "b r"], following: Int[Tensor, "b r"]
    ) -> list[Int[Tensor, "b r"]]:
        """The five fields of every rule as tokens."""
        number = torch.arange(self._rules, device=moves.device).expand_as(moves)
        state, symbol = number // self._readable, number % self._readable
        first_state = _FIRST_SYMBOL + self._readable
        return [
            first_state + state,
            _FIRST_SYMBOL + symbol,
            _LEFT + moves,
            _FIRST_SYMBOL + written,
            first_state + following,
        ]

    def redraw(self, sample: Sample, draws: Draws) -> Sample:
        """Cells that are never read and parts of rules that are never used; all rules keep their places."""
        tokens = sample.tokens
        index = torch.arange(tokens.shape[1], device=tokens.device)
        table = torch.stack(self._spelled(*self._table(sample.hidden["leaning"], draws)), dim=2).flatten(1)
        statement = (index.clamp(max=self._tape - 1) // _NEXT) * _NEXT
        first_state = _FIRST_SYMBOL + self._readable
        number = (tokens[:, statement] - first_state) * self._readable + tokens[:, statement + 1] - _FIRST_SYMBOL
        rules = table.gather(1, number * _NEXT + index % _NEXT)
        cells = _FIRST_SYMBOL + draws.below("cells", self.symbols, tokens.shape[1])
        in_rules, in_tape = index < self._tape, self._in_tape(sample)
        fresh = torch.where(in_rules, rules, cells)
        open_cell = in_tape & (tokens < _FIRST_SYMBOL + self.symbols)
        return replace(sample, tokens=torch.where((in_rules | open_cell) & ~self._needed(sample), fresh, tokens))

    def _needed(self, sample: Sample) -> Bool[Tensor, "b t"]:
        reads, t = self.reads(sample).flatten(1), sample.tokens.shape[1]
        needed = torch.zeros(len(reads), t + 1, dtype=torch.bool, device=reads.device)
        return needed.scatter_(1, torch.where(reads < 0, t, reads), True)[:, :t]

    def work_out(self, prompt: Sequence[str]) -> list[str]:
        machine, rest = self._machine(prompt[: self._tape]), list(prompt[self._tape :])
        tape = rest[: rest.index("]") + 1] if "]" in rest else []
        heads = [at for at, word in enumerate(tape) if word in self._state_words]
        cells = [word for word in tape if word not in self._state_words]
        clock = rest[len(tape) :]
        ticks = clock.index(";") if ";" in clock else 0  # the machine does not look further
        sound = len(machine) == self._rules and cells[:1] == ["["] and set(cells[1:-1]) <= set(self._symbol_words)
        placed = len(heads) == 1 and 1 <= heads[0] < len(cells) - 1
        if not sound or not placed or not ticks or {*clock[:ticks]} != {"#"} or clock[-1] != "=":
            raise BadInput(
                f"turing: a prompt is {self._rules} rules such as A a > b A, one for every state and symbol, where the"
                " ends [ and ] stay and lead inwards; a tape with a state before a cell; and marks: [ b A a ] # # ; ="
            )
        head, state, trace = heads[0], tape[heads[0]], []
        for _ in range(ticks):
            read = cells[head]
            move, cells[head], following = machine[state, read]
            trace += [state, read, move, cells[head]]
            head, state = head + (1 if move == ">" else -1), following
        return [*trace, state]

    def _machine(self, rules: Sequence[str]) -> dict[tuple[str, str], tuple[str, str, str]]:
        """The rules that are any, by state and symbol read."""
        machine = {}
        for at in range(0, len(rules) - 4, 5):
            state, read, move, written, following = rules[at : at + 5]
            stays = {"[": (">", "["), "]": ("<", "]")}
            moves = (move, written) == stays[read] if read in stays else move in ("<", ">")
            known = read in stays or {read, written} <= set(self._symbol_words)
            if moves and known and {state, following} <= set(self._state_words):
                machine[state, read] = (move, written, following)
        return machine

    @property
    def _symbol_words(self) -> tuple[str, ...]:
        return self.vocabulary[_FIRST_SYMBOL : _FIRST_SYMBOL + self.symbols]

    @property
    def _state_words(self) -> tuple[str, ...]:
        return self.vocabulary[-self.states :]

    def sparsity(self, length: int) -> int:
        return 5

    def reads(self, sample: Sample) -> Int[Tensor, "b t k"]:
        index = torch.arange(sample.tokens.shape[1], device=sample.tokens.device)[None]
        head, ends = sample.hidden["head"], sample.prompt_tokens[:, None]
        start, step = self._start(sample), self.step(sample)
        time, field = step.clamp(min=0) // 4, step % 4 + 1
        stops = index == sample.num_tokens[:, None] - 1

        # the last step before that left something in the same cell, or the cell in the prompt
        count = head.shape[1]
        same = (head[:, :, None] == head[:, None, :]).tril(-1)
        before = torch.where(same, torch.arange(count, device=head.device), -1).amax(2)
        cell = self._tape + head + (head >= start - self._tape).long()
        memory = torch.where(before >= 0, ends + 4 * before + _WRITTEN - 1, cell).gather(1, time.clamp(max=count - 1))

        after = torch.where(field == _STATE, _NEXT, field) - 1  # how far behind the state that the rule is chosen by
        rule = 5 * self._at(sample, "rule", (step - after) // 4)
        none = torch.full_like(rule, -1)
        of_rule = torch.stack([index - after, index - after + 1, rule, rule + 1, rule + after], dim=2)
        mark = self._tape + sample.length[:, None] + 3 + time
        of_tape = [mark, torch.where(stops, none, memory), torch.where(time == 0, start, none), none, none]
        reads = torch.where((field == _READ)[:, :, None], torch.stack(of_tape, dim=2), of_rule)
        of_start = torch.stack([start.expand_as(none), none, none, none, none], dim=2)
        return torch.where((step == 0)[:, :, None], of_start, reads).masked_fill(~sample.answer[:, :, None], -1)

    def places(self, sample: Sample) -> Int[Tensor, "b g t"]:
        index = torch.arange(sample.tokens.shape[1], device=sample.tokens.device)[None]
        start, step = self._start(sample), self.step(sample)
        in_rules, in_tape = (index < self._tape).expand_as(step), self._in_tape(sample)
        marks = self._tape + sample.length[:, None] + 3

        cell = torch.where(in_tape, index - self._tape + 1 - (index > start).long(), 0)
        rule, field = torch.where(in_rules, index // 5 + 1, 0), torch.where(in_rules, index % 5 + 1, 0)
        field = torch.where(in_tape, torch.where(index == start, _STATE, _WRITTEN), field)
        time = torch.where((index >= marks) & (step < -1), index - marks + 1, 0)
        # the first state is read from the tape
        cell = torch.where(step == 0, start - self._tape + 1, cell)
        field = torch.where(step == 0, _STATE, field)
        if "head" in sample.hidden:
            number, kind = (step - 1).clamp(min=0) // 4, (step - 1) % 4 + _READ  # a new state ends a step
            by_rule = (self._at(sample, "rule", number) + 1).masked_fill(kind == _READ, 0)
            cell = torch.where(step > 0, self._at(sample, "head", number) + 1, cell)
            rule = torch.where(step > 0, by_rule, rule)
            field = torch.where(step > 0, torch.where(kind == _READ, _WRITTEN, kind), field)
            time = torch.where(step > 0, number + 1, time)
        return torch.stack([cell, rule, field, time], dim=1)

    def coupling(self, sample: Sample, form: Form) -> Int[Tensor, "b g t"]:
        ids = super().coupling(sample, form)
        if form == "published":
            return ids
        # a written symbol has the field that is read next, the new state's; so has all that is looked for with it
        step = self.step(sample)
        looks = self._in_tape(sample) | ((step >= 0) & (step % 4 == 0))
        field = torch.where(looks & (ids[:, 2] == _WRITTEN), _NEXT, ids[:, 2])
        return torch.stack([ids[:, 0], ids[:, 1], field, ids[:, 3]], dim=1)

    def prompt_length(self, tokens: Sequence[int]) -> int:
        return list(tokens[self._tape :]).index(_FIRST_SYMBOL + self.symbols + 1) - 2  # up to `]`, less `[` and a state

    @staticmethod
    def _at(sample: Sample, what: str, time: Int[Tensor, "b t"]) -> Int[Tensor, "b t"]:
        """The head's cell, or the number of the rule, in a step; both count from 0."""
        facts = sample.hidden[what]
        return facts.gather(1, time.clamp(0, facts.shape[1] - 1))

    def _most_steps(self, length: int) -> int:
        return length if self.steps is None else self.steps.high

    @property
    def _readable(self) -> int:
        """Symbols and the two ends."""
        return self.symbols + 2

    @property
    def _rules(self) -> int:
        return self.states * self._readable

    @property
    def _tape(self) -> int:
        """Where the tape begins, behind the rules."""
        return 5 * self._rules

    def _in_tape(self, sample: Sample) -> Bool[Tensor, "b t"]:
        index = torch.arange(sample.tokens.shape[1], device=sample.tokens.device)
        return (index >= self._tape) & (index < self._tape + sample.length[:, None] + 3)

    def _start(self, sample: Sample) -> Int[Tensor, "b 1"]:
        """The place of the start state, the only state on the tape."""
        is_state = self._in_tape(sample) & (sample.tokens >= _FIRST_SYMBOL + self._readable)
        return is_state.long().argmax(1, keepdim=True)
