"""What is known of a task, a model or a file of samples before anything long is tried."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from longreach.diagnose.coverage import Coverage, Shown, cover
from longreach.diagnose.estimates import Estimate, share
from longreach.diagnose.growth import extend
from longreach.diagnose.learn import IDS, learn
from longreach.diagnose.models import losses, read_by
from longreach.diagnose.needs import Needs, check_size, known_needs
from longreach.diagnose.recorded import Row, split
from longreach.diagnose.schemes import candidates
from longreach.errors import BadInput
from longreach.evaluate import judge
from longreach.model import Model
from longreach.objective import token_targets
from longreach.positions.ids import IdPolicy
from longreach.seeding import stream
from longreach.spans import Span
from longreach.tasks import Sample, Task
from longreach.train import legal_lengths

TOLERATED = 0.05
"""A length counts as covered if at most this share of its samples needs what training never shows."""
OWN = "the model's own"
"""The scheme that a model was trained with."""
STRAY = 0.05
"""The share of attention that may go astray before an answer is in danger."""

_TRAINING_SAMPLES = 1024
_RELABELLINGS = 8
_PAIRS = 1 << 25  # pairs of tokens at one length of the ladder


@dataclass(frozen=True)
class Shape:
    """How many tokens an answer token needs, and where."""

    k: Estimate
    """Median number."""
    span: Estimate
    """Distance between the first and the last of them, which nine in ten do not exceed."""
    distance: Estimate
    """How far back the farthest is, which nine in ten do not exceed."""

    @classmethod
    def of(cls, needs: Needs) -> "Shape":
        return cls(needs.k(), needs.span(), needs.distance())


@dataclass(frozen=True)
class SchemeReport:
    """One scheme of IDs."""

    scheme: str
    by_length: dict[int, Coverage]
    covered_to: int
    """The longest length up to which training covers what is needed; 0 where it does not cover the first asked."""

    @property
    def at_target(self) -> Coverage:
        return self.by_length[max(self.by_length)]


@dataclass(frozen=True)
class Forecast:
    """What a trained model will do at a length, if its errors go on growing as they do."""

    loss: Estimate
    """Mean over answer tokens of 1 - p(right)."""
    exact: Estimate
    """Exact match."""


@dataclass(frozen=True)
class Diagnosis:
    """Everything that `longreach diagnose` tells."""

    source: str
    trained: str
    """Training lengths."""
    target: int
    needs_from: str
    """How it is known which tokens are needed."""
    short: Shape
    """Needs at the lengths from which coverage is asked."""
    long: Shape
    """Needs at the length for which it is asked."""
    short_to: int
    long_from: int
    """The first of the lengths that `long` is about: it stands for several where what is needed was found out."""
    long_at: int
    coupling: str
    """Who supplies the task's coupled IDs during generation, if there are any."""
    schemes: list[SchemeReport]
    """Best first."""
    margins: tuple[float, float]
    """How far the score of a needed token must be above all others for softmax to stray by at most STRAY, at the
    longest training length and at the target."""
    read: Shape | None = None
    """What a model reacts to at training lengths, where that is known beside what is needed."""
    accuracy: Estimate | None = None
    """Exact match of a model at training lengths, with the true prefix given."""
    forecast: dict[int, Forecast] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


def ladder(task: Task, longest: int, target: int) -> list[int]:
    """Lengths from the longest trained to the target, each about 1.4 times the one before."""
    return sorted({_near(task, length) for length in _rungs(longest, target)})


def _rungs(longest: int, target: int) -> list[int]:
    steps = max(1, round(2 * math.log2(target / longest)))
    return sorted({round(longest * (target / longest) ** (step / steps)) for step in range(steps + 1)})


def _near(task: Task, length: int) -> int:
    """The same length, or the next one up to a few more that the task has."""
    refusal = BadInput("")
    for candidate in range(length, length + 8):
        try:
            task.check_length(candidate)
        except BadInput as error:
            refusal = error
        else:
            return candidate
    raise refusal


