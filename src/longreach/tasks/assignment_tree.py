"""Variables that are worked out from other variables, in a chain or in a tree."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeVar

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn.functional import pad

from longreach.config.registry import register
from longreach.errors import BadInput
from longreach.seeding import Draws
from longreach.tasks.base import Level, Part, Sample, Worksheet, build_sample, join
from longreach.tasks.names import LAST, distinct, letters, smallest

_QUERY, _EQUALS, _END, _FIRST_OPERATOR = 1, 2, 3, 4
_OPERATORS = ("+", "-", "*")
_ENTER, _VALUE, _LEAVE, _RETURN = 0, 1, 2, 3
"""What a token of the answer is: a name on the way down, a value, the mark that ends a statement, a name again."""

Size = TypeVar("Size", int, Tensor)


@register("task", "assignment_tree")
@dataclass(frozen=True, kw_only=True)
class AssignmentTree(Worksheet):
    """Work out a variable from others.  c = a - b ; b = 5 ; a = 2 ; ? c =  ->  c a 2 b 5 ; c 7 .

    `length` counts the numbers in the prompt.  The statements stand in random order, every variable but the one asked
    for is used once, and all is modulo `modulus`.  In a tree a statement gives a variable a number or joins two
    variables; every shape of tree is equally likely.  In a chain there is one variable and one number on the right:
    b = a + 3 ; a = 2 ; ? b =  ->  b a 2 ; b 5 .

    The answer goes down to the left as far as it can, and says values on the way back: behind a variable comes what
    stands right of its `=`; behind a value what stands behind that variable where it is used, the variable on the
    right or the end of the statement, `;`; and then the variable that the statement defines, with its value.  For such
    a value a tree needs the two values, the name before the left one, the variable just written with the mark before
    it, and its statement up to the operator: 8-sparse; a chain 6.  The signs `=` and `;` in statements are the same in
    all prompts and not counted.  Without the scratchpad the answer is the last value alone, which needs every name,
    number and operator.

    Coupling on two levels: the statement, and the field in it, from 1 for the name to 6 for its end.  Published:
    an answer token carries the IDs of the token it was read from (a value, of the operator).  Aligned: of the
    one that the next token is read from.  No rule gives them during generation, unless there is no scratchpad; then the
    answer has none.  The task and both couplings are ours.
    """

    shape: Literal["chain", "tree"] = "tree"
    """Whether a statement uses one variable and a number, or two variables."""
    scratchpad: bool = True
    """Whether the answer has all values on the way, or only the one asked for."""
    modulus: int = 10
    """Values are taken modulo this number."""
    products: bool = False
    """Whether there are products besides sums and differences."""
    num_names: int = 1000
    """How many different names there are."""

    def __post_init__(self) -> None:
        if self.modulus < 2:
            raise ValueError(f"assignment_tree.modulus must be at least 2, got {self.modulus}")
        if self.num_names < 3:
            raise ValueError(f"assignment_tree.num_names must be at least 3, got {self.num_names}")

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        numbers = (str(number) for number in range(self.modulus))
        names = (letters(number) for number in range(self.num_names))
        stop = (".",) if self.scratchpad else ()
        return ("_", "?", "=", ";", *_OPERATORS[: self._operators], *numbers, *names, *stop)

    @property
    def stop_token(self) -> int | None:
        return self._first_name + self.num_names if self.scratchpad else None

    @property
    def coupling_levels(self) -> tuple[Level, ...]:
        return (Level("statement"), Level("field", size=6))

    @property
    def coupling_by_rule(self) -> bool:
        return not self.scratchpad

    def check_length(self, length: int) -> None:
        longest = self.num_names if self.shape == "chain" else (self.num_names + 1) // 2
        if not 2 <= length <= longest:
            raise BadInput(f"assignment_tree: length must be in 2..{longest} (by num_names), got {length}")

    def max_tokens(self, length: int) -> int:
        return self._given(length) + 3 + self.max_answer(length)

    def max_answer(self, length: int) -> int:
        return self._steps(length) + 1 if self.scratchpad else 1

    def sample(self, length: Int[Tensor, "b"], draws: Draws, max_length: int) -> Sample:
        count = self._variables(max_length)
        inner, right, parent = self._tree(length, draws, max_length)
        numbers = draws.below("numbers", self.modulus, count)
        operators = draws.below("operators", self._operators, count)
        values = self._values(inner, right, numbers, operators)
        names = self._first_name + distinct(draws, "names", self.num_names, count)

        # where the statement of each variable begins, and its tokens there
        index = torch.arange(count, device=length.device)
        beyond = index >= self._variables(length)[:, None]
        order = smallest(draws.bits("order", count).masked_fill(beyond, LAST), count)
        sizes = torch.where(inner, 6, 4).gather(1, order)
        begins = torch.empty_like(order).scatter_(1, order, sizes.cumsum(1) - sizes)
        spelled, below = self._first_number + numbers, pad(names[:, 1:], (0, 1))
        second = names.gather(1, right) if self.shape == "tree" else spelled
        fixed = torch.full_like(names, _EQUALS), torch.full_like(names, _END)
        joined = torch.stack([names, fixed[0], below, _FIRST_OPERATOR + operators, second, fixed[1]], dim=2)
        number = torch.stack([names, fixed[0], spelled, *[fixed[1]] * 3], dim=2)
        statements = torch.where(inner[:, :, None], joined, number)
        field = torch.arange(6, device=length.device)
        unused = beyond[:, :, None] | (~inner[:, :, None] & (field > 3))
        width = self._given(max_length)
        given = torch.empty(len(names), width + 1, dtype=torch.long, device=length.device).fill_(_END)
        given.scatter_(1, (begins[:, :, None] + field).masked_fill(unused, width).flatten(1), statements.flatten(1))

        parts: list[Part] = [(given, self._given(length)), (_QUERY, 1), (names[:, :1], 1), (_EQUALS, 1)]
        prompt_tokens, hidden = self._given(length) + 3, {}
        if self.scratchpad:
            kind, node = self._walk(inner, right, parent, max_length)
            value = self._first_number + values.gather(1, node)
            trace = torch.where(kind == _VALUE, value, names.gather(1, node)).masked_fill(kind == _LEAVE, _END)
            parts += [(trace, self._steps(length)), (self._first_name + self.num_names, 1)]
            hidden = self._sources(inner, right, parent, begins, kind, node)
            num_tokens = prompt_tokens + self._steps(length) + 1
        else:
            parts.append((self._first_number + values[:, :1], 1))
            num_tokens = prompt_tokens + 1
        return build_sample(join(parts, self.max_tokens(max_length)), length, prompt_tokens, num_tokens, hidden)

    def _tree(
        self, length: Int[Tensor, "b"], draws: Draws, max_length: int
    ) -> tuple[Bool[Tensor, "b n"], Int[Tensor, "b n"], Int[Tensor, "b n"]]:
        """Which variables use others, their right operand, and where each is used.  A left operand comes next."""
        count = self._variables(max_length)
        index = torch.arange(count, device=length.device).expand(len(length), -1)
        size = self._variables(length)[:, None]
        before = (index - 1).clamp(min=0)
        if self.shape == "chain":
            return index < size - 1, index, before
        # an order in which no beginning has more ends than joins; of all turns of a random order just one has that
        joins = smallest(draws.bits("joins", count).masked_fill(index >= size, LAST), max_length - 1)
        is_join = index[:, : max_length - 1] < length[:, None] - 1
        kind = torch.zeros(len(length), count + 1, dtype=torch.long, device=length.device)
        kind = kind.scatter_(1, torch.where(is_join, joins, count), 1)[:, :count]
        height = (2 * kind - 1).cumsum(1).masked_fill(index >= size, count)
        inner = kind.gather(1, (height.argmin(1, keepdim=True) + 1 + index) % size).bool() & (index < size)
        # joins and ends are opening and closing brackets: those at one height pair off, and what comes behind an end
        # is the right operand of its partner
        height = (2 * inner.long() - 1).cumsum(1) + (~inner).long()
        order = height.masked_fill(index >= size, count).argsort(dim=1, stable=True)
        partner = torch.empty_like(order).scatter_(1, order, pad(order, (1, -1)))
        behind_end = ~pad(inner, (1, -1)) & (index > 0)
        parent = torch.where(behind_end, partner.gather(1, before), before)
        at = torch.where(behind_end & (index < size), parent, count)
        right = torch.zeros(len(length), count + 1, dtype=torch.long, device=length.device).scatter_(1, at, index)
        return inner, right[:, :count], parent

    def _values(
        self, inner: Bool[Tensor, "b n"], right: Int[Tensor, "b n"], numbers: Tensor, operators: Tensor
    ) -> Int[Tensor, "b n"]:
        values = numbers.clone()
        for at in range(numbers.shape[1] - 2, -1, -1):  # what a variable is worked out from comes behind it
            first = values[:, at + 1]
            second = values.gather(1, right[:, at : at + 1])[:, 0] if self.shape == "tree" else numbers[:, at]
            operator = operators[:, at]
            result = torch.where(operator == 0, first + second, first - second)
            result = torch.where(operator == 2, first * second, result) % self.modulus
            values[:, at] = torch.where(inner[:, at], result, numbers[:, at])
        return values

    def _walk(
        self, inner: Bool[Tensor, "b n"], right: Int[Tensor, "b n"], parent: Int[Tensor, "b n"], max_length: int
    ) -> tuple[Int[Tensor, "b s"], Int[Tensor, "b s"]]:
        """The answer as kinds of tokens and the variables they belong to."""
        index = torch.arange(inner.shape[1], device=inner.device).expand_as(parent)
        is_left = (index == parent + 1) & (self.shape == "tree")
        following = torch.stack(
            [
                torch.where(inner, 4 * (index + 1) + _ENTER, 4 * index + _VALUE),
                torch.where(is_left, 4 * right.gather(1, parent) + _ENTER, 4 * index + _LEAVE),
                4 * parent + _RETURN,
                4 * index + _VALUE,
            ],
            dim=2,
        ).flatten(1)
        states = [torch.zeros_like(parent[:, :1])]
        for _ in range(self._steps(max_length) - 1):
            states.append(following.gather(1, states[-1]))
        state = torch.cat(states, dim=1)
        return state % 4, state // 4

    def _sources(
        self,
        inner: Bool[Tensor, "b n"],
        right: Int[Tensor, "b n"],
        parent: Int[Tensor, "b n"],
        begins: Int[Tensor, "b n"],
        kind: Int[Tensor, "b s"],
        node: Int[Tensor, "b s"],
    ) -> dict[str, Tensor]:
        """Where each token of the answer is read, and for a value that is worked out, the step of the left value."""
        own, used = begins.gather(1, node), begins.gather(1, parent.gather(1, node))
        is_right = (node == right.gather(1, parent.gather(1, node))) & (self.shape == "tree")
        source = torch.where(kind == _ENTER, used + torch.where(is_right, 4, 2), own)
        source = torch.where(kind == _LEAVE, used + 5, source)
        combines = inner.gather(1, node) & (kind == _VALUE)
        source = torch.where(kind == _VALUE, own + torch.where(combines, 3, 2), source)
        step = torch.arange(kind.shape[1], device=kind.device).expand_as(kind)
        said = torch.zeros(len(kind), inner.shape[1] + 1, dtype=torch.long, device=kind.device)
        said.scatter_(1, torch.where(kind == _VALUE, node, inner.shape[1]), step)
        return {"kind": kind, "source": source, "left": torch.where(combines, said.gather(1, node + 1), -1)}

    def work_out(self, prompt: Sequence[str]) -> list[str]:
        stands_for = self._statements(" ".join(prompt[:-3]))
        if len(prompt) < 3 or (prompt[-3], prompt[-1]) != ("?", "=") or prompt[-2] not in stands_for:
            raise self._no_prompt()
        results: list[int] = []
        trace: list[str] = []
        todo = [(prompt[-2], False)]
        while todo:
            name, ready = todo.pop()
            if len(trace) > 6 * len(stands_for):
                raise self._no_prompt()  # it goes round in circles
            first, *rest = stands_for[name]
            if ready:
                operator, last = rest
                second = int(last) if last.isdigit() else results.pop()
                results.append(_apply(operator, results.pop(), second) % self.modulus)
                trace += [";", name, str(results[-1])]
            elif rest:
                trace.append(name)
                operands = [word for word in (first, rest[1]) if not word.isdigit()]
                todo += [(name, True), *((operand, False) for operand in reversed(operands))]
            else:
                trace += [name, first]
                results.append(int(first))
        return trace if self.scratchpad else trace[-1:]

    def _statements(self, text: str) -> dict[str, list[str]]:
        """What each name stands for: a number, or two operands with an operator between them."""
        found: dict[str, list[str]] = {}
        used: list[str] = []
        *statements, rest = text.split(";")
        for words in map(str.split, statements):
            joins = len(words) == 5 and words[3] in _OPERATORS[: self._operators]
            operands = words[2::2]
            numbers = [word.isdigit() for word in operands]
            shape = numbers == ([False, self.shape == "chain"] if joins else [True])
            if len(words) not in (3, 5) or words[1] != "=" or not shape or words[0] in found or not words[0].isalpha():
                raise self._no_prompt()
            found[words[0]] = words[2:]
            used += [word for word in operands if not word.isdigit()]
        if rest.strip() or len({*used}) != len(used) or not found.keys() >= {*used}:
            raise self._no_prompt()
        return found

    def _no_prompt(self) -> BadInput:
        example = "c = a + b ; a = 1 ; b = 2 ; ? c =" if self.shape == "tree" else "b = a + 2 ; a = 1 ; ? b ="
        return BadInput(f"assignment_tree: a prompt is statements that use a name at most once, as in {example}")

    def sparsity(self, length: int) -> int:
        if not self.scratchpad:  # names and numbers on both sides, operators, and the question
            return 6 * length - 3 if self.shape == "tree" else 4 * length - 1
        return 8 if self.shape == "tree" else 6

    def reads(self, sample: Sample) -> Int[Tensor, "b t k"]:
        """Of an answer with scratchpad."""
        index = torch.arange(sample.tokens.shape[1], device=sample.tokens.device).expand_as(sample.tokens)
        step, ends = self.step(sample), sample.prompt_tokens[:, None]
        kind, source, left = (self._at(sample, what, step) for what in ("kind", "source", "left"))
        none, combines = torch.full_like(index, -1), left >= 0
        in_tree = self.shape == "tree"
        # beside what is read stands the name that it is found by; a value is found by the name in front of it
        found_by = torch.where(combines, source - 3, source - 2)
        found_by = torch.where(kind == _LEAVE, source - (1 if in_tree else 3), found_by)
        found_by = torch.where(kind == _RETURN, source + (4 if in_tree else 2), found_by)
        copied = torch.where(kind == _LEAVE, none, source)  # that a statement ends behind its last operand is no news
        columns = [index - 1, torch.where(kind == _RETURN, index - 3, index - 2), found_by, copied]
        operands = [index - 3, source - 1, ends + left - 1, ends + left] if in_tree else [index - 3, source + 1]
        columns += [torch.where(combines, operand, none) for operand in operands]
        reads = torch.stack(columns, dim=2)
        few = [none] * (len(columns) - 3)
        stops = (index == sample.num_tokens[:, None] - 1)[:, :, None]
        reads = torch.where(stops, torch.stack([index - 1, index - 2, (ends - 2).expand_as(index), *few], dim=2), reads)
        asked = torch.stack([(ends - 2).expand_as(index), none, none, *few], dim=2)
        reads = torch.where((step == 0)[:, :, None], asked, reads)
        return reads.masked_fill(~sample.answer[:, :, None], -1)

    def depends_on(self, sample: Sample) -> Bool[Tensor, "b t t"]:
        if self.scratchpad:
            return super().depends_on(sample)
        says = (sample.tokens >= _FIRST_OPERATOR) & (self.step(sample) < 0)
        return sample.answer[:, :, None] & says[:, None, :]

    def places(self, sample: Sample) -> Int[Tensor, "b g t"]:
        index = torch.arange(sample.tokens.shape[1], device=sample.tokens.device).expand_as(sample.tokens)
        step, ends = self.step(sample), sample.tokens == _END
        behind = pad(ends, (1, -1))
        field = (index - torch.where(behind, index, 0).cummax(1).values + 1).masked_fill(ends, 6)
        ids = torch.stack([behind.cumsum(1) + 1, field], dim=1).masked_fill((step >= -3)[:, None], 0)
        if "source" not in sample.hidden:
            return ids
        source = self._at(sample, "source", step)
        reads = (step >= 1) & (index < sample.num_tokens[:, None] - 1)
        return torch.where(reads[:, None], ids.gather(2, source[:, None].expand_as(ids)), ids)

    def prompt_length(self, tokens: Sequence[int]) -> int:
        return sum(self._first_number <= token < self._first_name for token in tokens)

    def _variables(self, length: Size) -> Size:
        return length if self.shape == "chain" else 2 * length - 1

    def _given(self, length: Size) -> Size:
        """Tokens of all statements."""
        return 6 * length - 2 if self.shape == "chain" else 10 * length - 6

    def _steps(self, length: Size) -> Size:
        """Tokens of an answer with scratchpad, without the stop."""
        return 4 * length - 2 if self.shape == "chain" else 6 * length - 4

    @property
    def _operators(self) -> int:
        return 3 if self.products else 2

    @property
    def _first_number(self) -> int:
        return _FIRST_OPERATOR + self._operators

    @property
    def _first_name(self) -> int:
        return self._first_number + self.modulus

    @staticmethod
    def _at(sample: Sample, what: str, step: Int[Tensor, "b t"]) -> Int[Tensor, "b t"]:
        facts = sample.hidden[what]
        return facts.gather(1, step.clamp(0, facts.shape[1] - 1))


def _apply(operator: str, first: int, second: int) -> int:
    return {"+": first + second, "-": first - second, "*": first * second}[operator]
