"""The kernels of a GPU, or the operators on a CPU, that training steps spend their time on, by torch.profiler."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

WARM_UP = 2
"""Steps under the profiler that are not counted: it starts with the first of them."""
_STEP = "ProfilerStep"
"""The range of a step in a trace; on a CPU its own time is that of no operator."""
PYTHON = "Python, between operators"
_LONGEST = 72
"""The most characters of a name in a table."""

_GROUPS = (
    ("attention", r"flash|fmha|attention|scaled_dot_product|^_attend$|^_rotary_(forward|backward)$"),
    ("optimizer", r"adam|multi_tensor_apply|foreach|vector_norm|clip_grad|optimizer|^_(measure|follow)$"),
    ("norms", r"layer_?norm|rms_?norm|gammabeta|computegradinput|normalize|^_norm_(forward|backward)$"),
    (
        "products",
        r"gemm|nvjet|cutlass|cublas|splitk|^_gelu_product_|::(mm|bmm|addmm|baddbmm|matmul|linear)$|(mm|bmm)backward",
    ),
    ("pointer head", r"^pointer_|^_direction_"),
    ("softmax", r"softmax|cross_entropy|nll_loss|logsumexp|logaddexp"),
    ("copies", r"memcpy|memset|copy|clone|catarray|::(cat|stack|contiguous|to|_to_copy|zero_|fill_|zeros)$|fill"),
    ("lookups", r"index|gather|scatter|embedding|one_hot"),
    ("sorting", r"sort|topk|cub::|scan|cumsum"),
    ("sums", r"reduce|::(sum|mean|amax|amin|max|min|all|any|argmax)$"),
    ("fused layers", r"^_(copy_rows|sum_\w+|(gelu|gate)_(forward|backward))$|^triton_"),
    ("elementwise", r"elementwise|pointwise|gelu|::(add|sub|mul|div|neg|where|masked_fill|rsqrt|sqrt|pow|exp|log)_?$"),
)
"""Kinds of kernels and operators by their names, in the order in which they are tried."""


@dataclass(frozen=True)
class OperatorRow:
    """A kernel, or an operator."""

    name: str
    group: str
    """Its kind as far as the name says, or empty."""
    calls: float
    """Per step."""
    milliseconds: float
    """Per step, without the operators that it calls."""
    share: float
    """Of all operators, Python included."""


@dataclass(frozen=True)
class Operators:
    """The kernels of a GPU, or the operators on a CPU, of some training steps."""

    kind: str
    """`kernels` or `operators`."""
    steps: int
    milliseconds: float
    """Per step, the sum of all rows."""
    busy_milliseconds: float
    """Per step, in which at least one kernel or operator ran: kernels of two streams overlap."""
    rows: tuple[OperatorRow, ...]
    """The longest first."""
    streams: tuple[float, ...] = ()
    """Milliseconds per step on each stream of a GPU, the longest first."""


class OperatorTrace:
    """A trace of some consecutive steps.  It observes the steps of a run and changes none of them."""

    def __init__(self, steps: int, device: str) -> None:
        from torch.profiler import ProfilerActivity, profile, schedule

        cuda = torch.device(device).type == "cuda"
        self.steps, self.cuda, self.left = steps, cuda, WARM_UP + steps
        self.found: Operators | None = None
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
        # the steps are counted when the trace is complete, so the profiler must not drop them before
        self.profiler = profile(
            activities=activities, schedule=schedule(wait=0, warmup=WARM_UP, active=steps, repeat=1), acc_events=True
        )
        self.running = False

    @property
    def reaches_border(self) -> bool:
        """Whether the next call of `step` begins or ends the trace."""
        return self.left in (self.steps + 1, 1)

    def start(self) -> None:
        self.profiler.start()
        self.running = True

    def step(self) -> bool:
        """Note the end of a step; return whether the trace is complete.  At a border its work must be done."""
        self.left -= 1
        self.profiler.step()
        if self.left:
            return False
        self.stop()
        self.found = self._count_kernels() if self.cuda else self._count_operators()
        return True

    def stop(self) -> None:
        """Stop tracing; without effect if nothing is traced."""
        if self.running:
            self.running = False
            self.profiler.stop()

    def _count_kernels(self) -> Operators:
        events: list[Any] = self.profiler.events() or []  # type: ignore[no-untyped-call]
        return count_kernels(events, self.steps)

    def _count_operators(self) -> Operators:
        spent: dict[str, float] = {PYTHON: 0.0}
        calls: dict[str, int] = {PYTHON: 0}
        for one in self.profiler.key_averages():
            name = PYTHON if one.key.startswith(_STEP) else one.key
            spent[name] = spent.get(name, 0.0) + one.self_cpu_time_total
            calls[name] = calls.get(name, 0) + (0 if name == PYTHON else one.count)
        return _table("operators", spent, calls, sum(spent.values()) - spent[PYTHON], self.steps)


def count_kernels(events: Iterable[Any], steps: int) -> Operators:
    """Sum the events of a trace that ran on a GPU by their names."""
    spent: dict[str, float] = {}
    calls: dict[str, int] = {}
    streams: dict[object, float] = {}
    ranges = []
    for one in events:
        on_gpu = str(one.device_type).endswith(".CUDA")
        if not on_gpu or getattr(one, "is_user_annotation", False) or one.name.startswith(_STEP):
            continue
        time, stream = one.time_range.end - one.time_range.start, getattr(one, "device_resource_id", None)
        spent[one.name] = spent.get(one.name, 0.0) + time
        calls[one.name] = calls.get(one.name, 0) + 1
        streams[stream] = streams.get(stream, 0.0) + time
        ranges.append((one.time_range.start, one.time_range.end))
    by_stream = tuple(sorted((own / steps / 1e3 for own in streams.values()), reverse=True))
    return replace(_table("kernels", spent, calls, covered(ranges), steps), streams=by_stream)


def covered(ranges: Iterable[tuple[float, float]]) -> float:
    """Return the length of the union of intervals."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(ranges):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def group_of(name: str) -> str:
    """Return the kind of a kernel or operator as far as its name says; empty where it does not."""
    lowered = name.lower()
    return next((group for group, pattern in _GROUPS if re.search(pattern, lowered)), "")


def short_name(name: str) -> str:
    """Return the name of a kernel without the namespaces of torch, cut to the width of a table."""
    shorter = re.sub(r"\(anonymous namespace\)::|at::native::|at::cuda::|at::|c10::|std::|^void ", "", name)
    shorter = shorter.removeprefix("autograd::engine::evaluate_function: ")
    return shorter if len(shorter) <= _LONGEST else f"{shorter[: _LONGEST - 1]}…"


def first_rows(rows: Sequence[OperatorRow], most: int) -> list[OperatorRow]:
    """Return the longest rows, and the sum of the others as one row."""
    shown, rest = list(rows[:most]), rows[most:]
    if not rest:
        return shown
    calls, milliseconds, share = (
        sum(getattr(row, name) for row in rest) for name in ("calls", "milliseconds", "share")
    )
    return [*shown, OperatorRow(f"{len(rest)} others", "", calls, milliseconds, share)]


def _table(kind: str, spent: Mapping[str, float], calls: Mapping[str, int], busy: float, steps: int) -> Operators:
    """Return the table of microseconds and calls in all steps."""
    total = sum(spent.values())
    rows = [
        OperatorRow(name, group_of(name), calls[name] / steps, time / steps / 1e3, time / total if total else 0.0)
        for name, time in sorted(spent.items(), key=lambda item: -item[1])
    ]
    return Operators(kind, steps, total / steps / 1e3, busy / steps / 1e3, tuple(rows))
