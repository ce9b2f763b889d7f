"""What goes wrong without locality: once no learner can succeed, once a learner may fail [ours, after the paper]."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from longreach.theory.heads import SparseHead, TheoryHead
from longreach.theory.laws import ListedPositions, PlantedTask, Support
from longreach.theory.types import GapTypes
from longreach.theory.words import number, power, words


@dataclass(frozen=True, eq=False)
class OracleHead(TheoryHead):
    """Knows where a task plants its tokens, if that is one place at each length, and reads them."""

    task: PlantedTask

    @property
    def g(self) -> Float[Tensor, "c c"]:  # type: ignore[override]
        return torch.eye(self.task.num_classes, dtype=torch.float64)

    def mass(self, tokens: Int[Tensor, "b l"]) -> Float[Tensor, "b c"]:
        positions, _ = self.task.q_pos.support(tokens.shape[1])
        if len(positions) != 1:
            raise ValueError(f"q_pos must be one set at each length, got {len(positions)} at {tokens.shape[1]}")
        word = number(tokens[:, positions[0]], self.task.vocab_size)
        return F.one_hot(self.task.g_star[word], self.task.num_classes).double()


def indistinguishable(p: int, trained: int) -> tuple[PlantedTask, PlantedTask]:
    """Two tasks that are the same up to the length `trained`; beyond it the errors of any predictor on them add up to
    at least 1 - 1/p.

    Tokens are uniform on Z_p and the label is the sum of the first and the last.  In the second task, beyond
    `trained`, it is the last and the one `trained` - 1 before it.  Right labels of both agree one time in p.
    """
    if p < 2:
        raise ValueError(f"p must be at least 2, got {p}")
    if trained < 2:
        raise ValueError(f"trained must be at least 2, got {trained}")
    uniform = torch.full((p,), 1 / p, dtype=torch.float64)

    def ends(length: int) -> Support:
        return torch.tensor([[0, length - 1]]), torch.ones(1, dtype=torch.float64)

    def last(length: int) -> Support:
        return torch.tensor([[max(0, length - trained), length - 1]]), torch.ones(1, dtype=torch.float64)

    far = PlantedTask(2, p, ListedPositions(ends), power(uniform, 2), uniform, words(p, 2).sum(1) % p, p)
    return far, replace(far, q_pos=ListedPositions(last))


def swamped(head: SparseHead, trained: int, extra: float, reach: int) -> SparseHead:
    """A head of gap types with the weight `extra` on every set of span from `trained` to `reach`, whatever is there.

    `reach` is below the length, since sets must fit into it.

    No length up to `trained` shows the difference; beyond it the new sets take over as `extra` grows.  A class
    that allows them needs more than data: locality of the class is what forbids them.
    """
    if not isinstance(head.types, GapTypes):
        raise ValueError(f"types must be gap types, got {type(head.types).__name__}")
    if trained <= head.types.w or reach < head.types.w:
        raise ValueError(f"trained must be above w={head.types.w} and reach not below it, got {trained} and {reach}")
    if extra < 0:
        raise ValueError(f"extra must not be negative, got {extra}")
    wide = GapTypes(head.types.k, reach)
    a = torch.zeros(len(wide.shapes), head.a.shape[1], dtype=torch.float64)
    near = wide.spans <= head.types.w
    a[near] = head.a[head.types.of_cells(wide.shapes[near], 0)]
    a[wide.spans >= trained] = extra
    return SparseHead(wide, a, head.g)
