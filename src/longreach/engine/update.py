"""Clipping and AdamW for all weights at once, in two kernels.

Torch shares out 65,536 numbers to a program, so that the weights of a small model keep half of a GPU busy, and goes
through the gradients three times: for their norm, to scale them, and to follow them.  Here they are measured, and then
scaled while they are followed.  `clip_each` and `optimizer.step` are the reference that it is tested against, on a CPU
through Triton's interpreter.
"""

# kernels are not annotated: Triton reads their source, and mypy cannot
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

import math

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor, nn

from longreach.engine.kernels import on_its_device
from longreach.training.optimizer import AdamW

_BLOCK = 1024
"""Numbers that a program goes through at a time; its piece is one block of them or several."""
_PIECES = 4096
"""Of a model, about: each program adds up the sums of all of them."""
_SUMS = 1024
"""Of the squares of a piece, which are read at a time."""
_SETTINGS = ("betas", "eps", "amsgrad", "maximize")
"""That all parameters have in common."""
_WEIGHTS, _GRADIENTS, _MEANS, _SQUARES, _STEPS, _TABLES = (tl.constexpr(number) for number in range(6))
"""Columns of the table that says where all of these lie for each parameter, and how many there are."""


def fits(optimizer: torch.optim.Optimizer) -> bool:
    """Whether this computes the same as an optimizer that has taken a step, and all numbers lie in one piece each."""
    if type(optimizer) not in (torch.optim.AdamW, AdamW):
        return False
    common, followed = optimizer.param_groups[0], _followed(optimizer)
    alike = all(group[name] == common[name] for group in optimizer.param_groups for name in _SETTINGS)
    watched = optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks
    whole = all(
        type(tensors[0]) is nn.Parameter
        and all(t.dtype == torch.float32 and t.is_contiguous() and t.device == tensors[0].device for t in tensors)
        for tensors, _ in followed
    )
    return bool(followed) and alike and not (common["amsgrad"] or common["maximize"] or watched) and whole


def _followed(optimizer: torch.optim.Optimizer) -> list[tuple[tuple[Tensor, ...], float]]:
    """All tensors of each parameter that has a gradient, and by what share of the rate it decays."""
    found: list[tuple[tuple[Tensor, ...], float]] = []
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.grad is not None:
                state = optimizer.state[parameter]
                tensors = (parameter, parameter.grad, state["exp_avg"], state["exp_avg_sq"], state["step"])
                found.append((tensors, float(group["weight_decay"])))
    return found


@triton.jit
def _at(addresses, parameter, TABLE: tl.constexpr):
    return tl.load(addresses + parameter * _TABLES + TABLE).to(tl.pointer_type(tl.float32))


@triton.jit
def _piece(pieces):
    """Whose numbers this program goes through, from where, and to where."""
    own = pieces + tl.program_id(0) * 3
    return tl.load(own), tl.load(own + 1), tl.load(own + 2)


@triton.jit
def _measure(addresses, pieces, sums, BLOCK: tl.constexpr):
    """The sum of squares of each piece, and one step more for each parameter."""
    parameter, begin, end = _piece(pieces)
    gradients = _at(addresses, parameter, _GRADIENTS)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(begin, end, BLOCK):
        place = start + tl.arange(0, BLOCK)
        gradient = tl.load(gradients + place, mask=place < end, other=0.0)
        total += gradient * gradient
    tl.store(sums + tl.program_id(0), tl.sum(total, 0))
    if begin == 0:
        steps = _at(addresses, parameter, _STEPS)
        tl.store(steps, tl.load(steps) + 1.0)


