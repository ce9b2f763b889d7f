"""What a piece of work costs a model: seconds, and tokens put through it."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from longreach.bench.machine import wait_for
from longreach.probe import HuggingFace

T = TypeVar("T")


@dataclass(frozen=True)
class Spent:
    seconds: float = 0.0
    tokens: int = 0

    def __add__(self, other: "Spent") -> "Spent":
        return Spent(self.seconds + other.seconds, self.tokens + other.tokens)


def spend(model: HuggingFace, work: Callable[[], T]) -> tuple[T, Spent]:
    """What the work gives, and its cost.  Tokens are counted where they enter the model, whoever calls it."""
    read = 0

    def count(module: object, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        nonlocal read
        read += options["input_ids"].numel()

    hook = model.model.register_forward_pre_hook(count, with_kwargs=True)
    try:
        wait_for(str(model.device))
        start = time.perf_counter()
        given = work()
        wait_for(str(model.device))
        return given, Spent(time.perf_counter() - start, read)
    finally:
        hook.remove()
