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
from longreach.engine.kernels import on_its_device

_ANSWERS, _TOKENS = 16, 32
_CHUNK, _WIDEST = 64, 256
"""The columns of a product, and of a gradient that one program holds."""
_IN_TRITON = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}


class Asked(NamedTuple):
    """The integers of one level, all contiguous."""

    visible: Int[Tensor, "b a"]
    """The number of tokens read."""
    target: Int[Tensor, "b a"]
    reserved: Int[Tensor, "b"]
    reachable: Int[Tensor, "b moves t"]
    others: Int[Tensor, "b a others"]
    """The IDs of the current token at the other levels, under each move."""


@triton.jit
def _exp_from(x, peak):
    """Return exp(x - peak), and 0 where both are minus infinity."""
    return tl.exp(x - tl.where(peak == float("-inf"), 0.0, peak))


@triton.jit
def _logsumexp(x):
    peak = tl.max(x, 1)
    safe = tl.where(peak == float("-inf"), 0.0, peak)
    return safe + tl.log(tl.sum(tl.exp(x - safe[:, None]), 1))


@triton.jit
def _logaddexp(x, y):
    peak = tl.maximum(x, y)
    safe = tl.where(peak == float("-inf"), 0.0, peak)
    return safe + tl.log(tl.exp(x - safe) + tl.exp(y - safe))


@triton.jit
def _column(x, index, number):
    """Return one column of a tile [answers, columns]."""
    return tl.sum(tl.where(index[None, :] == number, x, 0.0), 1)


@triton.jit
def _load_rows(start, row, real, count, index, columns):
    """Load [answers, columns]; missing columns are minus infinity."""
    inside = (index < columns)[None, :]
    value = tl.load(start + row[:, None] * columns + index[None, :], mask=real[:, None] & inside, other=0.0)
    return tl.where(inside, value.to(tl.float32), float("-inf"))


