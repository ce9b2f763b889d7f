"""Arithmetic modulo a small number: flat, or with brackets around every operation."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn.functional import pad

from longreach.config.registry import register
from longreach.errors import BadInput
from longreach.seeding import Draws
from longreach.tasks.base import Part, Sample, Worksheet, build_sample, join
from longreach.tasks.expressions import draw_expression, evaluate, most_operands
from longreach.tasks.names import LAST
from longreach.tasks.prefix_scan import scan

_EQUALS = 1


@register("task", "modular_arithmetic")
@dataclass(frozen=True, kw_only=True)
class ModularArithmetic(Worksheet):
    """Work out an expression modulo 5.  1 + 2 * 3 =  ->  2, or with brackets  ( ( 1 + 2 ) * 3 ) =  ->  4.

    `length` counts the numbers, n.  Numbers and operators are uniform; multiplication comes first, as usual.  With
    `brackets` a pair stands around each operation, and any operator is the outermost with equal probability, and so on
    inside: the same law as a random order of the operations.  The answer needs all numbers and operators, 2n - 1
    tokens; the brackets, which say what belongs together, are not counted.

    With a scratchpad, which is ours and needs brackets, the answer is the value of every pair in the order in which
    they close:  ( ( 1 + 2 ) * 3 ) ; =  ->  3 4 .  A value needs the operator and two numbers, of the prompt or the
    answer: 3-sparse, but where they stand depends on the brackets.  The stop is read from the mark.  No coupling.

    With `published`, which needs brackets, expressions are those of Deletang et al. (ICLR 2023).  `length` counts all
    tokens of the expression.  An expression of 1 to 4 tokens is d, - d, ( d ) or ( - d ); a longer one is
    ( left operator right ), and the size of its left side is uniform.  Their default is `operators: +-`.  The sign `=`
    is ours.  Numbers, operators and signs are needed: about 3/5 of the tokens.  No scratchpad.
    """

    paper = "Deletang et al., ICLR 2023"

    modulus: int = 5
    """Numbers are below it."""
    operators: str = "+-*"
    """Which operators there are, among + - *."""
    brackets: bool = False
    """Whether every operation has brackets around it."""
    scratchpad: bool = False
    """Whether the answer is the value of every pair of brackets."""
    published: bool = False
    """With brackets: draw expressions as Deletang et al. do, with `- d` and `( d )`; `length` counts their tokens."""

    def __post_init__(self) -> None:
        if not 2 <= self.modulus <= 1000:
            raise ValueError(f"modular_arithmetic.modulus must be in 2..1000, got {self.modulus}")
        if (
            not self.operators
            or not set(self.operators) <= set("+-*")
            or len(set(self.operators)) < len(self.operators)
        ):
            raise ValueError(f"modular_arithmetic.operators must be some of + - *, got {self.operators!r}")
        if self.scratchpad and not self.brackets:
            raise ValueError("modular_arithmetic.scratchpad must be false without brackets, got true")
        if self.published and (not self.brackets or self.scratchpad):
            raise ValueError(
                "modular_arithmetic.published must be false without brackets or with a scratchpad, got true"
            )
        if self.published and not {"+", "-"} <= set(self.operators):
            raise ValueError(f"modular_arithmetic.operators must have + and - with published, got {self.operators!r}")

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        signs = ("_", "=", ";", ".") if self.scratchpad else ("_", "=")
        brackets = ("(", ")") if self.brackets else ()
        return (*signs, *brackets, *self.operators, *(str(number) for number in range(self.modulus)))

    @property
    def stop_token(self) -> int | None:
        return self._numbers["."] if self.scratchpad else None

    @property
    def ending(self) -> tuple[str, ...]:
        return (";", "=") if self.scratchpad else ("=",)

    def check_length(self, length: int) -> None:
        super().check_length(length)
        if self.brackets and not self.published and length < 2:
            raise BadInput(f"{self.name}: length must be at least 2 with brackets, got {length}")

    def max_tokens(self, length: int) -> int:
        return self._expression_tokens(length) + len(self.ending) + self.max_answer(length)

    def max_answer(self, length: int) -> int:
        return length if self.scratchpad else 1

    def _expression_tokens(self, length: int) -> int:
        if self.published:
            return length
        return 4 * length - 3 if self.brackets else 2 * length - 1

    def sample(self, length: Int[Tensor, "b"], draws: Draws, max_length: int) -> Sample:
        if self.published:
            written, value = draw_expression(length, draws, max_length, self.modulus, self.operators, self._numbers)
            tokens = join([(written, length), (_EQUALS, 1), (self._first_number + value, 1)], max_length + 2)
            return build_sample(tokens, length, length + 1, length + 2)
        numbers = draws.below("numbers", self.modulus, max_length)
        operators = draws.below("operators", len(self.operators), max_length)  # the last is not written
        if self.brackets:
            return self._in_brackets(length, numbers, operators, draws)
        written = torch.stack([self._first_number + numbers, self._first_operator + operators], dim=2).flatten(1)
        value = self._flat_value(numbers, operators, length)
        parts: list[Part] = [(written, 2 * length - 1), (_EQUALS, 1), (self._first_number + value, 1)]
        return build_sample(join(parts, self.max_tokens(max_length)), length, 2 * length, 2 * length + 1)

    def _flat_value(
        self, numbers: Int[Tensor, "b n"], operators: Int[Tensor, "b n"], length: Int[Tensor, "b"]
    ) -> Int[Tensor, "b 1"]:
        """The sum of the products between plus and minus signs."""
        before = pad(operators[:, :-1], (1, 0), value=-1)
        signed = torch.where(self._is(before, "-"), -numbers, numbers) % self.modulus
        begins = ~self._is(before, "*")
        begins[:, 0] = True

        def multiply(first: Tensor, second: Tensor) -> Tensor:
            """Pairs: whether a product begins in this stretch, and the product of its last factors."""
            fresh = second[..., 0] > 0
            product = torch.where(fresh, second[..., 1], first[..., 1] * second[..., 1] % self.modulus)
            return torch.stack([first[..., 0] | second[..., 0], product], dim=-1)

        products = scan(torch.stack([begins.long(), signed], dim=2), multiply)[:, :, 1]
        index = torch.arange(numbers.shape[1], device=length.device)
        last = (index == length[:, None] - 1) | pad(begins[:, 1:], (0, 1), value=True)
        return (products * (last & (index < length[:, None]))).sum(1, keepdim=True) % self.modulus

    def _in_brackets(
        self, length: Int[Tensor, "b"], numbers: Int[Tensor, "b n"], operators: Int[Tensor, "b n"], draws: Draws
    ) -> Sample:
        n = numbers.shape[1]
        index = torch.arange(n, device=length.device)
        # a random order of the operations: the first one done is innermost
        order = draws.bits("order", n).masked_fill(index >= length[:, None] - 1, LAST).argsort(dim=1)[:, :-1]
        steps = torch.arange(n - 1, device=length.device)
        done = steps < length[:, None] - 1
        at = torch.where(done, order, n)  # column n stands for what is not there
        low, high, value, left, right = self._calculate(at, numbers, operators)

        # brackets in front of and behind each number, and so where everything stands
        opened, closed = (pad(torch.zeros_like(numbers), (0, 2)).scatter_add_(1, x, done.long()) for x in (low, high))
        number_at = 2 * index + opened.cumsum(1)[:, :n] + closed.cumsum(1)[:, :n] - closed[:, :n]
        operator_at = number_at + closed[:, :n] + 1
        width = self._expression_tokens(n)
        row = torch.zeros(len(length), width + 1, dtype=torch.long, device=length.device)  # column `width`: as above
        row.scatter_(1, number_at.masked_fill(index >= length[:, None], width), self._first_number + numbers)
        row.scatter_(1, operator_at.masked_fill(index >= length[:, None] - 1, width), self._first_operator + operators)
        place = torch.arange(width + 1, device=length.device)
        before = row.gather(1, place.masked_fill(row == 0, 0).cummax(1).values)
        bracket = torch.where(before >= self._first_number, self._numbers[")"], self._numbers["("])
        parts: list[Part] = [(torch.where(row == 0, bracket, row), 4 * length - 3)]
        prompt_tokens = 4 * length - 3 + len(self.ending)
        if not self.scratchpad:
            parts += [(_EQUALS, 1), (self._first_number + value.gather(1, length[:, None] - 2), 1)]
            return build_sample(join(parts, self.max_tokens(n)), length, prompt_tokens, prompt_tokens + 1)

        closing = (high * n + steps).masked_fill(~done, LAST).argsort(dim=1)  # operations as their brackets close
        turn = torch.empty_like(closing).scatter_(1, closing, steps.expand_as(closing))

        def stands_at(number: Tensor, source: Tensor) -> Tensor:
            """The place of a value: in the answer where an operation gave it, and else in the prompt."""
            written = prompt_tokens[:, None] + turn.gather(1, source.clamp(min=0))
            return torch.where(source < 0, number_at.gather(1, number.clamp(max=n - 1)), written)

        used = [operator_at.gather(1, order), stands_at(order, left), stands_at(order + 1, right)]
        used_in_turn = torch.stack([places.gather(1, closing) for places in used], dim=2)
        parts += [(self._numbers[";"], 1), (_EQUALS, 1)]
        parts += [(self._first_number + value.gather(1, closing), length - 1), (self._numbers["."], 1)]
        tokens = join(parts, self.max_tokens(n))
        return build_sample(tokens, length, prompt_tokens, prompt_tokens + length, {"used": used_in_turn})

    def _calculate(
        self, at: Int[Tensor, "b s"], numbers: Int[Tensor, "b n"], operators: Int[Tensor, "b n"]
    ) -> tuple[Tensor, ...]:
        """Do operations one by one, each on the values beside it: the first and last number it covers, its value, and
        the operations that gave it its left and its right value, or -1."""
        device, n = numbers.device, numbers.shape[1]
        # of a stretch of numbers with one value: its last number, its first, and at its first its value and source
        end = torch.arange(n + 2, device=device).repeat(len(numbers), 1)
        start, value, source = end.clone(), pad(numbers, (0, 2)), torch.full_like(end, -1)
        operators = pad(operators, (0, 1)).gather(1, at)
        times, minus = self._is(operators, "*"), self._is(operators, "-")
        found: list[tuple[Tensor, ...]] = []
        for step in range(n - 1):
            here, sign = at[:, step, None], 1 - 2 * minus[:, step, None].long()
            low, high = start.gather(1, here), end.gather(1, here + 1)
            first, second = value.gather(1, low), value.gather(1, here + 1)
            result = torch.where(times[:, step, None], first * second, first + sign * second) % self.modulus
            found.append((low, high, result, source.gather(1, low), source.gather(1, here + 1)))
            value.scatter_(1, low, result)
            source.scatter_(1, low, step)
            end.scatter_(1, low, high)
            start.scatter_(1, high, low)
        return tuple(torch.cat(facts, dim=1) for facts in zip(*found, strict=True))

    def _is(self, operator: Int[Tensor, "b n"], sign: str) -> Bool[Tensor, "b n"]:
        return operator == (self.operators.index(sign) if sign in self.operators else -2)

    @property
    def _first_number(self) -> int:
        return self._numbers["0"]

    @property
    def _first_operator(self) -> int:
        return self._numbers[self.operators[0]]

    def work_out(self, prompt: Sequence[str]) -> list[str]:
        body, ending = list(prompt[: -len(self.ending)]), tuple(prompt[-len(self.ending) :])
        if self.published:
            value = evaluate(body, self.modulus)
            values = [] if value is None else [value]
        else:
            values = self._of_brackets(body) if self.brackets else self._of_terms(body)
        if not values or ending != self.ending:
            outer = "( ( 1 + 2 ) - ( - 3 ) )" if self.published else "( ( 1 + 2 ) * 3 )"
            example = outer if self.brackets else "1 + 2 * 3"
            raise BadInput(f"{self.name}: a prompt is an expression such as {example} and {' '.join(self.ending)}")
        return [str(value) for value in (values if self.scratchpad else values[-1:])]

    def _of_terms(self, body: Sequence[str]) -> list[int]:
        """The value of a flat expression; nothing if it is none."""
        if len(body) % 2 == 0 or any(word.isdigit() == bool(place % 2) for place, word in enumerate(body)):
            return []
        terms: list[int] = []
        for sign, number in zip(["+", *body[1::2]], map(int, body[::2]), strict=True):
            if sign == "*":
                terms[-1] *= number
            else:
                terms.append(number if sign == "+" else -number)
        return [sum(terms) % self.modulus]

    def _of_brackets(self, body: Sequence[str]) -> list[int]:
        """The value of each pair as it closes; nothing if it is no expression."""
        open_parts: list[list[str]] = [[]]
        values: list[int] = []
        for word in body:
            if word == "(":
                open_parts.append([])
            elif word == ")":
                value = self._of_terms(open_parts[-1])
                if len(open_parts) == 1 or len(open_parts.pop()) != 3 or not value:
                    return []
                values += value
                open_parts[-1].append(str(value[0]))
            else:
                open_parts[-1].append(word)
        return values if [len(part) for part in open_parts] == [1] else []

    def sparsity(self, length: int) -> int:
        if self.published:
            return most_operands(length)
        return 3 if self.scratchpad else 2 * length - 1

    def depends_on(self, sample: Sample) -> Bool[Tensor, "b t t"]:
        if self.scratchpad:
            return super().depends_on(sample)
        return sample.answer[:, :, None] & ((sample.tokens >= self._first_operator) & ~sample.answer)[:, None]

    def reads(self, sample: Sample) -> Int[Tensor, "b t k"]:
        """With a scratchpad: the operator and both numbers, or for the stop the mark."""
        used, step = sample.hidden["used"], self.step(sample)[:, :, None]
        found = used.gather(1, step.clamp(0, used.shape[1] - 1).expand(-1, -1, 3))
        return torch.where(step < sample.length[:, None, None] - 1, found, sample.prompt_tokens[:, None, None] - 2)

    def prompt_length(self, tokens: Sequence[int]) -> int:
        return len(tokens) - 1 if self.published else sum(token >= self._first_number for token in tokens)
