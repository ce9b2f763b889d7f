"""One step of generation, recorded as a CUDA graph and replayed: a small model is done before Python launches it."""

import torch

from longreach.decoding import Writing, write_answers

FROM = 64
"""Tokens of an answer above which recording a step pays."""
_LOOK_EVERY = 32
"""Replayed steps between two looks at whether all rows have finished: looking waits for the device."""
_WARM_UP = 2
"""Steps before recording, in which libraries choose kernels and allocate what they keep."""


def write_recorded(writing: Writing) -> None:
    """Write answers as `write_answers` does; record the step where answers are long and greedy."""
    if writing.cache is None or writing.budget <= FROM or writing.draws is not None:
        write_answers(writing)
        return
    writing.cache.fix()
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # these steps count: they write the first tokens
        for _ in range(_WARM_UP):
            writing.write(None)
            writing.read()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        writing.write(None)
        writing.read()
    for step in range(_WARM_UP, writing.budget):
        if step % _LOOK_EVERY == 0 and bool(writing.finished.all()):
            break
        graph.replay()
