"""Run by test_pointer.py in a process of its own, where Triton interprets its kernels on the CPU: prints how far they
are from the reference."""

import itertools
import json
import sys

import torch

from longreach.api import (
    OptimizerConfig,
    ParityScratchpad,
    PointerChasing,
    PointerConfig,
    Predicted,
    RopeConfig,
    Span,
    Tape,
    TransformerConfig,
    VariableAssignment,
    build_model,
)
from longreach.engine.fused.cross_entropy import cross_entropy
from longreach.engine.fused.direction import direction
from longreach.engine.heads import FastPointer
from longreach.engine.layers import FastTransformer
from longreach.engine.stacked_training import MultiSeedStream, StackedStep
from longreach.engine.stacking import stack_models
from longreach.engine.twins import Swap, make_twin
from longreach.model import Transformer
from longreach.model.position_heads.base import Steps
from longreach.model.position_heads.pointer import Pointer
from longreach.model.position_heads.pointer import direction as plain_direction
from longreach.objectives.base import NO_LABEL
from longreach.positions.encodings import Shape
from longreach.training import Step, TrainConfig, TrainingStream, build_optimizer

_generator = torch.Generator().manual_seed(0)
WIDTH = 24


def draw(*shape):
    return torch.randn(shape, generator=_generator, dtype=torch.float64)


def apart(found, wanted, rough=None):
    """Return the largest errors as shares of the largest entry.

    Some gradients are zero but for rounding, or sums of large numbers that cancel, as those of scalars.  Their entries
    count as at least a tenth of the largest of all tensors, and three times the error of `rough`, the plain path in
    fp32, is subtracted.
    """
    largest = max(float(b.abs().max()) for b in wanted)
    errors = []
    for a, plain, b in zip(found, rough or wanted, wanted, strict=True):
        least = largest * (0.1 if b.numel() <= 3 or b.abs().max() < 1e-3 * largest else 0)
        error = (a - b).abs().max() - 3 * (plain - b).abs().max()
        errors.append(float((error / b.abs().max().clamp(min=least)).nan_to_num(nan=torch.inf).clamp(min=0)))
    return errors


def fast(module):
    """Return a twin of a head, or of a model, which also computes cross-entropy by a kernel."""

    def swap(part):
        if part is module and isinstance(part, Transformer):
            return Swap(FastTransformer, {"fused_cross_entropy": True})
        return Swap(FastPointer, {}) if type(part) is Pointer else None

    return make_twin(module, swap)


def direction_errors(rows, width, parts, adds, zero=False):
    x, token, towards = draw(2, rows, parts * width), draw(2, rows, width), draw(2, rows, parts * width)
    if zero:
        x, token = 0 * x, 0 * token

    def run(compute, dtype):
        inputs = [tensor.to(dtype).requires_grad_() for tensor in ((x, token) if adds else (x,))]
        out = compute(*inputs, *([] if adds else [None]))
        gradients = torch.autograd.grad(out, inputs, towards.to(dtype))
        return [part.detach().double() for part in (out, *gradients)]

    def plain(x, token):
        return torch.cat([plain_direction(part, token) for part in x.split(width, dim=-1)], dim=-1)

    return apart(
        run(lambda x, token: direction(x, token, width, torch.float32), torch.float32), run(plain, torch.float64)
    )