def diagnose_task(
    task: Task, trained: Span, target: int, samples: int = 256, seed: int = 0, own: IdPolicy | None = None
) -> Diagnosis:
    """From what the task itself says its answers depend on.  `own` is a scheme to judge besides the candidates."""
    lengths = legal_lengths(task, trained)
    for length in (max(lengths), target):
        check_size(task, length)
    rungs = ladder(task, max(lengths), target)
    draws = stream(seed, "diagnose lengths", torch.arange(_TRAINING_SAMPLES))
    short = known_needs(task, torch.tensor(lengths)[draws.below("length", len(lengths), 1)[:, 0]], seed)
    long = {}
    for length in rungs:
        size = min(samples, max(32, _PAIRS // task.max_tokens(length) ** 2))
        long[length] = known_needs(task, torch.full((size,), length), seed + 1)
    return _diagnose(task, trained, "the task says so", short, max(lengths), long, own, seed=seed)


def diagnose_model(
    model: Model,
    task: Task,
    policy: IdPolicy,
    trained: Span,
    target: int,
    samples: int = 256,
    seed: int = 0,
    tell: Callable[[str], None] = lambda line: None,
) -> Diagnosis:
    """What a trained model reads, how its errors grow within its training lengths, and what that makes of the target.
    On the CPU.  Where the task does not say what its answers need, the longer half of the training lengths stands for
    the target: what happens from half to whole is taken to happen again from there on."""
    if model.embed.weight.device.type != "cpu":
        raise BadInput("a model is diagnosed on the CPU: move it there with model.cpu()")
    lengths = legal_lengths(task, trained)
    tell("which tokens the model reacts to")
    few, many = _halves(lengths)
    was_training = model.training
    model.eval()
    reads, strength = read_by(model, task, policy, few, 16, seed)
    far_reads, far_strength = read_by(model, task, policy, many, 16, seed + 1)
    tell("how its errors grow")
    errors = _errors(model, task, policy, [*few, *many], samples, seed)
    accuracy = share(sum(part.hits for part in errors), sum(len(part.losses) for part in errors))
    model.train(was_training)
    if _says_needs(task, max(lengths)):
        diagnosis = diagnose_task(task, trained, target, samples, seed, policy)
        diagnosis = replace(diagnosis, read=Shape.of(far_reads))
    else:
        reached = {max(many): far_reads}
        diagnosis = _diagnose(
            task, trained, "what the model reacts to", reads, max(few), reached, policy, target, min(many), seed
        )
    warnings = [*diagnosis.warnings, *_doubts(torch.cat([strength, far_strength]), accuracy)]
    if not (_alike_laid_out(reads) and _alike_laid_out(far_reads)):
        warnings.append(
            "samples of one length are laid out differently: a token may have been replaced by one of another role,"
            " and what the model reacts to be mistaken"
        )
    forecast, doubts = _forecast(errors, diagnosis, seed)
    return replace(diagnosis, accuracy=accuracy, forecast=forecast, warnings=[*warnings, *doubts])


def diagnose_data(
    rows: Sequence[Row],
    trained: Span | None,
    target: int | None,
    samples: int = 256,
    steps: int = 1500,
    seed: int = 0,
    progress: Callable[[int, str], None] = lambda done, note: None,
    tell: Callable[[str], None] = lambda line: None,
) -> Diagnosis:
    """From rows alone: a small model learns those up to the training lengths, and is then asked as any other, on rows
    that it has not seen.  Without `trained` all rows are learnt; without `target` it is ten times that."""
    learnt, tested = split(rows)
    span = trained or Span(min(learnt.by_length), max(learnt.by_length))
    target = 10 * span.high if target is None else target
    if target <= span.high:
        raise BadInput(f"the target must be beyond the training lengths {span}, got {target}")
    lengths = [x for x in learnt.by_length if span.low <= x <= span.high and x in tested.by_length]
    if len(lengths) < 4:
        raise BadInput(f"rows must have at least 4 lengths within {span}, each several times, got {len(lengths)}")
    model = learn(learnt, lengths, steps, seed, progress)
    span = Span(lengths[0], lengths[-1])
    return diagnose_model(model, tested, IDS, span, target, samples, seed, tell)


def _diagnose(
    task: Task,
    trained: Span,
    needs_from: str,
    short: Needs,
    short_to: int,
    long: dict[int, Needs],
    own: IdPolicy | None,
    target: int | None = None,
    long_from: int | None = None,
    seed: int = 0,
) -> Diagnosis:
    last = long[max(long)]
    schemes = candidates(task, last.sample)
    if own is not None:
        schemes[OWN] = own
    reports = [_judge_scheme(name, policy, task, short, long, seed) for name, policy in schemes.items()]
    reports.sort(key=_badness)
    near, far = Shape.of(short), Shape.of(last)
    target = target or max(long)
    seen, asked = (task.max_tokens(length) for length in (short_to, max(long)))
    if target > max(long):
        asked = asked * target // max(long)
    margins = (math.log(seen / STRAY), math.log(asked / STRAY))
    diagnosis = Diagnosis(
        source=task.name,
        trained=str(trained),
        target=target,
        needs_from=needs_from,
        short=near,
        long=far,
        short_to=short_to,
        long_at=max(long),
        long_from=long_from or max(long),
        coupling=_coupling(task),
        schemes=reports,
        margins=margins,
    )
    return replace(diagnosis, warnings=_warnings(diagnosis))


def _coupling(task: Task) -> str:
    if not task.coupling_levels:
        return ""
    return (
        "the task's coupling, by rule" if task.coupling_by_rule else "the task's coupling, which a model must predict"
    )


def _judge_scheme(
    name: str, policy: IdPolicy, task: Task, short: Needs, long: dict[int, Needs], seed: int
) -> SchemeReport:
    first = 1 if policy.supplier(task) == "count" else 0  # counting has no reserved ID
    rows = torch.arange(len(short.sample.tokens))
    draws = [stream(seed, f"diagnose relabelling/{number}", rows) for number in range(_RELABELLINGS)]
    shown = Shown.by(short, [policy.training_ids(task, short.sample, some) + first for some in draws])
    found = {
        length: cover(shown, needs, policy.evaluation_ids(task, needs.sample) + first) for length, needs in long.items()
    }
    covered = 0
    for length, coverage in sorted(found.items()):
        if coverage.uncovered.value > TOLERATED:
            break
        covered = length
    return SchemeReport(name, found, covered)


def _badness(report: SchemeReport) -> tuple[int | float, ...]:
    """Little uncovered first, then a long reach, few strangers, and a small kappa times the tokens that are alike: by
    as much can errors grow that training does not show."""
    last = report.at_target
    growth = (last.kappa.value if last.kappa else math.inf) * (1 + last.alike)
    return round(last.uncovered_needs, 3), -report.covered_to, round(last.strangers, 1), growth, last.id_span


def _warnings(found: Diagnosis) -> list[str]:
    lines = []
    if found.long.k.low > found.short.k.high:
        lines.append(
            f"k grows with length, {found.short.k} up to {found.short_to} and {found.long.k} at {found.long_at}: no"
            " fixed number of reads will do, unless steps are written out"
        )
    if found.short.k.value == 0 or found.long.k.value == 0:
        lines.append("most answers react to no single token: they may depend on many together, which k does not show")
    best = found.schemes[0]
    if best.at_target.uncovered.low > TOLERATED:
        lines.append("no scheme covers the target: train longer, or couple otherwise")
    thin = [report.scheme for report in found.schemes if report.at_target.unseen > TOLERATED]
    if thin:
        lines.append(f"too few samples were drawn for {', '.join(thin)}: their uncovered shares may be too high")
    if found.target > found.long_at:
        lines.append(
            f"coverage is that of {found.long_at} by lengths up to {found.short_to}; for {found.target} it is assumed"
            " that the same happens again"
        )
    return lines


def _says_needs(task: Task, length: int) -> bool:
    sample = task.sample(torch.tensor([length]), stream(0, "diagnose needs", torch.arange(1)), length)
    try:
        task.depends_on(sample)
    except BadInput:
        return False
    return True


def _halves(lengths: tuple[int, ...]) -> tuple[list[int], list[int]]:
    """Up to four lengths of the shorter half, and four of the longer."""
    middle = (lengths[0] + lengths[-1]) / 2
    halves = [x for x in lengths if x <= middle], [x for x in lengths if x > middle]
    if len(lengths) < 3:
        raise BadInput(f"a model must be trained on three lengths or more to be diagnosed, got {list(lengths)}")
    return _spread(halves[0]), _spread(halves[1])


def _spread(lengths: list[int]) -> list[int]:
    """Up to four, the last included."""
    return sorted({lengths[round((len(lengths) - 1) * step / 3)] for step in range(4)})


class _Errors(NamedTuple):
    """What a model does at one length."""

    length: int
    losses: Float[Tensor, "n"]
    hits: int
    wrong_tokens: int
    answers: Int[Tensor, "m"]
    """All tokens of all answers."""


def _errors(model: Model, task: Task, policy: IdPolicy, lengths: list[int], samples: int, seed: int) -> list[_Errors]:
    found = []
    for length in lengths:
        draws = stream(seed, f"diagnose errors/{length}", torch.arange(samples))
        sample = _distinct(task.sample(torch.full((samples,), length), draws, length))
        ids = policy.evaluation_ids(task, sample)
        judged = judge(model, sample, ids)
        right = judged.exact_with_ids if model.position_head is not None else judged.exact
        answers = sample.tokens[:, 1:][token_targets(sample)]
        wrong = int((judged.answer_tokens - judged.right_tokens).sum())
        found.append(_Errors(length, losses(model, sample, ids), int(right.sum()), wrong, answers))
    return found


def _distinct(sample: Sample) -> Sample:
    """Rows of a file once each: drawing one again says nothing new."""
    if "number" not in sample.hidden:
        return sample
    seen = {int(number): row for row, number in enumerate(sample.hidden["number"])}
    keep = torch.tensor(sorted(seen.values()))
    return sample.map(lambda tensor: tensor[keep])


def _alike_laid_out(needs: Needs) -> bool:
    """Whether samples of one length have prompts of one size."""
    sizes = torch.unique(torch.stack([needs.sample.length, needs.sample.prompt_tokens]), dim=1)
    return bool(sizes.shape[1] == len(torch.unique(needs.sample.length)))


def _doubts(strength: Tensor, accuracy: Estimate) -> list[str]:
    lines = []
    if accuracy.value < 0.9:
        lines.append(
            f"the model is right on {accuracy} of samples at training lengths: what it reads need not be what the task"
            " needs"
        )
    unclear = ((strength > 0.05) & (strength < 0.2)).double().mean() if len(strength) else torch.zeros(())
    if float(unclear) > 0.2:
        lines.append(f"{float(unclear):.0%} of influences are near the threshold: k is not clear-cut")
    return lines


def _forecast(errors: list[_Errors], found: Diagnosis, seed: int) -> tuple[dict[int, Forecast], list[str]]:
    """Losses beyond training, and exact match as if the answer's tokens erred independently."""
    frequency = torch.bincount(torch.cat([part.answers for part in errors])).double()
    chance = 1 - float(((frequency / frequency.sum()) ** 2).sum())
    if chance == 0:
        return {}, ["all answers are the same token: there is nothing to forecast"]
    longest = max(part.length for part in errors)
    limit = _limit(found, longest)
    rungs = [length for length in _rungs(longest, found.target) if length <= limit]
    # the size of an answer goes on as it does: level, or on a line
    sizes = torch.tensor([[1.0, part.length, len(part.answers) / len(part.losses)] for part in errors])
    line = torch.linalg.lstsq(sizes[:, :2], sizes[:, 2:]).solution[:, 0].tolist()
    by_length = {part.length: part.losses for part in errors}
    forecast = {}
    for length, loss in extend(by_length, chance, rungs, seed).items():
        size = max(1.0, line[0] + line[1] * length)
        wrong = [min(1.0, a * b) for a, b in zip(_wrong_per_loss(errors), loss, strict=True)]
        exact, best, worst = ((1 - part) ** size for part in wrong)
        forecast[length] = Forecast(loss, Estimate(exact, worst, best))
    seen = sum(len(part.losses) for part in errors)
    lines = [
        "the forecast extends how errors grow within training, and says nothing about a break, or about failures in"
        f" fewer than {3 / seen:.1g} of samples"
    ]
    fitted = extend(by_length, chance, list(by_length), seed)
    stray = [length for length, values in by_length.items() if float(values.mean()) > 3 * fitted[length].high]
    if stray:
        lines.append(f"losses at {', '.join(map(str, stray))} are far above the line that the others make")
    if limit < found.target:
        lines.append(f"no forecast beyond {limit}: the model's own IDs do not cover what is needed there")
    return forecast, lines


def _wrong_per_loss(errors: list[_Errors]) -> Estimate:
    """Wrong tokens for each unit of loss: a token may be right with a probability below 1, and is wrong at most twice
    as often as the loss says."""
    tokens = sum(len(part.answers) for part in errors)
    loss = sum(float(part.losses.mean()) * len(part.answers) for part in errors) / tokens
    wrong = share(sum(part.wrong_tokens for part in errors), tokens)
    return Estimate(*(min(2.0, value / max(loss, 1e-300)) for value in wrong))


def _limit(found: Diagnosis, longest: int) -> int:
    """Up to where training covers what is needed under the model's own IDs; what happens from half to whole is taken
    to happen again."""
    own = next(report for report in found.schemes if report.scheme == OWN)
    if own.covered_to == found.long_at:
        return found.target
    return max(longest, own.covered_to)
