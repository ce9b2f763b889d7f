"""The forward kernel of a pointer head, and the parts that it shares with the backward kernels: see `pointing.py`."""

# kernels are not annotated: Triton reads their source, and mypy cannot
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

import triton
import triton.language as tl


@triton.jit
def exp_from(x, peak):
    """Return exp(x - peak), and 0 where both are minus infinity."""
    return tl.exp(x - tl.where(peak == float("-inf"), 0.0, peak))


@triton.jit
def logsumexp(x):
    peak = tl.max(x, 1)
    safe = tl.where(peak == float("-inf"), 0.0, peak)
    return safe + tl.log(tl.sum(tl.exp(x - safe[:, None]), 1))


@triton.jit
def logaddexp(x, y):
    peak = tl.maximum(x, y)
    safe = tl.where(peak == float("-inf"), 0.0, peak)
    return safe + tl.log(tl.exp(x - safe) + tl.exp(y - safe))


@triton.jit
def take_column(x, index, number):
    """Return one column of a tile [answers, columns]."""
    return tl.sum(tl.where(index[None, :] == number, x, 0.0), 1)


@triton.jit
def load_rows(start, row, real, count, index, columns):
    """Load [answers, columns]; missing columns are minus infinity."""
    inside = (index < columns)[None, :]
    value = tl.load(start + row[:, None] * columns + index[None, :], mask=real[:, None] & inside, other=0.0)
    return tl.where(inside, value.to(tl.float32), float("-inf"))


@triton.jit
def score_tokens(
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
def load_answers(
    visible, target, log_scale, slope, factor, batch, rows_of_model, first, answers, ANSWERS: tl.constexpr
):
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
def pointer_forward(
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
    row, real, seen, wanted, scale, growth, _ = load_answers(
        visible, target, log_scale, slope, factor, batch, rows_of_model, first, answers, ANSWERS
    )
    kind, move = tl.arange(0, SPECIALS), tl.arange(0, MOVES)
    of_kind = load_rows(special, row, real, answers, kind, specials)
    if KIND_FIRST:
        of_kind = of_kind - logsumexp(of_kind)[:, None]
    of_move = load_rows(moves, row, real, answers, move, number_of_moves)
    of_move = of_move - logsumexp(of_move)[:, None]
    bonus = take_column(of_kind, kind, 1)

    peak = tl.full((ANSWERS,), float("-inf"), tl.float32)
    total = tl.zeros((ANSWERS,), tl.float32)
    hit_peak, hit_total = peak, total
    memory += batch * memory_batch
    reachable += batch * number_of_moves * tokens
    last = tl.minimum(tl.max(tl.where(real, seen, 1), 0).to(tl.int32), tokens)
    for start in range(0, last, TOKENS):
        token = start + tl.arange(0, TOKENS)
        z = scale * score_tokens(
            query, memory, row, real, token, tokens, width, memory_stride, DTYPE, PRECISION, ANSWERS, TOKENS, CHUNK
        )
        if not KIND_FIRST:
            z += tl.where(token[None, :] == seen[:, None] - 1, bonus[:, None], 0.0)
        z = tl.where(token[None, :] < seen[:, None], z * growth[:, None], float("-inf"))
        higher = tl.maximum(peak, tl.max(z, 1))
        total = total * exp_from(peak, higher) + tl.sum(exp_from(z, higher[:, None]), 1)
        peak = higher
        for number in range(number_of_moves):
            ids = tl.load(reachable + number * tokens + token, mask=token < tokens, other=-1)
            ways = z + take_column(of_move, move, number)[:, None]
            ways = tl.where(ids[None, :] == wanted[:, None], ways, float("-inf"))
            higher = tl.maximum(hit_peak, tl.max(ways, 1))
            hit_total = hit_total * exp_from(hit_peak, higher) + tl.sum(exp_from(ways, higher[:, None]), 1)
            hit_peak = higher
    # from here on relative to the highest score, so that large scores cost no digits
    of_tokens = tl.log(total)
    hits = hit_peak - peak + tl.log(hit_total)  # minus infinity without any

    none = tl.load(reserved + batch)
    score = take_column(of_kind, kind, 0)
    if KIND_FIRST:
        any_token = take_column(of_kind, kind, 2)
        current = (seen - 1)[:, None] + move[None, :] * tokens
        is_move = (move < number_of_moves)[None, :]
        ids = tl.load(reachable + current, mask=real[:, None] & is_move, other=-1)
        of_current = logsumexp(tl.where(is_move & (ids == wanted[:, None]), of_move, float("-inf")))
        all_ways = logaddexp(score, logaddexp(any_token, bonus))
        ways_to = logaddexp(hits - of_tokens + any_token, of_current + bonus)
    else:
        score = score * growth - peak
        all_ways = logaddexp(score, of_tokens)
        ways_to = hits
    ways_to = logaddexp(ways_to, tl.where(wanted == none, score, float("-inf")))
    for other in tl.static_range(OTHERS):
        level = take_column(of_kind, kind, other + (3 if KIND_FIRST else 2))
        if not KIND_FIRST:
            level = level * growth - peak
        is_move = (move < number_of_moves)[None, :]
        place = (row * OTHERS + other)[:, None] * number_of_moves + move[None, :]
        ids = tl.load(others + place, mask=real[:, None] & is_move, other=-1)
        shown = is_move & (ids != none)
        all_ways = logaddexp(all_ways, level + logsumexp(tl.where(shown, of_move, float("-inf"))))
        to_target = tl.where(shown & (ids == wanted[:, None]), of_move, float("-inf"))
        ways_to = logaddexp(ways_to, level + logsumexp(to_target))
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
