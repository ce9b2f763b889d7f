"""The information card: what a result rests on, to be shown beside it."""

import dataclasses
import json
import re
from dataclasses import dataclass
from typing import Any

import torch

from longreach.config import to_plain
from longreach.evaluation.evaluate import EvalConfig
from longreach.positions.ids import IdPolicy, coverage
from longreach.tasks import Sample, Task
from longreach.tasks.checking import is_foreign
from longreach.training import PrimeConfig, TrainingStream

_SAMPLES = 4096


@dataclass(frozen=True)
class Card:
    """Facts, most of them measured on the first training samples of seed 0."""

    task: str
    trained_lengths: str
    trained_tokens: str
    trained_ids: str
    trained_id_distance: int
    """The largest difference of two IDs within a training sample."""
    ids_supplied_by: str
    length_known: str
    stops: str
    decoding: str
    selection: str
    id_coverage: list[int]
    """How often training shows each fiftieth of the ID range."""
    test_ids: str = "plain"
    """How the IDs of the test differ from the plain ones."""
    primed: str = "no"
    """Whether training also showed a few samples of greater length."""
    computed_by: str = "not recorded"
    """The plans of training and of the test: the device, the precision and the parts of the engine."""
    task_check: str = "not recorded"
    """Whether a task from outside longreach was checked before training."""
    questions: str = "not recorded"
    """Test samples: the same for every training seed, or others."""
    task_settings: str = "not recorded"
    """Settings of the task that differ from its defaults."""
    chance: float | None = None
    """Score of a uniform guess, where every training answer is one token; None for longer answers and in old runs."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[1-9][0-9]{0,17}\.\.[1-9][0-9]{0,17}", self.trained_lengths):
            raise ValueError(f"trained_lengths must be such as 1..20, got {self.trained_lengths!r:.40}")
        if not self.id_coverage or min(self.id_coverage) < 0:
            raise ValueError(f"id_coverage must hold counts, got {self.id_coverage!r:.40}")
        if self.chance is not None and not 0 <= self.chance <= 1:
            raise ValueError(f"chance must be between 0 and 1, got {self.chance!r:.40}")


def make_card(
    task: Task,
    policy: IdPolicy,
    lengths: tuple[int, ...],
    config: EvalConfig,
    prime: PrimeConfig | None = None,
    computed_by: str = "not recorded",
    task_check: str = "",
) -> Card:
    batch = TrainingStream(task, policy, lengths, _SAMPLES, seed=0, device="cpu", prime=prime).batch(0)
    sample, ids = batch.sample, batch.ids
    # the last token is only ever predicted: the model never reads it or its ID
    read = torch.arange(ids.shape[2]) < sample.num_tokens[:, None] - 1
    first_level = ids[:, 0]
    largest, smallest = int(first_level[read].max()), int(first_level[read].min())
    supplied = {
        "count": "counting tokens",
        "rule": "a rule, from the prompt",
        "tokens": "a rule, from the tokens written so far",
        "model": "a rule in the prompt, the model itself in the answer",
        "oracle": "the true answer (oracle: for study)",
    }
    distance = first_level.where(read, 0).amax(1) - first_level.where(read, largest).amin(1)
    return Card(
        task=task.name,
        trained_lengths=f"{min(lengths)}..{max(lengths)}",
        trained_tokens=f"{int(sample.num_tokens.min())}..{int(sample.num_tokens.max())}",
        trained_ids=f"{smallest}..{largest}",
        trained_id_distance=int(distance.max()),
        ids_supplied_by=supplied.get(policy.supplier(task), policy.supplier(task))
        + (", in a subset of IDs that is drawn for each sample" if policy.draws_test_ids else ""),
        length_known=_length_known(task, policy, config),
        stops=_stops(task),
        decoding="none: the true text is given, in fp32"
        if task.open_ended
        else "greedy, cached, fp32; one-pass scores with the true prefix are marked tf, and decided as by fp32",
        selection="the last checkpoint" if config.select == "last" else "the best checkpoint at training lengths",
        test_ids=_test_ids(policy, config),
        primed="no" if prime is None else f"at {prime.lengths}, {prime.samples or 'new'} samples, share {prime.share}",
        computed_by=computed_by,
        task_check=_task_check(task, task_check),
        questions=_questions(task, config),
        task_settings=_task_settings(task),
        chance=_chance(task, sample),
        id_coverage=coverage(ids.where(read[:, None], 0), max(policy.max_id, largest)),
    )


def _chance(task: Task, sample: Sample) -> float | None:
    """Return 1 / the number of different answers if every answer is one token, not counting the stop."""
    asked = sample.answer & ~sample.given
    if task.stop_token is not None:
        asked = asked & (sample.tokens != task.stop_token)
    if task.open_ended or bool((asked.sum(1) != 1).any()):
        return None
    return 1 / len(sample.tokens[asked].unique())  # type: ignore[no-untyped-call]


def _test_ids(policy: IdPolicy, config: EvalConfig) -> str:
    changes = config.test_ids()
    if not policy.draws_test_ids or config.relabel_ids:
        return changes
    drawn = f"a random subset of 0..{policy.max_id} for each sample"
    return drawn if changes == "plain" else f"{drawn}, {changes}"


def _length_known(task: Task, policy: IdPolicy, config: EvalConfig) -> str:
    if task.open_ended and policy.draws_test_ids:
        return "yes, the whole window is given and has an ID for each token"
    if config.relabel_ids:
        return "yes, IDs are drawn for the sample's own number of tokens"
    if policy.draws_test_ids:
        return "the most tokens at its length: IDs are drawn for so many"
    return "yes, the rule reads the whole prompt" if policy.supplier(task) == "rule" else "no"


def _questions(task: Task, config: EvalConfig) -> str:
    if task.open_ended:
        return "the same documents for every training seed"
    shared = f"the same for every training seed, evaluate.seed {config.seed}"
    return "others for every training seed" if config.questions == "fresh" else shared


def _task_settings(task: Task) -> str:
    """Return the settings that differ from the defaults, such as `hops=2, echo=True`."""
    plain = to_plain(task)
    changed = [
        f"{one.name}={json.dumps(plain[one.name], default=str)}"
        for one in dataclasses.fields(task)
        if one.name in plain and getattr(task, one.name) != _default(one)
    ]
    return ", ".join(changed) or "the defaults"


def _default(field: "dataclasses.Field[Any]") -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def _task_check(task: Task, recorded: str) -> str:
    if not is_foreign(task):
        return "a task of longreach"
    return {"passed": "passed", "skipped": "skipped: nobody checked this task"}.get(recorded, "not recorded")


def _stops(task: Task) -> str:
    if task.open_ended:
        return "nothing is generated"
    return "after one token" if task.stop_token is None else "at the model's own stop token"
