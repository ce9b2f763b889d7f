"""What many probes say together: how k is distributed, and what it goes with."""

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from longreach.config import to_plain
from longreach.errors import BadInput
from longreach.probe.bootstrap import Array, BootstrapEstimate, Statistic, estimate, mean, quantile
from longreach.probe.kinds import KINDS, token_kinds
from longreach.probe.names import tell_apart
from longreach.probe.passage import document_of
from longreach.probe.result import Probed

QUANTITIES = ("k_weights", "k_sufficient", "k_participation", "span")
FEW = 8
"""The k whose share of predictions is reported."""
THRESHOLDS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
_QUANTILES = {"p10": 0.1, "p25": 0.25, "median": 0.5, "p75": 0.75, "p90": 0.9}
_NATS = (0.0, 0.1, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Lower ends of the bins of loss and entropy: the same for every model, so that models can be compared."""


@dataclass(frozen=True)
class SummaryRow:
    """One figure of one group of documents."""

    group: str
    quantity: str
    """k_weights, k_sufficient, k_participation, span, faithfulness, loss, entropy, or excess_loss."""
    by: str
    """all; at_most, for which `bin` is a threshold; kept, for which it is how many tokens were kept; or kind, position,
    loss, entropy: what the targets were sorted by."""
    bin: str
    statistic: str
    estimate: BootstrapEstimate

    def to_json(self) -> dict[str, object]:
        """What is endless (no tried k was enough) is written as the word `inf`, for JSON has no number for it."""
        plain = {name: value for name, value in asdict(self).items() if name != "estimate"} | asdict(self.estimate)
        return {name: "inf" if value == math.inf else value for name, value in plain.items()}


def group_probes(probes: Iterable[Probed]) -> dict[str, list[Probed]]:
    """Documents that were probed alike, named by what tells them from the others: `masks 64`, or `all`."""
    facts = [(probe, {"model": probe.model, **to_plain(probe.settings)}) for probe in tell_apart(list(probes))]
    differ = [name for name in (facts[0][1] if facts else ()) if len({str(fact[name]) for _, fact in facts}) > 1]
    groups: dict[str, list[Probed]] = {}
    for probe, fact in sorted(facts, key=lambda pair: [pair[1][key] for key in differ]):
        name = ", ".join(str(fact[key]) if key in ("model", "method") else f"{key} {fact[key]}" for key in differ)
        groups.setdefault(name or "all", []).append(probe)
    return groups


def summarise(probes: Iterable[Probed]) -> list[SummaryRow]:
    """All figures of all groups."""
    return [row for name, members in group_probes(probes).items() for row in _Group(name, members).rows()]


def to_csv(rows: Sequence[SummaryRow]) -> str:
    out = io.StringIO()
    names = ("group", "quantity", "by", "bin", "statistic", "value", "low", "high", "documents", "targets")
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.to_json().items()})
    return out.getvalue()


def to_json(rows: Sequence[SummaryRow]) -> str:
    return json.dumps([row.to_json() for row in rows], indent=0) + "\n"


class _Group:
    """Documents that were probed alike."""

    def __init__(self, name: str, members: Sequence[Probed]) -> None:
        self.name, self.members = name, members
        self.values = {quantity: [quantity_of(probe, quantity) for probe in members] for quantity in QUANTITIES}
        for fact in ("faithfulness", "loss", "entropy"):
            self.values[fact] = [getattr(probe, fact).double().numpy() for probe in members]

    def rows(self) -> Iterable[SummaryRow]:
        for quantity in QUANTITIES:
            yield from self._spread(quantity, self.values[quantity])
        for fact in ("faithfulness", "loss", "entropy"):
            known = [values[~np.isnan(values)] for values in self.values[fact]]
            yield from self._figures(known, {"mean": mean, **_quantiles()}, fact, "all", "all")
        for by, (labels, members) in self._sorted().items():
            for quantity in QUANTITIES:
                for number, label in enumerate(labels):
                    chosen = [v[m == number] for v, m in zip(self.values[quantity], members, strict=True)]
                    yield from self._figures(chosen, {"median": quantile(0.5)}, quantity, by, label)
        yield from self._excess()

    def _spread(self, quantity: str, values: Sequence[Array]) -> Iterable[SummaryRow]:
        yield from self._figures(values, _quantiles(), quantity, "all", "all")
        most = [t for t in THRESHOLDS if t <= max(len(probe.tokens) for probe in self.members)]
        at_most = [(document[:, None] <= np.array(most)).astype(float) for document in values]
        for threshold, found in zip(most, estimate(self._by_document(at_most), mean), strict=False):
            yield SummaryRow(self.name, quantity, "at_most", str(threshold), "share", found)

    def _sorted(self) -> Mapping[str, tuple[Sequence[str], list[NDArray[np.int64]]]]:
        """What targets can be sorted by: the labels in order, and the number of each target's label."""
        longest = max(len(probe.tokens) for probe in self.members)
        doublings = tuple(2.0**power for power in range(longest.bit_length()))
        places = [probe.targets.double().numpy() for probe in self.members]
        kinds = [
            np.array([KINDS.index(kind) for kind in token_kinds(probe.pieces)])[probe.targets.numpy()]
            for probe in self.members
        ]
        return {
            "kind": (KINDS, kinds),
            "position": (_names(doublings), [_binned(place, doublings) for place in places]),
            "loss": (_names(_NATS), [_binned(values, _NATS) for values in self.values["loss"]]),
            "entropy": (_names(_NATS), [_binned(values, _NATS) for values in self.values["entropy"]]),
        }

    def _excess(self) -> Iterable[SummaryRow]:
        """The loss when only some tokens are kept, less that in full context."""
        excess = [(probe.loss_at - probe.loss[:, None]).double().numpy() for probe in self.members]
        for column, size in enumerate(self.members[0].sizes):  # equal settings try equal sizes
            statistics = {"mean": mean, "median": quantile(0.5)}
            yield from self._figures([e[:, column] for e in excess], statistics, "excess_loss", "kept", str(size))

    def _figures(
        self, values: Sequence[Array], statistics: Mapping[str, Statistic], quantity: str, by: str, label: str
    ) -> Iterable[SummaryRow]:
        for name, statistic in statistics.items():
            for found in estimate(self._by_document(values), statistic):
                yield SummaryRow(self.name, quantity, by, label, name, found)

    def _by_document(self, values: Sequence[Array]) -> list[Array]:
        """Passages of one text are put together: they are no more independent than its tokens."""
        documents: dict[str, list[Array]] = {}
        for probe, found in zip(self.members, values, strict=True):
            documents.setdefault(probe.text_fingerprint or document_of(probe.title), []).append(found)
        return [np.concatenate(found) for found in documents.values()]


def quantity_of(probe: Probed, name: str) -> Array:
    """A k or the span of each target; a k that no tried one reached is endless."""
    values: Array = getattr(probe, name).double().numpy()
    return np.where(values < 0, math.inf, values)


def _quantiles() -> dict[str, Callable[[Array, Array], Array]]:
    return {name: quantile(share) for name, share in _QUANTILES.items()}


def _names(edges: Sequence[float]) -> list[str]:
    """`0.1..0.5` for the bin from 0.1 up to, not including, 0.5."""
    ends = [f"{edge:g}" for edge in edges[1:]] + [""]
    return [f"{edge:g}..{end}" for edge, end in zip(edges, ends, strict=True)]


def _binned(values: Array, edges: Sequence[float]) -> NDArray[np.int64]:
    """The number of each value's bin; what lies below the first edge is in the first."""
    return (np.searchsorted(edges, values, side="right") - 1).clip(min=0)


def overview(found: Sequence[Probed]) -> dict[str, Any]:
    """Return the figures of all passages together; a k that no tried one reached counts as infinite."""
    if not found:
        raise BadInput("no passage could be probed")
    sufficient = _together(found, "k_sufficient")
    sufficient = torch.where(sufficient < 0, torch.inf, sufficient)
    faithful = _together(found, "faithfulness")
    return {
        "model": found[0].model,
        "method": found[0].settings.method,
        "passages": len(found),
        "predictions": len(sufficient),
        "loss": _together(found, "loss").mean().item(),
        "k_weights": _together(found, "k_weights").median().item(),
        "k_sufficient": _number(sufficient.median().item()),
        "k_participation": _together(found, "k_participation").median().item(),
        f"k_sufficient_at_most_{FEW}": (sufficient <= FEW).double().mean().item(),
        "span": _together(found, "span").median().item(),
        "faithfulness": None if faithful.isnan().all() else faithful.nanmean().item(),
        "tokens_computed": sum(probed.cost.tokens for probed in found),
        "tokens_checking": sum(probed.cost.checking_tokens for probed in found),
        "seconds": sum(probed.cost.seconds for probed in found),
    }


def _together(found: Sequence[Probed], name: str) -> Tensor:
    return torch.cat([getattr(probed, name).double() for probed in found])


def _number(value: float) -> float | None:
    """JSON has no endless number."""
    return None if value == float("inf") else value
