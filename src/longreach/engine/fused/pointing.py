"""The log-probability of one ID under a pointer head, without a score for every answer and token in memory.

The reference is `IdChoice.log_probability` of the candidates of `Pointing`.  A program reads the tokens in tiles and
adds up the probabilities of all candidates and of those that stand for the target, as flash attention does.  The
probabilities of the moves add up to 1, so that the sum over all candidates needs no loop over moves.  The backward pass
computes the scores again.  No two programs add to the same number, so that gradients have the same bits every time.
"""

# kernels are not annotated: Triton reads their source, and mypy cannot
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from longreach.engine.fused.groups import sum_groups
from longreach.engine.fused.pointing_backward import pointer_backward_answers, pointer_backward_tokens
from longreach.engine.fused.pointing_scores import pointer_forward
from longreach.engine.kernels import on_its_device

_ANSWERS, _TOKENS = 16, 32
_CHUNK, _WIDEST = 64, 256
"""The columns of a product, and of a gradient that one program holds."""
_IN_TRITON = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}


class LevelIds(NamedTuple):
    """The integers of one level, all contiguous."""

    visible: Int[Tensor, "b a"]
    """The number of tokens read."""
    target: Int[Tensor, "b a"]
    reserved: Int[Tensor, "b"]
    reachable: Int[Tensor, "b moves t"]
    others: Int[Tensor, "b a others"]
    """The IDs of the current token at the other levels, under each move."""


class _LogProbability(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        memory: Tensor,
        special: Tensor,
        moves: Tensor,
        log_scale: Tensor,
        slope: Tensor,
        asked: LevelIds,
        kind_first: bool,
        factor: float,
        dtype: torch.dtype,
    ) -> Tensor:
        query, special, moves = (tensor.contiguous() for tensor in (query, special, moves))
        if memory.stride(2) != 1:
            memory = memory.contiguous()
        tensors = query, memory, special, moves, log_scale.contiguous(), slope.contiguous()
        b, a, _ = query.shape
        found = query.new_empty(b, a, dtype=torch.float32)
        stats = query.new_empty(5, b, a, dtype=torch.float32)
        numbers, sizes = _sizes(query, memory, special, moves, asked, log_scale.numel(), kind_first, factor, dtype)
        with on_its_device(query):
            pointer_forward[(b, triton.cdiv(a, _ANSWERS))](
                *tensors, *_pointers(asked), found, stats, *numbers, OTHERS=_others(asked, moves), **sizes
            )
        ctx.save_for_backward(*tensors, stats, *asked)
        ctx.settings = kind_first, factor, dtype
        return found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        *tensors, stats = ctx.saved_tensors[:7]
        query, memory, special, moves, log_scale, slope = tensors
        asked = LevelIds(*ctx.saved_tensors[7:])
        d_found = gradients[0].contiguous()
        b, a, width = query.shape
        models = log_scale.numel()
        blocks = triton.cdiv(a, _ANSWERS)
        d_query, d_special, d_moves = (torch.empty_like(tensor) for tensor in (query, special, moves))
        d_memory = torch.empty_like(memory, memory_format=torch.contiguous_format)
        sums = query.new_empty(models, b // models * blocks, 2, dtype=torch.float32)
        numbers, sizes = _sizes(query, memory, special, moves, asked, models, *ctx.settings)
        columns = min(_WIDEST, max(16, triton.next_power_of_2(width)))
        across = triton.cdiv(width, columns)
        with on_its_device(query):
            pointer_backward_answers[(b, blocks, across)](
                d_found,
                *tensors,
                *_pointers(asked),
                stats,
                d_query,
                d_special,
                d_moves,
                sums,
                *numbers,
                OTHERS=_others(asked, moves),
                COLUMNS=columns,
                **sizes,
            )
            pointer_backward_tokens[(b, triton.cdiv(memory.shape[1], _TOKENS), across)](
                d_found,
                *tensors,
                asked.visible,
                asked.target,
                asked.reachable,
                stats,
                d_memory,
                *numbers,
                COLUMNS=columns,
                **sizes,
            )
        d_log_scale, d_slope = sum_groups(sums).unbind(1)
        of_weights = d_log_scale.view(log_scale.shape).to(log_scale.dtype), d_slope.view(slope.shape).to(slope.dtype)
        return d_query, d_memory, d_special, d_moves, *of_weights, None, None, None, None


def _pointers(asked: LevelIds) -> tuple[Tensor, ...]:
    """Return the tensors of integers; kernels do not read the last one where it is empty."""
    return *asked[:4], asked.others if asked.others.numel() else asked.visible


def _others(asked: LevelIds, moves: Tensor) -> int:
    return asked.others.shape[2] // moves.shape[2]


def _sizes(
    query: Tensor,
    memory: Tensor,
    special: Tensor,
    moves: Tensor,
    asked: LevelIds,
    models: int,
    kind_first: bool,
    factor: float,
    dtype: torch.dtype,
) -> tuple[tuple[int | float, ...], dict[str, Any]]:
    """Return the numbers and the constants that all kernels share."""
    b, a, width = query.shape
    specials, count = special.shape[2], moves.shape[2]
    numbers = (b // models, a, memory.shape[1], width, specials, count, memory.stride(0), memory.stride(1), factor)
    return numbers, {
        "KIND_FIRST": kind_first,
        "SPECIALS": triton.next_power_of_2(specials),
        "MOVES": max(2, triton.next_power_of_2(count)),
        "DTYPE": _IN_TRITON[dtype],
        # exact, as for attention in fp32
        "PRECISION": "ieee" if dtype == torch.float32 else "tf32",
        "ANSWERS": _ANSWERS,
        "TOKENS": _TOKENS,
        "CHUNK": min(_CHUNK, max(16, triton.next_power_of_2(width))),
        "num_warps": 4,
        "num_stages": 2,
    }


def log_probability(
    query: Float[Tensor, "b a w"],
    memory: Float[Tensor, "b t w"],
    special: Float[Tensor, "b a s"],
    moves: Float[Tensor, "b a moves"],
    log_scale: Float[Tensor, "*models"],
    slope: Float[Tensor, "*models"],
    asked: LevelIds,
    kind_first: bool,
    factor: float,
    dtype: torch.dtype,
) -> Float[Tensor, "b a"]:
    """Return the log-probability of the target of each answer, in fp32.

    `special` and `moves` are scores before any softmax.  Products are multiplied by exp(log_scale) and `factor`, and
    computed in the precision `dtype`.  The rows of a batch belong to the models in turn.
    """
    found: Tensor = _LogProbability.apply(
        query, memory, special, moves, log_scale, slope, asked, kind_first, factor, dtype
    )
    return found
