"""The probe of one text: weights by the chosen method, then what they are worth."""

import time

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from longreach.errors import BadInput
from longreach.probe.elimination import eliminate
from longreach.probe.faithfulness import faithfulness
from longreach.probe.gradient import gradient_times_input
from longreach.probe.language_model import ComputedWork, LanguageModel
from longreach.probe.leave_one_out import leave_one_out
from longreach.probe.masks import always_seen, draw_masks, masked_log_probabilities
from longreach.probe.passage import Passage
from longreach.probe.progress import Progress, silent
from longreach.probe.regression import choose_by_held_out, noise_level
from longreach.probe.result import Cost, Probed
from longreach.probe.settings import ProbeConfig
from longreach.probe.sufficiency import loss_by_size, tried_sizes


def probe(
    model: LanguageModel,
    text: Passage,
    targets: Int[Tensor, "n"],
    config: ProbeConfig,
    progress: Progress = silent,
) -> Probed:
    """Measure how much the prediction of each target rests on each token before it."""
    _check(model, text.tokens, targets)
    tokens, targets = text.tokens.to(model.device), targets.to(model.device)
    started, model.work = time.perf_counter(), ComputedWork()
    always = always_seen(targets, len(tokens), config.window)
    full, entropy = model.full_context(tokens, targets)
    fresh = draw_masks(config, "held out", config.held_out, len(tokens)).to(model.device)
    truth = masked_log_probabilities(model, tokens, targets, fresh, config.window, progress)
    checking, model.work = model.work.tokens, ComputedWork()
    choosing = config.held_out // 2  # the other half of the held-out masks judges what was chosen
    weights, noise = _weights(
        model, tokens, targets, always, full, (fresh[:choosing], truth[:choosing]), config, progress
    )
    measuring, model.work = model.work, ComputedWork()
    sizes = tried_sizes(config.largest_k)
    losses = loss_by_size(model, tokens, targets, weights, always, sizes, config.window, progress)
    checking += model.work.tokens
    return Probed(
        title=text.title,
        model=model.name,
        pieces=text.pieces,
        tokens=tokens.cpu(),
        targets=targets.cpu(),
        loss=-full.cpu(),
        entropy=entropy.cpu(),
        weights=weights.cpu(),
        always=always.cpu(),
        sizes=sizes,
        loss_at=losses.cpu(),
        faithfulness=faithfulness(weights, fresh[choosing:], truth[choosing:]).float().cpu(),
        settings=config,
        noise=None if noise is None else noise.cpu(),
        cost=Cost(
            forwards=measuring.forwards,
            backwards=len(targets) if config.method == "gradient" else 0,
            tokens=measuring.tokens,
            checking_tokens=checking,
            seconds=time.perf_counter() - started,
        ),
        model_fingerprint=model.fingerprint,
        text_fingerprint=text.text_fingerprint,
    )


def total_steps(config: ProbeConfig, targets: Int[Tensor, "n"]) -> int:
    """What a probe will have told its progress in the end."""
    checks = config.held_out + len(targets) * len(tried_sizes(config.largest_k))
    hidden = max(0, int(targets.max()) - 2)
    steps = {"masks": config.masks, "gradient": len(targets), "leave_one_out": hidden}
    return checks + steps.get(config.method, hidden + len(targets))


def _weights(
    model: LanguageModel,
    tokens: Int[Tensor, "t"],
    targets: Int[Tensor, "n"],
    always: Bool[Tensor, "n t"],
    full: Float[Tensor, "n"],
    held_out: tuple[Bool[Tensor, "h t"], Float[Tensor, "h n"]],
    config: ProbeConfig,
    progress: Progress,
) -> tuple[Float[Tensor, "n t"], Float[Tensor, "n"] | None]:
    """Return the weights, and their noise where they are estimated from random masks."""
    index = torch.arange(len(tokens), device=tokens.device)
    free = ~always & (index < targets[:, None])
    if config.method == "masks":
        kept = draw_masks(config, "masks", config.masks, len(tokens)).to(tokens.device)
        outcomes = masked_log_probabilities(model, tokens, targets, kept, config.window, progress)
        weights = choose_by_held_out(kept, outcomes, *held_out, free.T)
        return weights.T, noise_level(weights, kept, outcomes, *held_out)
    if config.method == "gradient":
        return gradient_times_input(model, tokens, targets, progress) * free, None
    losses = leave_one_out(model, tokens, targets, full, config.window, progress) * free
    if config.method == "leave_one_out":
        return losses, None
    return eliminate(model, tokens, targets, full, losses, always, config.eps, config.window, progress), None


def _check(model: LanguageModel, tokens: Int[Tensor, "t"], targets: Int[Tensor, "n"]) -> None:
    if len(targets) == 0:
        raise BadInput("there is no token to predict")
    if int(targets.min()) < 1 or int(targets.max()) >= len(tokens):
        raise BadInput(f"targets must be in 1..{len(tokens) - 1}, got {int(targets.min())}..{int(targets.max())}")
    if model.longest is not None and len(tokens) > model.longest:
        raise BadInput(f"{model.name} reads at most {model.longest} tokens, and the text has {len(tokens)}")
