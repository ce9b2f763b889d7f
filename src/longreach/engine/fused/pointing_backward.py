"""The backward kernels of a pointer head: see `pointing.py`."""

# kernels are not annotated: Triton reads their source, and mypy cannot
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

import triton
import triton.language as tl

from longreach.engine.fused.pointing_scores import load_answers, load_rows, logsumexp, score_tokens, take_column


@triton.jit
def pointer_backward_answers(
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
    row, real, seen, wanted, scale, growth, log_seen = load_answers(
        visible, target, log_scale, slope, factor, batch, rows_of_model, first, answers, ANSWERS
    )
    kind, move = tl.arange(0, SPECIALS), tl.arange(0, MOVES)
    of_kind = load_rows(special, row, real, answers, kind, specials)
    if KIND_FIRST:
        of_kind = of_kind - logsumexp(of_kind)[:, None]
    of_move = load_rows(moves, row, real, answers, move, number_of_moves)
    of_move = of_move - logsumexp(of_move)[:, None]
    bonus = take_column(of_kind, kind, 1)
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
        raw = scale * score_tokens(
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
            ways = tl.exp(z + (take_column(of_move, move, number) - hit)[:, None])
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
        score = take_column(of_kind, kind, 0)
        d_move *= d_out[:, None]
        if KIND_FIRST:
            current = (seen - 1)[:, None] + move[None, :] * tokens
            is_move = (move < number_of_moves)[None, :]
            ids = tl.load(reachable + current, mask=real[:, None] & is_move, other=-1)
            ways = tl.exp(of_move + (bonus - ways_to)[:, None])
            ways = d_out[:, None] * tl.where(is_move & (ids == wanted[:, None]), ways, 0.0)
            d_move += ways
            d_bonus = tl.sum(ways, 1) - d_out * tl.exp(bonus - all_ways)
            any_token = take_column(of_kind, kind, 2)
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
            level = take_column(of_kind, kind, other + (3 if KIND_FIRST else 2))
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
def pointer_backward_tokens(
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
        row, real, seen, wanted, scale, growth, _ = load_answers(
            visible, target, log_scale, slope, factor, batch, rows_of_model, first, answers, ANSWERS
        )
        of_move = load_rows(moves, row, real, answers, move, number_of_moves)
        of_move = of_move - logsumexp(of_move)[:, None]
        d_out = tl.load(d_found + row, mask=real, other=0.0).to(tl.float32)
        hit = tl.load(stats + 2 * size + row, mask=real, other=0.0)
        miss = tl.load(stats + 3 * size + row, mask=real, other=0.0)
        peak = tl.load(stats + 4 * size + row, mask=real, other=0.0)
        z = scale * score_tokens(
            query, memory, row, real, token, tokens, width, memory_stride, DTYPE, PRECISION, ANSWERS, TOKENS, CHUNK
        )
        if not KIND_FIRST:
            bonus = take_column(load_rows(special, row, real, answers, kind, specials), kind, 1)
            z += tl.where(token[None, :] == seen[:, None] - 1, bonus[:, None], 0.0)
        inside = real[:, None] & (token[None, :] < seen[:, None])
        z = tl.where(inside, z * growth[:, None] - peak[:, None], float("-inf"))
        share = -tl.exp(z - miss[:, None])
        for number in range(number_of_moves):
            ids = tl.load(reachable + number * tokens + token, mask=token < tokens, other=-1)
            ways = tl.exp(z + (take_column(of_move, move, number) - hit)[:, None])
            share += tl.where(inside & (ids[None, :] == wanted[:, None]), ways, 0.0)
        d_raw = tl.where(inside, share * (d_out * growth * scale)[:, None], 0.0)
        q = tl.load(
            query + row[:, None] * width + column[None, :], mask=real[:, None] & (column < width)[None, :], other=0.0
        )
        d_m = tl.dot(tl.trans(d_raw.to(DTYPE)), q.to(DTYPE), d_m, input_precision=PRECISION)
    place = (batch * tokens + token)[:, None] * width + column[None, :]
    tl.store(d_memory + place, d_m, mask=(token < tokens)[:, None] & (column < width)[None, :])
