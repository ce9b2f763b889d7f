"""Word problems of groups: which element is this product?"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, permutations
from math import factorial

import torch
from jaxtyping import Int
from torch import Tensor

from longreach.config.registry import register
from longreach.tasks.prefix_scan import one_after_the_other, scan
from longreach.tasks.running import Running

_LARGEST = {"S": 6, "A": 6, "Z": 1000}


@register("task", "word_problem")
@dataclass(frozen=True, kw_only=True)
class WordProblem(Running):
    """Multiply elements of a group.  21345 13245 =  ->  31245, or with a scratchpad  ... ; =  ->  21345 31245 .

    `length` counts the elements, drawn uniformly.  A permutation is one token, and 31245 sends 1 to 3, 2 to 1 and 3
    to 2; in a product the left one acts first.  Elements of a cyclic group are numbers.  With a scratchpad a product
    needs the one before and one element: 2-sparse.  Without, the answer needs every element.  S5 and A5 are not
    solvable, and multiplying in them is complete for NC1: no fixed number of layers should do, unless TC0 = NC1
    (Merrill et al., ICML 2024).  Coupling, with a scratchpad, as in Cho et al. (NeurIPS 2024) for parity: element i and
    product i share an ID.
    """

    paper = "Merrill et al., ICML 2024"

    group: str = "S5"
    """S5: all permutations of 5 things; A5: the even ones; Z60: the numbers below 60 under addition.  S2..S6, A3..A6,
    Z2..Z1000."""
    scratchpad: bool = False
    """Whether the answer is every product on the way, instead of the last alone."""

    def __post_init__(self) -> None:
        match = re.fullmatch("([SAZ])([1-9][0-9]*)", self.group)
        if not match or not (3 if match[1] == "A" else 2) <= int(match[2]) <= _LARGEST[match[1]]:
            raise ValueError(f"word_problem.group must be in S2..S6, A3..A6 or Z2..Z1000, got {self.group}")

    @property
    def _size(self) -> int:
        """Of a cyclic group its order, of others the number of things permuted."""
        return int(self.group[1:])

    @cached_property
    def symbols(self) -> tuple[str, ...]:
        if self.group[0] == "Z":
            return tuple(str(number) for number in range(self._size))
        kept = permutations(range(1, self._size + 1))
        if self.group[0] == "A":
            kept = (one for one in kept if sum(a > b for a, b in combinations(one, 2)) % 2 == 0)  # type: ignore[assignment]
        return tuple("".join(map(str, one)) for one in kept)

    @property
    def states(self) -> tuple[str, ...]:
        return self.symbols

    def run(self, symbols: Int[Tensor, "b n"]) -> Int[Tensor, "b n"]:
        if self.group[0] == "Z":
            return symbols.cumsum(1) % self._size
        group = self._permutations(torch.arange(len(self.symbols), device=symbols.device))
        products = scan(group[symbols], one_after_the_other)
        number = torch.zeros(self._size ** (self._size - 1), dtype=torch.long, device=symbols.device)
        number[self._code(group)] = torch.arange(len(group), device=symbols.device)
        return number[self._code(products)]

    def follow(self, symbols: Sequence[str]) -> list[str]:
        if self.group[0] == "Z":
            numbers = [int(symbol) for symbol in symbols]
            return [str(sum(numbers[: i + 1]) % self._size) for i in range(len(numbers))]
        product, met = "".join(map(str, range(1, self._size + 1))), []
        for symbol in symbols:
            product = "".join(symbol[int(image) - 1] for image in product)
            met.append(product)
        return met

    def _permutations(self, number: Int[Tensor, "n"]) -> Int[Tensor, "n d"]:
        """The elements of these numbers, in the order of a dictionary, as the images of 0, 1, 2, ..."""
        size, even = self._size, self.group[0] == "A"
        # digit i says how many of the things still left are smaller than image i; of an even one the digits add up to
        # an even number, which decides the last but one
        rest = 2 * number if even else number
        images = [rest // factorial(size - 1 - i) % (size - i) for i in range(size)]
        if even:
            images[-2] = images[-2] + torch.stack(images).sum(0) % 2
        for i in reversed(range(size - 1)):
            for j in range(i + 1, size):
                images[j] = images[j] + (images[j] >= images[i]).long()
        return torch.stack(images, dim=1)

    def _code(self, images: Int[Tensor, "*n d"]) -> Int[Tensor, "*n"]:
        """All images but the last, as the digits of one number."""
        code = images[..., 0]
        for i in range(1, self._size - 1):
            code = code * self._size + images[..., i]
        return code