def cross_entropy_errors(rows, entries, dtype):
    logits, towards = (5 * draw(2, rows, entries)).to(dtype), draw(2, rows).float()
    labels = torch.randint(entries, (2, rows), generator=_generator)
    labels[1, rows // 2 :] = NO_LABEL
    model = Transformer(TransformerConfig(layers=1, width=8, heads=1), 3)

    def run(compute, logits):
        logits = logits.detach().requires_grad_()
        losses = compute(logits, labels)
        (gradient,) = torch.autograd.grad(losses, logits, towards.to(losses.dtype))
        return [losses.detach().double(), gradient.double()]

    return apart(run(cross_entropy, logits), run(model.cross_entropy, logits.double()))


def head_errors(level_sizes, models, answers, tokens, **config):
    """Return errors of the log-probabilities and of all gradients, of a head alone."""
    shape = Shape(WIDTH, 2, level_sizes, 100)
    head_config = PointerConfig(**config)
    members = []
    for _ in range(models):
        head = head_config.build(shape, None).double()
        for parameter in head.parameters():
            parameter.data = draw(*parameter.shape) * (0.3 if parameter.dim() else 1)
        members.append(head)
    head = members[0]
    if models > 1:
        from longreach.engine.stacking import stacked_class

        for name, module in head.named_modules():
            for own in dict(module.named_parameters(recurse=False)):
                weights = [getattr(dict(member.named_modules())[name], own).detach() for member in members]
                setattr(module, own, torch.nn.Parameter(torch.stack(weights)))
            module.__class__ = stacked_class(type(module)) or type(module)
    b, g, rows = 2 * models, len(level_sizes), torch.arange(2 * models)[:, None]
    random = lambda high, *size: torch.randint(high, size, generator=_generator)  # noqa: E731
    visible = 1 + random(tokens, b, answers)
    reserved = random(3, b, g)
    # few IDs, so that several candidates stand for one, and some for the reserved one
    reachable = tuple(reserved[:, level, None, None] + random(5, b, len(head.moves), tokens) for level in range(g))
    targets = []
    for level, size in enumerate(level_sizes):
        among = reachable[level][rows, random(len(head.moves), b, answers), (random(tokens, b, answers)) % visible]
        classes = reserved[:, level, None] + random(size + 1, b, answers)
        targets.append(torch.where(random(4, b, answers) == 0, reserved[:, level, None], classes if size else among))
    targets = torch.stack(targets, dim=1)
    hidden, token, states, read = (
        draw(b, answers, WIDTH),
        draw(b, answers, WIDTH),
        draw(b, tokens, WIDTH),
        draw(b, tokens, WIDTH),
    )
    towards = draw(b, answers)

    def run(head, dtype):
        head.to(dtype)
        inputs = [tensor.to(dtype).requires_grad_() for tensor in (hidden, token, states, read)]
        memory = head.remember(*inputs[2:])
        steps = Steps(*inputs[:2], visible, memory, reachable, reserved)
        found = head.log_probabilities(steps, targets, None)
        weights = [parameter for parameter in head.parameters() if parameter.requires_grad]
        loss = sum((value * towards.to(dtype)).sum() for value in found)
        gradients = torch.autograd.grad(loss, inputs + weights, allow_unused=True)
        return [part.detach().double() for part in (*found, *gradients) if part is not None]

    wanted = run(head, torch.float64)
    assert all(value.isfinite().all() for value in wanted)
    return apart(run(fast(head), torch.float32), wanted, run(head, torch.float32))


def step_errors(task, models=1, layers=1, accumulate=1, **head):
    """Return errors of the losses and of all gradients of a training step."""
    policy = Predicted(max_id=120)
    shape = TransformerConfig(
        layers=layers,
        width=32,
        heads=2,
        encoding=RopeConfig(spectrum="random"),
        position_head=PointerConfig(**head),
        tie_embeddings=True,
    )
    sizes = policy.level_sizes(task)
    members = [build_model(shape, len(task.vocabulary), seed, sizes, 120) for seed in range(models)]
    model = (members[0] if models == 1 else stack_models(members)).double()
    for parameter in model.parameters():
        parameter.data += 0.05 * draw(*parameter.shape)
    data = TrainingStream(task, policy, (2, 3, 4), 4, 0, "cpu")
    kind = Step
    if models > 1:
        data, kind = MultiSeedStream.of(data, range(1, models)), StackedStep
    config = TrainConfig(lengths=Span(2, 4), steps=10, batch_size=4, optimizer=OptimizerConfig())
    found = []
    for one, dtype in ((fast(model), torch.float32), (model, torch.float64), (model, torch.float32)):
        one.to(dtype)
        step = kind(one, build_optimizer(config.optimizer, model), data, config, accumulate)
        step.reads_host = False  # as in a recorded step
        assert [objective.metric for objective in step.objectives] == ["loss", "id_loss"]
        means = step.differentiate(step.prepare(1))
        found.append([means.double(), *(p.grad.double().clone() for p in model.parameters() if p.grad is not None)])
    return apart(*found)


errors = {
    f"direction {case}": direction_errors(*case)
    for case in [(5, 48, 1, True), (37, 64, 2, True), (3, 1500, 1, True), (9, 24, 3, False)]
}
errors |= {
    f"cross-entropy {shape}": cross_entropy_errors(*shape, torch.float32) for shape in [(3, 5), (7, 2048), (4, 5001)]
}
rough = cross_entropy_errors(4, 3000, torch.bfloat16)
assert max(rough) < 1e-2, rough
errors["direction of zeros"] = direction_errors(3, 8, 1, True, True)[:1]
cases = [((0,), {}), ((0, 0), {}), ((0, 5), {}), ((3, 0, 0), {"across_levels": True})]
cases += [((0,), {"normalise": False}), ((0,), {"see_token": False}), ((0, 0), {"normalise": False, "moves": 0})]
cases += [((0,), {"moves": 0}), ((0, 0), {"moves": 2, "across_levels": True}), ((0,), {"moves": 2})]
kinds = itertools.product(cases, (False, True), (1, 3))
for number, ((sizes, config), kind_first, models) in enumerate(kinds):
    answers, tokens = [(5, 7), (16, 32), (19, 40), (1, 1)][number % 4]
    name = f"{sizes}, {config}, kind first {kind_first}, {models} model(s), {answers} answers, {tokens} tokens"
    errors[name] = head_errors(sizes, models, answers, tokens, **config, kind_first=kind_first)
assignment = VariableAssignment(num_names=40, hops=Span(1, 2), name_tokens=2, echo=True, end="marked")
for name, task, others in (
    ("assignment", assignment, {}),
    ("assignment, stack", assignment, {"models": 3}),
    ("assignment in parts", assignment, {"accumulate": 2}),
    ("parity", ParityScratchpad(), {"kind_first": True}),
    ("parity, stack", ParityScratchpad(), {"models": 3, "moves": 2}),
    ("tape", Tape(steps=Span(2, 4)), {"layers": 2}),
    ("pointer chasing", PointerChasing(num_names=40, hops=Span(1, 3)), {"across_levels": True}),
):
    errors[f"step of {name}"] = step_errors(task, **others)
json.dump(errors, sys.stdout)