@triton.jit
def _follow(
    addresses,
    pieces,
    sums,
    decays,
    rate,
    shares,
    norms,
    pieces_of_model,
    most,
    eps,
    BETA1: tl.constexpr,
    BETA2: tl.constexpr,
    LOG_BETA1: tl.constexpr,
    LOG_BETA2: tl.constexpr,
    BLOCK: tl.constexpr,
    SUMS: tl.constexpr,
):
    model = tl.program_id(0) // pieces_of_model
    total = tl.zeros((SUMS,), tl.float32)
    for first in range(0, pieces_of_model, SUMS):
        own = first + tl.arange(0, SUMS)
        total += tl.load(sums + model * pieces_of_model + own, mask=own < pieces_of_model, other=0.0)
    norm = tl.sqrt(tl.sum(total, 0))
    if tl.program_id(0) % pieces_of_model == 0:
        tl.store(norms + model, norm)
    scale = most / (norm + 1e-6)
    scale = tl.where(scale > 1, 1.0, scale)  # what is no number stays none

    parameter, begin, end = _piece(pieces)
    weights, gradients = _at(addresses, parameter, _WEIGHTS), _at(addresses, parameter, _GRADIENTS)
    means, squares = _at(addresses, parameter, _MEANS), _at(addresses, parameter, _SQUARES)
    steps = tl.load(_at(addresses, parameter, _STEPS)).to(tl.float64)
    filled1 = (1 - tl.exp2(steps * LOG_BETA1)).to(tl.float32)  # for means began at zero
    filled2 = (1 - tl.exp2(steps * LOG_BETA2)).to(tl.float32)
    step = tl.load(rate) * tl.load(shares + model)
    kept = 1 - step * tl.load(decays + parameter)
    for start in range(begin, end, BLOCK):
        place = start + tl.arange(0, BLOCK)
        inside = place < end
        gradient = scale * tl.load(gradients + place, mask=inside, other=0.0)
        mean = tl.load(means + place, mask=inside, other=0.0)
        mean += (1 - BETA1) * (gradient - mean)
        square = tl.load(squares + place, mask=inside, other=0.0)
        square = BETA2 * square + (1 - BETA2) * gradient * gradient
        weight = kept * tl.load(weights + place, mask=inside, other=0.0)
        weight -= step / filled1 * mean / (tl.sqrt(square) / tl.sqrt(filled2) + eps)
        tl.store(means + place, mean, mask=inside)
        tl.store(squares + place, square, mask=inside)
        tl.store(weights + place, weight, mask=inside)


class Update:
    """Calling it clips the gradients of each of the stacked models and takes a step of AdamW; the norms before.

    Kernels look up where everything lies, so that a step can be recorded first and told after: while it is recorded,
    its gradients get the places that they have whenever it is replayed."""

    def __init__(self, optimizer: torch.optim.Optimizer, most: float, rate: Tensor, shares: Tensor) -> None:
        """The optimizer has taken a step, so that its moments lie somewhere.  `shares` are those of the rate that each
        model takes."""
        self.optimizer, self.most, self.rate, self.shares = optimizer, most, rate, shares.float()
        followed, models, common = _followed(optimizer), len(shares), optimizer.param_groups[0]
        pieces = _share_out([tensors[0].numel() // models for tensors, _ in followed], models)
        self.pieces = rate.new_tensor(pieces, dtype=torch.long)
        self.addresses = self.pieces.new_zeros(len(followed), _TABLES.value)
        self.decays = rate.new_tensor([decay for _, decay in followed])
        self.sums, self.norms = rate.new_empty(len(pieces)), rate.new_empty(models)
        self.eps, self.betas = common["eps"], dict[str, float]()
        for number, beta in enumerate(common["betas"], start=1):
            self.betas |= {f"BETA{number}": beta, f"LOG_BETA{number}": math.log2(beta or 1e-300)}  # of 0 there is none
        self.find_gradients()

    def find_gradients(self) -> None:
        """Tell kernels where they lie now."""
        rows = [[tensor.data_ptr() for tensor in tensors] for tensors, _ in _followed(self.optimizer)]
        self.addresses.copy_(torch.tensor(rows))

    def __call__(self) -> Float[Tensor, "models"]:
        grid = (len(self.pieces),)
        with on_its_device(self.sums):
            _measure[grid](self.addresses, self.pieces, self.sums, BLOCK=_BLOCK)
            _follow[grid](
                self.addresses,
                self.pieces,
                self.sums,
                self.decays,
                self.rate,
                self.shares,
                self.norms,
                len(self.pieces) // len(self.norms),
                self.most,
                self.eps,
                **self.betas,
                BLOCK=_BLOCK,
                SUMS=_SUMS,
            )
        return self.norms


def _share_out(sizes: list[int], models: int) -> list[tuple[int, int, int]]:
    """Numbers of each parameter and model, model by model: which parameter's, from where, to where."""
    most = _BLOCK * math.ceil(sum(sizes) / (_BLOCK * _PIECES))
    return [
        (parameter, start, min(start + most, (model + 1) * size))
        for model in range(models)
        for parameter, size in enumerate(sizes)
        for start in range(model * size, (model + 1) * size, most)
    ]
