"""Gradients of weights on a second stream of a GPU, beside the backward pass that goes on.

From layer to layer a backward pass waits for the gradients of states alone.  Those of weights, biases and norms are
wanted when it is over, and fit into what the kernels of a small model leave idle.  This is right only where nobody
reads them before: a weight that is used twice gets the sum of two gradients, which autograd takes at once.  So one pass
is watched first.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

Made = TypeVar("Made", Tensor, tuple[Tensor, ...])

_HELD = 24
"""Results, of which a layer has seven.  What they are made of takes memory until they are there, so at most twice as
many are outstanding; and waiting interrupts a backward pass, so as many are waited for at once."""


class Watch:
    """Finds out whether what is made beside a backward pass becomes the gradients of parameters as it is."""

    def __init__(self) -> None:
        self.made: list[Tensor] = []

    def run(self, make: Callable[..., Made], *read: Any) -> Made:
        made = make(*read)
        # held, so that nothing is added to them in place and nothing else takes their memory; and not as they are, for
        # what is held would not become a gradient itself, but a copy of it
        self.made += [tensor.detach() for tensor in (made if isinstance(made, tuple) else (made,))]
        return made

    def finds_nobody_waiting(self, parameters: Iterable[nn.Parameter]) -> bool:
        """After the pass, in which something was made.  A gradient that was added to another, or copied, lies
        elsewhere."""
        parameters = list(parameters)
        made = {tensor.data_ptr() for tensor in self.made}
        gradients = {parameter.grad.data_ptr() for parameter in parameters if parameter.grad is not None}
        hooks = any(parameter._backward_hooks or parameter._post_accumulate_grad_hooks for parameter in parameters)
        return not hooks and 0 < len(self.made) == len(made) and made <= gradients


class SecondStream:
    """Makes them there."""

    def __init__(self) -> None:
        self.stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self.outstanding: deque[tuple[torch.cuda.Event, Any]] = deque()

    def run(self, make: Callable[..., Made], *read: Any) -> Made:
        main = torch.cuda.current_stream()
        self.stream.wait_stream(main)
        with torch.cuda.stream(self.stream):
            made = make(*read)
            self.outstanding.append((self.stream.record_event(), read))
        if len(self.outstanding) > 2 * _HELD:
            done = [self.outstanding.popleft()[0] for _ in range(_HELD)]
            main.wait_event(done[-1])
        return made

    def wait(self) -> None:
        """Until all is there."""
        torch.cuda.current_stream().wait_stream(self.stream)
        self.outstanding.clear()


_open: Watch | SecondStream | None = None
"""For all threads: autograd has its own for backward passes."""


@contextmanager
def beside_backward(way: Watch | SecondStream) -> Iterator[None]:
    """While a backward pass runs."""
    global _open
    if isinstance(way, SecondStream):
        way.stream.wait_stream(torch.cuda.current_stream())  # so that it can be waited for, whether used or not
    _open = way
    try:
        yield
    finally:
        _open = None
        if isinstance(way, SecondStream):
            way.wait()  # also after an error, which would be disguised as that of a stream nobody waited for


def beside(make: Callable[..., Made], *read: Any) -> Made:
    """Gradients of parameters, made of what is given: at once, unless a second stream is open."""
    return make(*read) if _open is None else _open.run(make, *read)
