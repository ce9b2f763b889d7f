"""What is recorded as a CUDA graph and replayed reads and writes in the same places every time."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

Read = TypeVar("Read")
Written = TypeVar("Written")


def record(compute: Callable[[Read], Written], places: Read) -> tuple[Written, Callable[[], None]]:
    """Where the result of a function will lie, and what computes it anew from what lies in its places by then.
    Recording computes nothing."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = compute(places)
    return result, graph.replay


def fixed(tensor: Tensor) -> Tensor:
    """A place for tensors like this one.  What is given may be a view, into which nothing can be written."""
    return tensor.clone(memory_format=torch.contiguous_format)


def put(tensors: Sequence[Tensor], places: Sequence[Tensor]) -> None:
    """Write tensors where something recorded looks for them, those of a type at once."""
    by_type: dict[torch.dtype, list[tuple[Tensor, Tensor]]] = {}
    for pair in zip(places, tensors, strict=True):
        by_type.setdefault(pair[0].dtype, []).append(pair)
    for pairs in by_type.values():
        torch._foreach_copy_([place for place, _ in pairs], [tensor for _, tensor in pairs])