@triton.jit
def _scores(
    query,
    memory,
    row,
    real,
    token,
    tokens,
    width,
    memory_stride,
    DTYPE: tl.constexpr,
    PRECISION: tl.constexpr,
    ANSWERS: tl.constexpr,
    TOKENS: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """Return the products [answers, tokens] of queries and what is remembered of tokens."""
    total = tl.zeros((ANSWERS, TOKENS), tl.float32)
    for start in range(0, width, CHUNK):
        column = start + tl.arange(0, CHUNK)
        inside = column < width
        q = tl.load(query + row[:, None] * width + column[None, :], mask=real[:, None] & inside[None, :], other=0.0)
        place = memory + token[:, None].to(tl.int64) * memory_stride + column[None, :]
        m = tl.load(place, mask=(token < tokens)[:, None] & inside[None, :], other=0.0)
        total = tl.dot(q.to(DTYPE), tl.trans(m.to(DTYPE)), total, input_precision=PRECISION)
    return total


@triton.jit
def _of_answers(visible, target, log_scale, slope, factor, batch, rows_of_model, first, answers, ANSWERS: tl.constexpr):
    """Load a block of answers: rows, which of them are real, visible tokens, targets, scale, growth, log of visible."""
    answer = first + tl.arange(0, ANSWERS)
    real = answer < answers
    row = batch * answers + answer
    seen = tl.load(visible + row, mask=real, other=1)
    wanted = tl.load(target + row, mask=real, other=-1)
    model = batch // rows_of_model
    scale = tl.exp(tl.load(log_scale + model).to(tl.float32)) * factor
    log_seen = tl.log(seen.to(tl.float32))
    growth = 1.0 + tl.load(slope + model).to(tl.float32) * log_seen
    return row, real, seen, wanted, scale, growth, log_seen


@triton.jit
def _forward(
    query,
    memory,
    special,
    moves,
    log_scale,
    slope,
    visible,
    target,
    reserved,
    reachable,
    others,
    found,
    stats,
    rows_of_model,
    answers,
    tokens,
    width,
    specials,
    number_of_moves,
    memory_batch,
    memory_stride,
    factor,
    KIND_FIRST: tl.constexpr,
    OTHERS: tl.constexpr,
    SPECIALS: tl.constexpr,
    MOVES: tl.constexpr,
    DTYPE: tl.constexpr,
    PRECISION: tl.constexpr,
    ANSWERS: tl.constexpr,
    TOKENS: tl.constexpr,
    CHUNK: tl.constexpr,
):
    batch, first = tl.program_id(0).to(tl.int64), tl.program_id(1) * ANSWERS
    row, real, seen, wanted, scale, growth, _ = _of_answers(
        visible, target, log_scale, slope, factor, batch, rows_of_model, first, answers, ANSWERS
    )
    kind, move = tl.arange(0, SPECIALS), tl.arange(0, MOVES)
    of_kind = _load_rows(special, row, real, answers, kind, specials)
    if KIND_FIRST:
        of_kind = of_kind - _logsumexp(of_kind)[:, None]
    of_move = _load_rows(moves, row, real, answers, move, number_of_moves)
    of_move = of_move - _logsumexp(of_move)[:, None]
    bonus = _column(of_kind, kind, 1)

    peak = tl.full((ANSWERS,), float("-inf"), tl.float32)
    total = tl.zeros((ANSWERS,), tl.float32)
    hit_peak, hit_total = peak, total
    memory += batch * memory_batch
    reachable += batch * number_of_moves * tokens
    last = tl.minimum(tl.max(tl.where(real, seen, 1), 0).to(tl.int32), tokens)
    for start in range(0, last, TOKENS):
        token = start + tl.arange(0, TOKENS)
        z = scale * _scores(
            query, memory, row, real, token, tokens, width, memory_stride, DTYPE, PRECISION, ANSWERS, TOKENS, CHUNK
        )
        if not KIND_FIRST:
            z += tl.where(token[None, :] == seen[:, None] - 1, bonus[:, None], 0.0)
        z = tl.where(token[None, :] < seen[:, None], z * growth[:, None], float("-inf"))
        higher = tl.maximum(peak, tl.max(z, 1))
        total = total * _exp_from(peak, higher) + tl.sum(_exp_from(z, higher[:, None]), 1)
        peak = higher
        for number in range(number_of_moves):
            ids = tl.load(reachable + number * tokens + token, mask=token < tokens, other=-1)
            ways = z + _column(of_move, move, number)[:, None]
            ways = tl.where(ids[None, :] == wanted[:, None], ways, float("-inf"))
            higher = tl.maximum(hit_peak, tl.max(ways, 1))
            hit_total = hit_total * _exp_from(hit_peak, higher) + tl.sum(_exp_from(ways, higher[:, None]), 1)
            hit_peak = higher
    # from here on relative to the highest score, so that large scores cost no digits
    of_tokens = tl.log(total)
    hits = hit_peak - peak + tl.log(hit_total)  # minus infinity without any

    none = tl.load(reserved + batch)
    score = _column(of_kind, kind, 0)
    if KIND_FIRST:
        any_token = _column(of_kind, kind, 2)
        current = (seen - 1)[:, None] + move[None, :] * tokens
        is_move = (move < number_of_moves)[None, :]
        ids = tl.load(reachable + current, mask=real[:, None] & is_move, other=-1)
        of_current = _logsumexp(tl.where(is_move & (ids == wanted[:, None]), of_move, float("-inf")))
        all_ways = _logaddexp(score, _logaddexp(any_token, bonus))
        ways_to = _logaddexp(hits - of_tokens + any_token, of_current + bonus)
    else:
        score = score * growth - peak
        all_ways = _logaddexp(score, of_tokens)
        ways_to = hits
    ways_to = _logaddexp(ways_to, tl.where(wanted == none, score, float("-inf")))
    for other in tl.static_range(OTHERS):
        level = _column(of_kind, kind, other + (3 if KIND_FIRST else 2))
        if not KIND_FIRST:
            level = level * growth - peak
        is_move = (move < number_of_moves)[None, :]
        place = (row * OTHERS + other)[:, None] * number_of_moves + move[None, :]
        ids = tl.load(others + place, mask=real[:, None] & is_move, other=-1)
        shown = is_move & (ids != none)
        all_ways = _logaddexp(all_ways, level + _logsumexp(tl.where(shown, of_move, float("-inf"))))
        to_target = tl.where(shown & (ids == wanted[:, None]), of_move, float("-inf"))
        ways_to = _logaddexp(ways_to, level + _logsumexp(to_target))
    tl.store(found + row, ways_to - all_ways, mask=real)
    size = tl.num_programs(0).to(tl.int64) * answers
    tl.store(stats + row, ways_to, mask=real)
    tl.store(stats + size + row, all_ways, mask=real)
    # the shares of a token among the ways to the target and among all are exp(z - peak - hit) and exp(z - peak - miss)
    if KIND_FIRST:
        hit = ways_to + of_tokens - any_token
        miss = hit + of_tokens - hits
    else:
        hit, miss = ways_to, all_ways
    tl.store(stats + 2 * size + row, hit, mask=real)
    tl.store(stats + 3 * size + row, miss, mask=real)
    tl.store(stats + 4 * size + row, peak, mask=real)


@triton.jit
def _backward_answers(
    d_found,
    query,
    memory,
    special,
    moves,
    log_scale,
    slope,
    visible,
    target,
    reserved,
    reachable,
    others,
    stats,
    d_query,
    d_special,
    d_moves,
    sums,
    rows_of_model,
    answers,
    tokens,
    width,
    specials,
    number_of_moves,
    memory_batch,
    memory_stride,
    factor,
    KIND_FIRST: tl.constexpr,
    OTHERS: tl.constexpr,
    SPECIALS: tl.constexpr,
    MOVES: tl.constexpr,
    DTYPE: tl.constexpr,
    PRECISION: tl.constexpr,
    ANSWERS: tl.constexpr,
    TOKENS: tl.constexpr,
    CHUNK: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Gradients of queries, for some columns; the programs of the first columns compute all others."""
    batch, first = tl.program_id(0).to(tl.int64), tl.program_id(1) * ANSWERS
    row, real, seen, wanted, scale, growth, log_seen = _of_answers(
        visible, target, log_scale, slope, factor, batch, rows_of_model, first, answers, ANSWERS
    )
    kind, move = tl.arange(0, SPECIALS), tl.arange(0, MOVES)
    of_kind = _load_rows(special, row, real, answers, kind, specials)
    if KIND_FIRST:
        of_kind = of_kind - _logsumexp(of_kind)[:, None]
    of_move = _load_rows(moves, row, real, answers, move, number_of_moves)
    of_move = of_move - _logsumexp(of_move)[:, None]
    bonus = _column(of_kind, kind, 1)
    size = tl.num_programs(0).to(tl.int64) * answers
    d_out = tl.load(d_found + row, mask=real, other=0.0).to(tl.float32)
    ways_to = tl.load(stats + row, mask=real, other=0.0)
    all_ways = tl.load(stats + size + row, mask=real, other=0.0)
    hit = tl.load(stats + 2 * size + row, mask=real, other=0.0)
    miss = tl.load(stats + 3 * size + row, mask=real, other=0.0)
    peak = tl.load(stats + 4 * size + row, mask=real, other=0.0)

    column = tl.program_id(2) * COLUMNS + tl.arange(0, COLUMNS)
    d_q = tl.zeros((ANSWERS, COLUMNS), tl.float32)
    d_move = tl.zeros((ANSWERS, MOVES), tl.float32)
    d_bonus = tl.zeros((ANSWERS,), tl.float32)
    d_growth, d_log_scale = d_bonus, d_bonus
    memory += batch * memory_batch
    reachable += batch * number_of_moves * tokens
    last = tl.minimum(tl.max(tl.where(real, seen, 1), 0).to(tl.int32), tokens)
    for start in range(0, last, TOKENS):
        token = start + tl.arange(0, TOKENS)
        raw = scale * _scores(
            query, memory, row, real, token, tokens, width, memory_stride, DTYPE, PRECISION, ANSWERS, TOKENS, CHUNK
        )
        is_current = token[None, :] == seen[:, None] - 1
        grows = raw
        if not KIND_FIRST:
            grows += tl.where(is_current, bonus[:, None], 0.0)
        inside = real[:, None] & (token[None, :] < seen[:, None])
        z = tl.where(inside, grows * growth[:, None] - peak[:, None], float("-inf"))
        share = -tl.exp(z - miss[:, None])
        for number in range(number_of_moves):
            ids = tl.load(reachable + number * tokens + token, mask=token < tokens, other=-1)
            ways = tl.exp(z + (_column(of_move, move, number) - hit)[:, None])
            ways = tl.where(inside & (ids[None, :] == wanted[:, None]), ways, 0.0)
            share += ways
            d_move += tl.where(move[None, :] == number, tl.sum(ways, 1)[:, None], 0.0)
        d_z = tl.where(inside, share * d_out[:, None], 0.0)
        d_growth += tl.sum(d_z * grows, 1)
        d_raw = d_z * growth[:, None]
        d_log_scale += tl.sum(d_raw * raw, 1)
        if not KIND_FIRST:
            d_bonus += tl.sum(tl.where(is_current, d_raw, 0.0), 1)
        place = memory + token[:, None].to(tl.int64) * memory_stride + column[None, :]
        m = tl.load(place, mask=(token < tokens)[:, None] & (column < width)[None, :], other=0.0)
        d_q = tl.dot(d_raw.to(DTYPE), m.to(DTYPE), d_q, input_precision=PRECISION)
    own = row[:, None] * width + column[None, :]
    tl.store(d_query + own, d_q * scale, mask=real[:, None] & (column < width)[None, :])

    if tl.program_id(2) == 0:
        none = tl.load(reserved + batch)
        score = _column(of_kind, kind, 0)
        d_move *= d_out[:, None]
        if KIND_FIRST:
            current = (seen - 1)[:, None] + move[None, :] * tokens
            is_move = (move < number_of_moves)[None, :]
            ids = tl.load(reachable + current, mask=real[:, None] & is_move, other=-1)
            ways = tl.exp(of_move + (bonus - ways_to)[:, None])
            ways = d_out[:, None] * tl.where(is_move & (ids == wanted[:, None]), ways, 0.0)
            d_move += ways
            d_bonus = tl.sum(ways, 1) - d_out * tl.exp(bonus - all_ways)
            any_token = _column(of_kind, kind, 2)
            d_any = d_out * (tl.exp(any_token - ways_to + hit - miss) - tl.exp(any_token - all_ways))
            d_kind = tl.where(kind[None, :] == 2, d_any[:, None], 0.0)
            grown = score
        else:
            d_kind = tl.zeros((ANSWERS, SPECIALS), tl.float32)
            grown = score * growth - peak
        d_score = d_out * (tl.where(wanted == none, tl.exp(grown - ways_to), 0.0) - tl.exp(grown - all_ways))
        if not KIND_FIRST:
            d_growth += d_score * score
            d_score *= growth
        d_kind += tl.where(kind[None, :] == 0, d_score[:, None], 0.0)
        d_kind += tl.where(kind[None, :] == 1, d_bonus[:, None], 0.0)
        for other in tl.static_range(OTHERS):
            level = _column(of_kind, kind, other + (3 if KIND_FIRST else 2))
            grown = level
            if not KIND_FIRST:
                grown = level * growth - peak
            is_move = (move < number_of_moves)[None, :]
            at_other = (row * OTHERS + other)[:, None] * number_of_moves + move[None, :]
            ids = tl.load(others + at_other, mask=real[:, None] & is_move, other=-1)
            shown = is_move & (ids != none)
            ways = tl.where(shown & (ids == wanted[:, None]), tl.exp(of_move + (grown - ways_to)[:, None]), 0.0)
            ways -= tl.where(shown, tl.exp(of_move + (grown - all_ways)[:, None]), 0.0)
            ways *= d_out[:, None]
            d_move += ways
            d_level = tl.sum(ways, 1)
            if not KIND_FIRST:
                d_growth += d_level * level
                d_level *= growth
            d_kind += tl.where(kind[None, :] == other + (3 if KIND_FIRST else 2), d_level[:, None], 0.0)
        if KIND_FIRST:
            d_kind -= tl.exp(of_kind) * tl.sum(d_kind, 1)[:, None]
        d_move -= tl.exp(of_move) * tl.sum(d_move, 1)[:, None]
        of_kinds = real[:, None] & (kind < specials)[None, :]
        tl.store(d_special + row[:, None] * specials + kind[None, :], d_kind, mask=of_kinds)
        of_moves = real[:, None] & (move < number_of_moves)[None, :]
        tl.store(d_moves + row[:, None] * number_of_moves + move[None, :], d_move, mask=of_moves)
        sums += (batch * tl.num_programs(1) + tl.program_id(1)) * 2
        tl.store(sums, tl.sum(tl.where(real, d_log_scale, 0.0), 0))
        tl.store(sums + 1, tl.sum(tl.where(real, d_growth * log_seen, 0.0), 0))


@triton.jit
def _backward_tokens(
    d_found,
    query,
    memory,
    special,
    moves,
    log_scale,
    slope,
    visible,
    target,
    reachable,
    stats,
    d_memory,
    rows_of_model,
    answers,
    tokens,
    width,
    specials,
    number_of_moves,
    memory_batch,
    memory_stride,
    factor,
    KIND_FIRST: tl.constexpr,
    SPECIALS: tl.constexpr,
    MOVES: tl.constexpr,
    DTYPE: tl.constexpr,
    PRECISION: tl.constexpr,
    ANSWERS: tl.constexpr,
    TOKENS: tl.constexpr,
    CHUNK: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Gradients of what is remembered of tokens, for some columns."""
    batch = tl.program_id(0).to(tl.int64)
    token = tl.program_id(1) * TOKENS + tl.arange(0, TOKENS)
    column = tl.program_id(2) * COLUMNS + tl.arange(0, COLUMNS)
    kind, move = tl.arange(0, SPECIALS), tl.arange(0, MOVES)
    size = tl.num_programs(0).to(tl.int64) * answers
    d_m = tl.zeros((TOKENS, COLUMNS), tl.float32)
    memory += batch * memory_batch
    reachable += batch * number_of_moves * tokens
    for first in range(0, answers, ANSWERS):
        row, real, seen, wanted, scale, growth, _ = _of_answers(
            visible, target, log_scale, slope, factor, batch, rows_of_model, first, answers, ANSWERS
        )
        of_move = _load_rows(moves, row, real, answers, move, number_of_moves)
        of_move = of_move - _logsumexp(of_move)[:, None]
        d_out = tl.load(d_found + row, mask=real, other=0.0).to(tl.float32)
        hit = tl.load(stats + 2 * size + row, mask=real, other=0.0)
        miss = tl.load(stats + 3 * size + row, mask=real, other=0.0)
        peak = tl.load(stats + 4 * size + row, mask=real, other=0.0)
        z = scale * _scores(
            query, memory, row, real, token, tokens, width, memory_stride, DTYPE, PRECISION, ANSWERS, TOKENS, CHUNK
        )
        if not KIND_FIRST:
            bonus = _column(_load_rows(special, row, real, answers, kind, specials), kind, 1)
            z += tl.where(token[None, :] == seen[:, None] - 1, bonus[:, None], 0.0)
        inside = real[:, None] & (token[None, :] < seen[:, None])
        z = tl.where(inside, z * growth[:, None] - peak[:, None], float("-inf"))
        share = -tl.exp(z - miss[:, None])
        for number in range(number_of_moves):
            ids = tl.load(reachable + number * tokens + token, mask=token < tokens, other=-1)
            ways = tl.exp(z + (_column(of_move, move, number) - hit)[:, None])
            share += tl.where(inside & (ids[None, :] == wanted[:, None]), ways, 0.0)
        d_raw = tl.where(inside, share * (d_out * growth * scale)[:, None], 0.0)
        q = tl.load(
            query + row[:, None] * width + column[None, :], mask=real[:, None] & (column < width)[None, :], other=0.0
        )
        d_m = tl.dot(tl.trans(d_raw.to(DTYPE)), q.to(DTYPE), d_m, input_precision=PRECISION)
    place = (batch * tokens + token)[:, None] * width + column[None, :]
    tl.store(d_memory + place, d_m, mask=(token < tokens)[:, None] & (column < width)[None, :])


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
        asked: Asked,
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
            _forward[(b, triton.cdiv(a, _ANSWERS))](
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
        asked = Asked(*ctx.saved_tensors[7:])
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
            _backward_answers[(b, blocks, across)](
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
            _backward_tokens[(b, triton.cdiv(memory.shape[1], _TOKENS), across)](
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


def _pointers(asked: Asked) -> tuple[Tensor, ...]:
    """Return the tensors of integers; kernels do not read the last one where it is empty."""
    return *asked[:4], asked.others if asked.others.numel() else asked.visible


def _others(asked: Asked, moves: Tensor) -> int:
    return asked.others.shape[2] // moves.shape[2]


def _sizes(
    query: Tensor,
    memory: Tensor,
    special: Tensor,
    moves: Tensor,
    asked: Asked,
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
    asked: Asked,
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
