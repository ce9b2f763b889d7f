"""What is known of a task, a model or a file of samples before anything long is tried."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor

from longreach.config.spans import Span
from longreach.diagnosis.estimates import Estimate, share
from longreach.diagnosis.findings import OWN, STRAY, TOLERATED, Diagnosis, NeedsSummary
from longreach.diagnosis.forecast import make_forecast, measure_errors, rungs
from longreach.diagnosis.learn import IDS, learn
from longreach.diagnosis.models import read_by
from longreach.diagnosis.needs import Needs, check_size, known_needs
from longreach.diagnosis.recorded import RecordedSample, split
from longreach.diagnosis.schemes import badness, candidates, judge_scheme
from longreach.errors import BadInput
from longreach.model import Model
from longreach.positions.ids import IdPolicy
from longreach.seeding import stream
from longreach.tasks import Task
from longreach.training import legal_lengths

Phase = Callable[[str, int], Callable[[int, str], None]]
"""Begin a phase of so many units; the result is called with the units done and a note."""
T = TypeVar("T")

_TRAINING_SAMPLES = 1024
_PAIRS = 1 << 25  # pairs of tokens at one length of the ladder


def no_phase(title: str, total: int) -> Callable[[int, str], None]:
    """Show nothing of a phase."""
    return lambda done, note: None


def ladder(task: Task, longest: int, target: int) -> list[int]:
    """Lengths up to the target that the task has."""
    return sorted({_near(task, length) for length in rungs(longest, target)})


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
    task: Task,
    trained: Span,
    target: int,
    samples: int = 256,
    seed: int = 0,
    own: IdPolicy | None = None,
    phase: Phase = no_phase,
) -> Diagnosis:
    """From what the task itself says its answers depend on.  `own` is a scheme to judge besides the candidates."""
    lengths = legal_lengths(task, trained)
    for length in (max(lengths), target):
        check_size(task, length)
    draws = stream(seed, "diagnose lengths", torch.arange(_TRAINING_SAMPLES))
    tested = ladder(task, max(lengths), target)
    report = phase("list who needs whom", 1 + len(tested))
    report(0, "")
    short = known_needs(task, torch.tensor(lengths)[draws.below("length", len(lengths), 1)[:, 0]], seed)
    long = {}
    for done, length in enumerate(tested, start=1):
        report(done, f"length {length}")
        size = min(samples, max(32, _PAIRS // task.max_tokens(length) ** 2))
        long[length] = known_needs(task, torch.full((size,), length), seed + 1)
    report(1 + len(tested), "")
    return _diagnose(task, trained, "the task says so", short, max(lengths), long, own, seed=seed, phase=phase)


def diagnose_model(
    model: Model,
    task: Task,
    policy: IdPolicy,
    trained: Span,
    target: int,
    samples: int = 256,
    seed: int = 0,
    phase: Phase = no_phase,
) -> Diagnosis:
    """What a trained model reads, how its errors grow within its training lengths, and what that makes of the target.
    On the CPU.  Where the task does not say what its answers need, the longer half of the training lengths stands for
    the target: what happens from half to whole is taken to happen again from there on."""
    if model.embed.weight.device.type != "cpu":
        raise BadInput("a model is diagnosed on the CPU: move it there with model.cpu()")
    lengths = legal_lengths(task, trained)
    few, many = _halves(lengths)
    report = phase("probe what the model reacts to", len(few) + len(many))
    was_training = model.training
    model.eval()
    reads, strength = read_by(model, task, policy, few, 16, seed, report)
    far_reads, far_strength = read_by(
        model, task, policy, many, 16, seed + 1, lambda done, note: report(len(few) + done, note)
    )
    errors = measure_errors(
        model, task, policy, [*few, *many], samples, seed, phase("measure errors", len(few) + len(many))
    )
    accuracy = share(sum(part.hits for part in errors), sum(len(part.losses) for part in errors))
    model.train(was_training)
    if _says_needs(task, max(lengths)):
        diagnosis = diagnose_task(task, trained, target, samples, seed, policy, phase)
        diagnosis = replace(diagnosis, read=NeedsSummary.of(far_reads))
    else:
        reached = {max(many): far_reads}
        diagnosis = _diagnose(
            *(task, trained, "what the model reacts to", reads, max(few), reached, policy, target, min(many), seed),
            phase=phase,
        )
    warnings = [*diagnosis.warnings, *_doubts(torch.cat([strength, far_strength]), accuracy)]
    if not (_alike_laid_out(reads) and _alike_laid_out(far_reads)):
        warnings.append(
            "samples of one length are laid out differently: a token may have been replaced by one of another role,"
            " and what the model reacts to be mistaken"
        )
    forecast, doubts = make_forecast(errors, diagnosis, seed)
    return replace(diagnosis, accuracy=accuracy, forecast=forecast, warnings=[*warnings, *doubts])


def diagnose_data(
    rows: Sequence[RecordedSample],
    trained: Span | None,
    target: int | None,
    samples: int = 256,
    steps: int = 1500,
    seed: int = 0,
    phase: Phase = no_phase,
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
    model = learn(learnt, lengths, steps, seed, phase("learn", steps))
    span = Span(lengths[0], lengths[-1])
    return diagnose_model(model, tested, IDS, span, target, samples, seed, phase)


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
    phase: Phase = no_phase,
) -> Diagnosis:
    last = long[max(long)]
    schemes = candidates(task, last.sample)
    if own is not None:
        schemes[OWN] = own
    judged = _reporting(schemes.items(), phase("judge position IDs", len(schemes)))
    reports = [judge_scheme(name, policy, task, short, long, seed) for name, policy in judged]
    reports.sort(key=badness)
    near, far = NeedsSummary.of(short), NeedsSummary.of(last)
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


def _reporting(values: Iterable[T], report: Callable[[int, str], None]) -> Iterator[T]:
    """Yield values, and report each when the next is asked for."""
    report(0, "")
    for done, value in enumerate(values, start=1):
        yield value
        report(done, "")


def _coupling(task: Task) -> str:
    if not task.coupling_levels:
        return ""
    return (
        "the task's coupling, by rule" if task.coupling_by_rule else "the task's coupling, which a model must predict"
    )


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
