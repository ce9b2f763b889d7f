"""Kernels of attention over short sequences: see `short_attention.py`."""

# kernels are not annotated: Triton reads their source, and mypy cannot
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

import triton
import triton.language as tl

# fmt: off
# one argument a line would take three hundred lines


@triton.jit
def _dimensions(SIZE: tl.constexpr, HALF: tl.constexpr, PAIRS: tl.constexpr):
    """Return the first and the second dimension of each pair; those beyond the rotated ones are paired too."""
    index = tl.arange(0, SIZE)
    if PAIRS == HALF:
        first, second = index, HALF + index
    else:
        first = tl.where(index < PAIRS, index, PAIRS + index)
        second = tl.where(index < PAIRS, PAIRS + index, HALF + index)
    return first, second


@triton.jit
def _mask(inside, real, PADS: tl.constexpr):
    """Return which numbers of a tile exist; with PADS it is wider than the dimensions are."""
    mask = inside[:, None]
    if PADS:
        mask = mask & real[None, :]
    return mask


@triton.jit
def _load_dims(start, rows, stride, dims, mask):
    return tl.load(start + rows[:, None] * stride + dims[None, :], mask=mask, other=0.0)


@triton.jit
def _store_dims(start, value, rows, stride, dims, mask):
    tl.store(start + rows[:, None] * stride + dims[None, :], value, mask=mask)


@triton.jit
def _turn(first, second, cos, sin):
    """Rotate pairs of dimensions by the angles of their tokens."""
    return first * cos - second * sin, second * cos + first * sin


@triton.jit
def _angles(cos, sin, rows, inside, SIZE: tl.constexpr, PAIRS: tl.constexpr, TURNS: tl.constexpr):
    """Load the angles of all tokens; pairs that are not rotated get angle 0."""
    turn_cos = tl.full((rows.shape[0], SIZE), 1.0, tl.float32)
    turn_sin = tl.full((rows.shape[0], SIZE), 0.0, tl.float32)
    if TURNS:
        index = tl.arange(0, SIZE)
        place = rows[:, None] * PAIRS + index[None, :]
        mask = _mask(inside, index < PAIRS, PAIRS != SIZE)
        turn_cos = tl.load(cos + place, mask=mask, other=1.0).to(tl.float32)
        turn_sin = tl.load(sin + place, mask=mask, other=0.0).to(tl.float32)
    return turn_cos, turn_sin


@triton.jit
def _read(
    start, bias, constant, is_constant, rows, mask, stride, first, second, real, BIASED: tl.constexpr,
    CONSTANT: tl.constexpr,
):
    """Load the projected queries or keys of a head, half by half, or those that are the same for all tokens."""
    x1, x2 = _load_dims(start, rows, stride, first, mask), _load_dims(start, rows, stride, second, mask)
    if BIASED:
        x1 = (x1 + tl.load(bias + first, mask=real, other=0.0)[None, :]).to(x1.dtype)
        x2 = (x2 + tl.load(bias + second, mask=real, other=0.0)[None, :]).to(x2.dtype)
    if CONSTANT:
        c1 = tl.load(constant + first, mask=real & is_constant, other=0.0)[None, :].to(x1.dtype)
        c2 = tl.load(constant + second, mask=real & is_constant, other=0.0)[None, :].to(x2.dtype)
        x1, x2 = tl.where(is_constant[None, :], c1, x1), tl.where(is_constant[None, :], c2, x2)
    return x1, x2


@triton.jit
def _normalized(x1, x2, eps, HALF: tl.constexpr):
    """Divide by the root mean square; return the halves and the factor."""
    x1, x2 = x1.to(tl.float32), x2.to(tl.float32)
    factor = tl.rsqrt((tl.sum(x1 * x1, 1) + tl.sum(x2 * x2, 1)) / (2 * HALF) + eps)[:, None]
    return x1 * factor, x2 * factor, factor


