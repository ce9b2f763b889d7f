"""Do predictions that few tokens explain keep their loss beyond the training length?

The same tokens are predicted from contexts within the training length and beyond; and for each of them the probe tells,
within the training length, how many tokens its prediction rests on.  Whether the loss that a longer context costs (or
gains) depends on that number is asked twice: plainly, in bins of k, and by a linear regression that holds equal what
else might explain it: how rare the token is, how sure the model was, how well it did, how far into its document the
token stands, and how much the context gave it at all: a prediction that needs no context has k = 0 and nothing to lose.
Documents are drawn anew for all intervals, never tokens.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from longreach.config import to_plain
from longreach.evaluation import ContextLoss, Targets, over_documents, resampled_documents
from longreach.evaluation.context import BLOCK
from longreach.probe.language_model import LanguageModel
from longreach.probe.measure import probe
from longreach.probe.passage import Passage
from longreach.probe.result import Probed
from longreach.probe.settings import ProbeConfig
from longreach.text import Corpus, Split

BINS = ((0, 0), (1, 2), (3, 8), (9, 32), (33, None))
"""From and to which k, both included; the last also has what no tried k explains."""
_COUNTED = 1 << 24
"""Tokens counted at once."""
CONTROLS = ("log_frequency", "entropy", "loss", "log_place", "gain")


def probe_targets(
    model: LanguageModel,
    corpus: Corpus,
    split: Split,
    targets: Targets,
    within: int,
    config: ProbeConfig,
    progress: Callable[[int, str], None] = lambda done, note: None,
) -> list[Probed]:
    """Every block of targets, at the end of a window of so many tokens."""
    found = []
    for number, start in enumerate(targets.start.tolist()):
        window = split.tokens[start + BLOCK - within : start + BLOCK].astype(np.int64)
        pieces = tuple(corpus.tokenizer.pieces(window.tolist()))
        wanted = torch.arange(within - BLOCK, within)
        title = f"document {int(targets.document[number])} of {split.name}, token {start}"
        found.append(probe(model, Passage(title, torch.from_numpy(window), pieces), wanted, config))
        progress(number + 1, title)
    return found


def token_facts(
    split: Split, train: Split, probed: Sequence[Probed], losses: ContextLoss
) -> dict[str, Float[Tensor, "n"]]:
    """What might explain how a token's loss changes: k by three definitions, and the controls."""
    size = 1 + max(int(losses.token.max()), int(train.tokens.max(initial=0)))
    counts = np.zeros(size, dtype=np.int64)
    for start in range(0, len(train.tokens), _COUNTED):
        counts += np.bincount(train.tokens[start : start + _COUNTED], minlength=size)
    begin = torch.tensor(split.starts)[losses.document]
    unexplained = torch.tensor(2.0 * probed[0].settings.largest_k)
    sufficient = torch.cat([one.k_sufficient for one in probed]).float()
    return {
        "k_sufficient": torch.where(sufficient < 0, unexplained, sufficient),
        "k_weights": torch.cat([one.k_weights for one in probed]).float(),
        "k_participation": torch.cat([one.k_participation for one in probed]).float(),
        "loss": torch.cat([one.loss for one in probed]).float(),
        "entropy": torch.cat([one.entropy for one in probed]).float(),
        "faithfulness": torch.cat([one.faithfulness for one in probed]).float(),
        "gain": torch.cat([one.loss_at[:, 0] - one.loss for one in probed]).float(),
        "log_frequency": torch.from_numpy(np.log1p(counts[losses.token.numpy()])).float(),
        "log_place": (losses.place - begin + 1).float().log(),
    }


@dataclass(frozen=True)
class Change:
    """How much the loss of some tokens differs at another context from that within the training length."""

    k: str
    context: int
    tokens: int
    nats: float
    low: float
    high: float


def changes_by_k(
    losses: ContextLoss, facts: dict[str, Tensor], within: int, definition: str = "k_sufficient"
) -> list[Change]:
    """For each bin of k and each context, with a 95% interval over documents; bins of fewer than two documents are left
    out."""
    base = losses.nats[losses.contexts.index(within)]
    k, found = facts[definition].round(), []
    for low, high in BINS:
        inside = (k >= low) & (k <= (high if high is not None else torch.inf))
        document = losses.document[inside]
        if len(set(document.tolist())) < 2:
            continue
        name = f"{low}" if low == high else f"{low}-{high}" if high is not None else f"over {low - 1}"
        for context, nats in zip(losses.contexts, losses.nats, strict=True):
            ends = over_documents((nats - base)[inside], document)
            found.append(Change(name, context, int(inside.sum()), *map(float, ends)))
    return found


