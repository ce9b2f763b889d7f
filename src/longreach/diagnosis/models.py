"""A trained model as the probe and the extrapolation see it."""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from longreach.diagnosis.needs import Needs, join
from longreach.diagnosis.probe import CHANGE, influence
from longreach.model import Model, at_places
from longreach.objectives import id_choices, id_targets, select, token_targets
from longreach.positions.ids import IdPolicy
from longreach.seeding import stream
from longreach.tasks import Sample, Task

_PLACES = 24  # answer tokens of a sample that are asked about


def read_by(
    model: Model,
    task: Task,
    policy: IdPolicy,
    lengths: list[int],
    samples: int,
    seed: int,
    report: Callable[[int, str], None] = lambda done, note: None,
) -> tuple[Needs, Tensor]:
    """Which tokens the model's predictions depend on: `samples` of each length, laid out alike, with the true prefix
    given and IDs kept.  Also the influence of every pair that has any."""
    parts, strengths = [], []
    report(0, "")
    for done, length in enumerate(lengths, start=1):
        draws = stream(seed, f"diagnose probe/{length}", torch.arange(samples))
        sample = task.sample(torch.full((samples,), length), draws, max(lengths))
        ids = policy.evaluation_ids(task, sample, draws.child("ids"))
        asked = _some(token_targets(sample))
        at, valid = select(asked)

        def predict(tokens: Int[Tensor, "b t"], rows: Int[Tensor, "b"], ids: Tensor = ids, at: Tensor = at) -> Tensor:
            hidden = model(tokens[:, :-1], ids[rows][:, :, :-1])
            past = model.past(hidden, tokens[:, :-1])
            return model.logits(at_places(hidden, at[rows]), at[rows] + 1, past).float().softmax(-1)

        found = influence(predict, sample.tokens, draws.child("probe")) * valid[..., None]
        needed = torch.zeros(*asked.shape, sample.tokens.shape[1], dtype=torch.bool)
        needed.scatter_(1, at[..., None].expand_as(found), found > CHANGE)
        parts.append(Needs.of(sample, asked, needed))
        strengths.append(found[found > 0.01])
        report(done, f"length {length}")
    return join(parts), torch.cat(strengths)


def _some(wanted: Bool[Tensor, "b s"]) -> Bool[Tensor, "b s"]:
    """Evenly spread places, where there are many."""
    rank = wanted.cumsum(1) - 1
    count = wanted.sum(1, keepdim=True)
    step = (count / _PLACES).clamp(min=1)
    return wanted & ((rank / step).floor() != ((rank - 1) / step).floor())


@torch.no_grad()
def losses(model: Model, sample: Sample, ids: Int[Tensor, "b g t"]) -> Float[Tensor, "b"]:
    """For each sample the mean over its answer of 1 - p, where p is the probability of the right token, and of its
    right IDs where the model predicts them."""
    hidden = model(sample.tokens[:, :-1], ids[:, :, :-1])
    past = model.past(hidden, sample.tokens[:, :-1])
    at, valid = select(token_targets(sample))
    logits = model.logits(at_places(hidden, at), at + 1, past).double()
    right = logits.log_softmax(-1).gather(2, sample.tokens[:, 1:].gather(1, at)[..., None])[..., 0]
    wrong = (-right.expm1() * valid).sum(1)
    if model.position_head is not None:
        places, counts = select(id_targets(sample))
        for level, choice in enumerate(id_choices(model, sample, ids, hidden, places, past)):
            likely = choice.log_probability(ids[:, level, 1:].gather(1, places)).double()
            wrong = wrong + (-likely.expm1() * counts).sum(1)
    return (wrong / valid.sum(1)).clamp(0, 1)