@triton.jit
def _prepare(
    x1, x2, weight, eps, turn_cos, turn_sin, first, second, real, HALF: tl.constexpr, TURNS: tl.constexpr,
    NORMED: tl.constexpr,
):
    """Normalize and rotate queries or keys."""
    dtype = x1.dtype
    if NORMED:
        x1, x2, _ = _normalized(x1, x2, eps, HALF)
        x1 *= tl.load(weight + first, mask=real, other=0.0)[None, :]
        x2 *= tl.load(weight + second, mask=real, other=0.0)[None, :]
    if TURNS:
        x1, x2 = _turn(x1, x2, turn_cos, turn_sin)
    return x1.to(dtype), x2.to(dtype)


@triton.jit
def _weigh(q1, q2, k1, k2, factor, seen, PRECISION: tl.constexpr):
    """Return scores, and the softmax of the scores times a factor."""
    scores = tl.dot(q1, tl.trans(k1), input_precision=PRECISION)
    scores += tl.dot(q2, tl.trans(k2), input_precision=PRECISION)
    grown = tl.where(seen, scores * factor[:, None], float("-inf"))
    weights = tl.exp(grown - tl.max(grown, 1)[:, None])
    return scores, weights / tl.sum(weights, 1)[:, None]


@triton.jit
def _seen(ids, batch, head, tokens, levels, comparing, rows, COMPARES: tl.constexpr):
    """Return which keys each token sees.  Rows of padding see keys too, so that nothing is divided by 0."""
    seen = (rows[None, :] <= rows[:, None]) & (rows[None, :] < tokens)
    if COMPARES:
        own = tl.load(ids + (batch * levels + head % levels) * tokens + rows, mask=rows < tokens, other=0)
        equal = tl.where(own[:, None] == 0, rows[None, :] == 0, own[:, None] == own[None, :])
        seen = seen & (equal | (head >= comparing))
    return seen


@triton.jit
def _factor(growth, growth_row, scale, rows, inside, GROWS: tl.constexpr):
    """Return the factor of the scores of each query."""
    factor = tl.full(rows.shape, scale, tl.float32)
    if GROWS:
        factor *= tl.load(growth + growth_row + rows, mask=inside, other=1.0).to(tl.float32)
    return factor