@dataclass(frozen=True)
class Slope:
    """Nats of loss at a longer context for each doubling of 1 + k."""

    definition: str
    context: int
    controlled: bool
    nats: float
    low: float
    high: float


def slopes(losses: ContextLoss, facts: dict[str, Tensor], within: int) -> list[Slope]:
    """Least squares of the change of loss on log2(1 + k), for each definition of k and each other context; alone, and
    beside the controls."""
    base, found = losses.nats[losses.contexts.index(within)].double(), []
    others = torch.stack([facts[name] for name in CONTROLS]).double()
    others = (others - others.mean(1, keepdim=True)) / others.std(1, keepdim=True).clamp(min=1e-9)
    weights = torch.cat([torch.ones(1, losses.nats.shape[1]), resampled_documents(losses.document)]).double()
    for definition in ("k_sufficient", "k_weights", "k_participation"):
        doubling = torch.log2(1 + facts[definition].double())[None]
        for controlled in (False, True):
            features = torch.cat([torch.ones_like(doubling), doubling, *([others] if controlled else [])])
            for context, nats in zip(losses.contexts, losses.nats.double(), strict=True):
                if context == within:
                    continue
                slope = _least_squares(features, nats - base, weights)[:, 1]
                low, high = slope[1:].quantile(torch.tensor([0.025, 0.975], dtype=torch.double)).tolist()
                found.append(Slope(definition, context, controlled, float(slope[0]), low, high))
    return found


def _least_squares(
    features: Float[Tensor, "f n"], outcome: Float[Tensor, "n"], weights: Float[Tensor, "r n"]
) -> Float[Tensor, "r f"]:
    """One fit for each row of weights."""
    gram = torch.einsum("fn,rn,gn->rfg", features, weights, features)
    right = torch.einsum("fn,rn,n->rf", features, weights, outcome)
    ridge = 1e-9 * torch.eye(len(features), dtype=gram.dtype) * gram.diagonal(dim1=1, dim2=2).mean(1)[:, None, None]
    solved: Tensor = torch.linalg.solve(gram + ridge, right)
    return solved


def sufficiency(probed: Sequence[Probed], document: Int[Tensor, "n"]) -> list[dict[str, Any]]:
    """What keeping only k tokens costs, on average over all targets: nats above the full context."""
    excess = torch.cat([one.loss_at - one.loss[:, None] for one in probed]).T  # [sizes, targets]
    ends = zip(*over_documents(excess.float(), document), strict=True)
    return [
        {"k": k, "nats": float(mean), "low": float(low), "high": float(high)}
        for k, (mean, low, high) in zip(probed[0].sizes, ends, strict=True)
    ]


def summarise_sparsity(
    model: LanguageModel,
    split: Split,
    train: Split,
    probed: Sequence[Probed],
    losses: ContextLoss,
    within: int,
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """All of it for one model: what a file and a figure tell, and every token's own numbers."""
    facts = token_facts(split, train, probed, losses)
    ks = {name: facts[name] for name in ("k_sufficient", "k_weights", "k_participation")}
    quantiles = torch.tensor([0.25, 0.5, 0.75])
    means = zip(*over_documents(losses.nats, losses.document), strict=True)
    summary = {
        "model": model.name,
        "within": within,
        "settings": to_plain(probed[0].settings),
        "tokens": len(losses.token),
        "documents": len(set(losses.document.tolist())),
        "seconds": sum(one.cost.seconds for one in probed),
        "faithfulness": None if facts["faithfulness"].isnan().all() else float(facts["faithfulness"].nanmedian()),
        "k": {name: k.quantile(quantiles).tolist() for name, k in ks.items()},
        "few": {name: _share_of_few(k, losses.document) for name, k in ks.items()},
        "losses": [
            {"context": context, "nats": float(mean), "low": float(low), "high": float(high)}
            for context, (mean, low, high) in zip(losses.contexts, means, strict=True)
        ],
        "changes": {name: [asdict(row) for row in changes_by_k(losses, facts, within, name)] for name in ks},
        "slopes": [asdict(row) for row in slopes(losses, facts, within)],
        "sufficiency": sufficiency(probed, losses.document),
    }
    return summary, facts


def _share_of_few(k: Float[Tensor, "n"], document: Int[Tensor, "n"]) -> list[float]:
    """The share of predictions with k of at most 8, and its interval."""
    return [float(end) for end in over_documents((k <= 8).float(), document)]