@triton.jit
def _load_head(
    qkv, cos, sin, growth, bias, norm_q, norm_k, id_q, id_k, ids, tokens, heads, scale, growth_stride, eps,
    rows_of_model, fixed, levels, comparing, HALF: tl.constexpr, SIZE: tl.constexpr, PAIRS: tl.constexpr,
    WHOLE: tl.constexpr, BLOCK: tl.constexpr, TURNS: tl.constexpr, GROWS: tl.constexpr, BIASED: tl.constexpr,
    NORMED: tl.constexpr, CONSTANT: tl.constexpr, COMPARES: tl.constexpr,
):
    """Return prepared queries and keys, half by half, values, factors of the scores, keys that are seen, and angles."""
    D: tl.constexpr = 2 * HALF
    batch, head = (tl.program_id(0) // heads).to(tl.int64), tl.program_id(0) % heads
    model, rows = batch // rows_of_model, tl.arange(0, BLOCK)
    inside, real, whole = rows < tokens, tl.arange(0, SIZE) < HALF, tl.arange(0, WHOLE)
    first, second = _dimensions(SIZE, HALF, PAIRS)
    mask, stride, begin = _mask(inside, real, SIZE != HALF), heads * 3 * D, batch * tokens
    turn_cos, turn_sin = _angles(cos + begin * PAIRS, sin + begin * PAIRS, rows, inside, SIZE, PAIRS, TURNS)
    own, own_bias = qkv + begin * stride + head * 3 * D, bias + model * stride + head * 3 * D
    constant, is_constant = (model * fixed + head) * D, tl.full((SIZE,), 0, tl.int32) + head < fixed
    norm_q, norm_k, id_q, id_k = norm_q + model * D, norm_k + model * D, id_q + constant, id_k + constant
    q1, q2 = _read(own, own_bias, id_q, is_constant, rows, mask, stride, first, second, real, BIASED, CONSTANT)
    q1, q2 = _prepare(q1, q2, norm_q, eps, turn_cos, turn_sin, first, second, real, HALF, TURNS, NORMED)
    own, own_bias = own + D, own_bias + D
    k1, k2 = _read(own, own_bias, id_k, is_constant, rows, mask, stride, first, second, real, BIASED, CONSTANT)
    k1, k2 = _prepare(k1, k2, norm_k, eps, turn_cos, turn_sin, first, second, real, HALF, TURNS, NORMED)
    own, own_bias = own + D, own_bias + D
    v = _load_dims(own, rows, stride, whole, _mask(inside, whole < D, WHOLE != D))
    if BIASED:
        v = (v + tl.load(own_bias + whole, mask=whole < D, other=0.0)[None, :]).to(v.dtype)
    factor = _factor(growth, batch * growth_stride + head * tokens, scale, rows, inside, GROWS)
    seen = _seen(ids, batch, head, tokens, levels, comparing, rows, COMPARES)
    return q1, q2, k1, k2, v, factor, seen, turn_cos, turn_sin


@triton.jit
def attention_forward(
    qkv, cos, sin, growth, bias, norm_q, norm_k, id_q, id_k, ids, mixed, tokens, heads, scale, growth_stride, eps,
    rows_of_model, fixed, levels, comparing, HALF: tl.constexpr, SIZE: tl.constexpr, PAIRS: tl.constexpr,
    WHOLE: tl.constexpr, BLOCK: tl.constexpr, TURNS: tl.constexpr, GROWS: tl.constexpr, BIASED: tl.constexpr,
    NORMED: tl.constexpr, CONSTANT: tl.constexpr, COMPARES: tl.constexpr, PRECISION: tl.constexpr,
):
    q1, q2, k1, k2, v, factor, seen, _, _ = _load_head(
        qkv, cos, sin, growth, bias, norm_q, norm_k, id_q, id_k, ids, tokens, heads, scale, growth_stride, eps,
        rows_of_model, fixed, levels, comparing, HALF, SIZE, PAIRS, WHOLE, BLOCK, TURNS, GROWS, BIASED, NORMED,
        CONSTANT, COMPARES,
    )
    _, weights = _weigh(q1, q2, k1, k2, factor, seen, PRECISION)
    value = tl.dot(weights.to(v.dtype), v, input_precision=PRECISION)
    D: tl.constexpr = 2 * HALF
    batch, head = (tl.program_id(0) // heads).to(tl.int64), tl.program_id(0) % heads
    rows, whole = tl.arange(0, BLOCK), tl.arange(0, WHOLE)
    start = mixed + batch * tokens * heads * D + head * D
    _store_dims(start, value, rows, heads * D, whole, _mask(rows < tokens, whole < D, WHOLE != D))


@triton.jit
def _backward_of(
    d1, d2, own, own_bias, d_own, constant, is_constant, weight, sums, eps, turn_cos, turn_sin, rows, mask, stride,
    first, second, real, HALF: tl.constexpr, TURNS: tl.constexpr, BIASED: tl.constexpr, NORMED: tl.constexpr,
    CONSTANT: tl.constexpr,
):
    """Store the gradient of projected queries or keys, given that of the prepared ones.

    The gradients of the norm's weights and of constant queries or keys are summed over the tokens of this program.
    """
    D: tl.constexpr = 2 * HALF
    if TURNS:
        d1, d2 = _turn(d1, d2, turn_cos, -turn_sin)
    if NORMED:
        x1, x2 = _read(own, own_bias, constant, is_constant, rows, mask, stride, first, second, real, BIASED, CONSTANT)
        x1, x2, factor = _normalized(x1, x2, eps, HALF)
        tl.store(sums + first, tl.sum(d1 * x1, 0), mask=real)
        tl.store(sums + second, tl.sum(d2 * x2, 0), mask=real)
        d1 *= tl.load(weight + first, mask=real, other=0.0)[None, :]
        d2 *= tl.load(weight + second, mask=real, other=0.0)[None, :]
        along = ((tl.sum(d1 * x1, 1) + tl.sum(d2 * x2, 1)) / D)[:, None]
        d1, d2 = factor * (d1 - x1 * along), factor * (d2 - x2 * along)
    if CONSTANT:
        tl.store(sums + 2 * D + first, tl.sum(d1, 0), mask=real & is_constant)
        tl.store(sums + 2 * D + second, tl.sum(d2, 0), mask=real & is_constant)
        d1, d2 = tl.where(is_constant[None, :], 0.0, d1), tl.where(is_constant[None, :], 0.0, d2)
    _store_dims(d_own, d1, rows, stride, first, mask)
    _store_dims(d_own, d2, rows, stride, second, mask)


@triton.jit
def attention_backward(
    qkv, cos, sin, growth, bias, norm_q, norm_k, id_q, id_k, ids, d_mixed, d_qkv, d_growth, sums, tokens, heads,
    scale, growth_stride, eps, rows_of_model, fixed, levels, comparing, HALF: tl.constexpr, SIZE: tl.constexpr,
    PAIRS: tl.constexpr, WHOLE: tl.constexpr, BLOCK: tl.constexpr, TURNS: tl.constexpr, GROWS: tl.constexpr,
    BIASED: tl.constexpr, NORMED: tl.constexpr, CONSTANT: tl.constexpr, COMPARES: tl.constexpr,
    PRECISION: tl.constexpr,
):
    q1, q2, k1, k2, v, factor, seen, turn_cos, turn_sin = _load_head(
        qkv, cos, sin, growth, bias, norm_q, norm_k, id_q, id_k, ids, tokens, heads, scale, growth_stride, eps,
        rows_of_model, fixed, levels, comparing, HALF, SIZE, PAIRS, WHOLE, BLOCK, TURNS, GROWS, BIASED, NORMED,
        CONSTANT, COMPARES,
    )
    D: tl.constexpr = 2 * HALF
    batch, head = (tl.program_id(0) // heads).to(tl.int64), tl.program_id(0) % heads
    model, rows = batch // rows_of_model, tl.arange(0, BLOCK)
    inside, real, whole = rows < tokens, tl.arange(0, SIZE) < HALF, tl.arange(0, WHOLE)
    first, second = _dimensions(SIZE, HALF, PAIRS)
    mask, whole_mask = _mask(inside, real, SIZE != HALF), _mask(inside, whole < D, WHOLE != D)
    stride, begin = heads * 3 * D, batch * tokens
    scores, weights = _weigh(q1, q2, k1, k2, factor, seen, PRECISION)
    d_value = _load_dims(d_mixed + begin * heads * D + head * D, rows, heads * D, whole, whole_mask)
    d_own = d_qkv + begin * stride + head * 3 * D
    d_v = tl.dot(tl.trans(weights.to(v.dtype)), d_value, input_precision=PRECISION)
    _store_dims(d_own + 2 * D, d_v, rows, stride, whole, whole_mask)
    d_weights = tl.dot(d_value, tl.trans(v), input_precision=PRECISION)
    d_grown = weights * (d_weights - tl.sum(weights * d_weights, 1)[:, None])
    if GROWS:
        d_factor = tl.sum(d_grown * scores, 1) * scale
        tl.store(d_growth + (batch * heads + head) * tokens + rows, d_factor, mask=inside)
    d_scores = (d_grown * factor[:, None]).to(v.dtype)
    d_q1 = tl.dot(d_scores, k1, input_precision=PRECISION)
    d_q2 = tl.dot(d_scores, k2, input_precision=PRECISION)
    d_k1 = tl.dot(tl.trans(d_scores), q1, input_precision=PRECISION)
    d_k2 = tl.dot(tl.trans(d_scores), q2, input_precision=PRECISION)
    own, own_bias = qkv + begin * stride + head * 3 * D, bias + model * stride + head * 3 * D
    constant, is_constant = (model * fixed + head) * D, tl.full((SIZE,), 0, tl.int32) + head < fixed
    sums += (batch * heads + head) * 4 * D
    _backward_of(
        d_q1, d_q2, own, own_bias, d_own, id_q + constant, is_constant, norm_q + model * D, sums, eps, turn_cos,
        turn_sin, rows, mask, stride, first, second, real, HALF, TURNS, BIASED, NORMED, CONSTANT,
    )
    _backward_of(
        d_k1, d_k2, own + D, own_bias + D, d_own + D, id_k + constant, is_constant, norm_k + model * D, sums + D, eps,
        turn_cos, turn_sin, rows, mask, stride, first, second, real, HALF, TURNS, BIASED, NORMED, CONSTANT,
    )
