"""Where the time of a command goes: its phases, the speed of training, and the kernels of a step.

Runs are measured through the callables that they hand over: the training step, the hooks of the training loop, the
judge and the writer of a test.  `NoProfile` returns each of them as it is.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from statistics import mean
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from longreach.decoding import Writing
from longreach.engine.drawing import HostStream
from longreach.evaluation import Judge, Judged
from longreach.model import Model
from longreach.runs.operators import WARM_UP, OperatorTrace
from longreach.runs.parts import training_data
from longreach.runs.phases import OTHER, Phase, Phases
from longreach.runs.profile_result import ProfileResult, Section, TestTime, TrainingSpeed, phase_times
from longreach.runs.recipe import RunConfig
from longreach.runs.step_times import StepTimes
from longreach.tasks import Sample
from longreach.training import AnyStep
from longreach.training.stream import BatchStream

START = "interpreter and imports"
CHECK = "checking recipe and task"
DEVICE = "starting the device"
FOLDERS = "preparing folders"
BUILD = "building models"
LOAD = "loading checkpoints"
PREPARE = "preparing the step"
FIRST = "first step"
TRAIN = "training steps"
TRACED = "training steps under the profiler"
VALIDATE = "validation"
SAVE = "saving checkpoints"
LOG = "logging"
ESTIMATE = "estimating the test"
ONE_PASS = "testing, one pass"
FREE = "testing, free-running"
REPORT = "report"
PROFILE = "counting for the profile"
ORDER = (
    *(START, CHECK, DEVICE, FOLDERS, BUILD, LOAD, PREPARE, FIRST, TRAIN, TRACED, VALIDATE, SAVE, LOG, ESTIMATE),
    *(ONE_PASS, FREE, REPORT, PROFILE, OTHER),
)
"""All phases, in the order in which a command comes to them."""
_JUDGED = "between a pass and what follows"
"""A phase that becomes a part of free-running if an answer is written next, and of the pass otherwise."""

TRACED_STEPS = {"cuda": 32, "cpu": 16}
"""Steps under the profiler, unless told otherwise.  On a GPU the batches of up to 16 steps are drawn at once."""
_SETTLE = 20
"""Steps before them: the first ones allocate memory and choose kernels."""
_BATCHES = 4
"""Batches over which the tokens of a step are averaged."""

Function = TypeVar("Function", bound=Callable[..., object])
NewJudge = Callable[[Model, int], Judge]
Write = Callable[[Writing], None]
Progress = Callable[[int, str], None]


@dataclass(frozen=True)
class Training:
    """The facts about a training that its profile needs."""

    runs: Sequence[tuple[RunConfig, int]]
    """The configuration and the seed of each model."""
    start: int
    """The number of steps done before."""
    drawn: BatchStream
    """The data that the step reads."""

    @property
    def config(self) -> RunConfig:
        return self.runs[0][0]

    def find_window(self, steps: int) -> tuple[int, int]:
        """Return the first step to trace and how many: at most `steps`, with no validation and no checkpoint between.

        (_, 0) if there are too few.
        """
        train, execution = self.config.train, self.config.execution
        first = self.start + 1 + min(_SETTLE, (train.steps - self.start) // 4)
        ends = {train.steps}
        for every in (train.validate_every, execution.save_every):
            ends |= set(range(every, train.steps, every))
        ordered = sorted(end for end in ends if end > first)
        gaps = [(begin, end - begin) for begin, end in zip([first, *ordered], ordered, strict=False)]
        for wanted in dict.fromkeys((steps, steps // 2, steps // 4, min(steps, 1))):
            for begin, size in gaps:
                if wanted and size >= WARM_UP + wanted:
                    return begin, wanted
        return first, 0

    def tokens(self) -> float:
        """Return the tokens that a step of all models reads, on average."""
        means: dict[str, float] = {}
        total = 0.0
        for config, seed in self.runs:
            key = f"{config.task} {config.train.lengths} {config.train.prime}"
            if key not in means:
                data = training_data(config, seed, "cpu")
                batches = [data.batch(self.start + number).sample for number in range(_BATCHES)]
                means[key] = mean(float((sample.num_tokens - 1).sum()) for sample in batches)
            total += means[key]
        return total


class NoProfile:
    """Measures nothing."""

    def use(self, device: str) -> None:
        """Measure work on this device."""

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Measure a block as a phase."""
        return nullcontext()

    def wrap(self, name: str, function: Function) -> Function:
        """Return a function that measures its calls as a phase."""
        return function

    def section(self, runs: Sequence[str]) -> AbstractContextManager[None]:
        """Measure a block as the work of these runs."""
        return nullcontext()

    def training(self, step: AnyStep, training: Training) -> AbstractContextManager[AnyStep]:
        """Measure a block as training, and yield the step that it must take."""
        return nullcontext(step)

    def testing(
        self, new_judge: NewJudge, write: Write, progress: Progress
    ) -> AbstractContextManager[tuple[NewJudge, Write, Progress]]:
        """Measure a block as a test, and yield the callables that it must use."""
        return nullcontext((new_judge, write, progress))


class Profile(NoProfile):
    """Measures a command."""

    def __init__(self, begun: float, since: str, traced_steps: int | None = None) -> None:
        """`begun` is when the process started, by `time.perf_counter`; `since` says how this is known.

        So many `traced_steps` run under torch.profiler: by default those of `TRACED_STEPS`.
        """
        self.since, self.traced_steps = since, traced_steps
        self.phases = Phases(begun)
        self.device = "cpu"
        self.names: list[tuple[str, ...]] = []
        self.trainings: dict[int, list[TrainingSpeed]] = {}
        self.first_step: float | None = None
        self.phases.running = Phase(START)
        self.phases.switch(Phase(OTHER))

    def use(self, device: str) -> None:
        self.device = device
        if torch.device(device).type == "cuda":
            with self.phase(DEVICE):
                torch.zeros((), device=device)
                torch.cuda.synchronize(device)
            self.phases.wait = lambda: torch.cuda.synchronize(device)

    def phase(self, name: str) -> AbstractContextManager[None]:
        return self.phases.phase(name)

    def wrap(self, name: str, function: Function) -> Function:
        def measured(*arguments: object) -> object:
            with self.phases.phase(name):
                return function(*arguments)

        return measured  # type: ignore[return-value]

    @contextmanager
    def section(self, runs: Sequence[str]) -> Iterator[None]:
        self.names.append(tuple(runs))
        self.phases.section = len(self.names) - 1
        try:
            with self.phases.phase(OTHER):
                yield
        finally:
            self.phases.section = None

    @contextmanager
    def training(self, step: AnyStep, training: Training) -> Iterator[AnyStep]:
        measured = MeasuredStep(step, self, training)
        try:
            with self.phases.phase(TRAIN):
                yield measured
        finally:
            measured.stop()
        with self.phases.phase(PROFILE):
            self.trainings.setdefault(self.phases.section or 0, []).append(measured.speed())

    @contextmanager
    def testing(
        self, new_judge: NewJudge, write: Write, progress: Progress
    ) -> Iterator[tuple[NewJudge, Write, Progress]]:
        phases, section = self.phases, self.phases.section
        unknown = Phase(ONE_PASS, section)
        now: int | None = None

        def make(model: Model, batches: int) -> Judge:
            """The length is known when the first batch is judged."""
            phases.switch(unknown)
            judge = new_judge(model, batches)

            def timed(sample: Sample, ids: Tensor, reserved: int) -> Judged:
                nonlocal now
                now = int(sample.length[0])
                phases.begin(ONE_PASS, now)
                phases.move(unknown, Phase(ONE_PASS, section, now))
                judged = judge(sample, ids, reserved)
                phases.begin(_JUDGED)
                return judged

            return timed

        def timed_write(writing: Writing) -> None:
            phases.begin(FREE, now)
            phases.move(Phase(_JUDGED, section), Phase(FREE, section, now))
            write(writing)

        def timed_progress(done: int, note: str) -> None:
            phases.begin(ONE_PASS, now)
            phases.move(Phase(_JUDGED, section), Phase(ONE_PASS, section, now))
            progress(done, note)

        with phases.phase(ONE_PASS):
            yield make, timed_write, timed_progress

    def result(self) -> ProfileResult:
        """Return what was measured until now."""
        self.phases.switch(self.phases.running)
        total, seconds = self.phases.total(), self.phases.seconds
        return ProfileResult(
            seconds=total,
            since=self.since,
            seconds_to_first_step=self.first_step,
            phases=phase_times([(phase.name, own) for phase, own in seconds.items()], total, ORDER),
            sections=tuple(self._section(number, runs) for number, runs in enumerate(self.names)),
        )

    def _section(self, number: int, runs: tuple[str, ...]) -> Section:
        seconds = {phase: own for phase, own in self.phases.seconds.items() if phase.section == number}
        tested = dict.fromkeys(phase.length for phase in seconds if phase.name in (ONE_PASS, FREE))
        by_length = sorted(tested, key=lambda length: -1 if length is None else length)
        if len(by_length) > 1:  # the moments before the first length and after the last
            by_length = [length for length in by_length if length is not None]
        tests = [
            TestTime(length, *(seconds.get(Phase(name, number, length), 0.0) for name in (ONE_PASS, FREE)))
            for length in by_length
        ]
        own = [(phase.name, time) for phase, time in seconds.items()]
        phases = phase_times(own, self.phases.total(), ORDER)
        return Section(runs, phases, tuple(self.trainings.get(number, ())), tuple(tests))


class MeasuredStep:
    """Takes the steps of a run, measures their times, and traces some of them."""

    def __init__(self, step: AnyStep, profile: Profile, training: Training) -> None:
        self.step, self.profile, self.plan = step, profile, training
        self.model, self.values, self.reads_host = step.model, step.values, step.reads_host
        self.times = StepTimes(profile.device)
        self.taken = 0
        wanted = profile.traced_steps
        if wanted is None:
            wanted = TRACED_STEPS[torch.device(profile.device).type]
        self.first_traced, steps = training.find_window(wanted)
        self.trace = OperatorTrace(steps, profile.device) if steps else None
        self.untimed = 0.0
        """Seconds that the first step waited for its batch."""
        self.switches = -1
        """Of phases, when the last step ended."""

    def __call__(self, number: int) -> Float[Tensor, "models values"]:
        self.taken += 1
        phases = self.profile.phases
        if number == self.plan.start:
            with phases.phase(FIRST):
                values = self.step(number)
            if self.profile.first_step is None:
                self.profile.first_step = phases.total()
            self.untimed = self._waited
            return values
        if self.trace is not None and (self.trace.running or number == self.first_traced):
            return self._trace(self.trace, number)
        if self.switches != phases.switches:
            self.times.begin()
        values = self.step(number)
        self.times.end()
        self.switches = phases.switches
        return values

    def rates(self, number: int) -> list[float]:
        """Return the learning rate of each model."""
        return self.step.rates(number)

    def finite(self) -> list[bool]:
        """Return whether all weights of each model are finite."""
        return self.step.finite()

    def stop(self) -> None:
        """End a trace that is not complete."""
        if self.trace is not None:
            self.trace.stop()

    def speed(self) -> TrainingSpeed:
        """Return the speed of the steps that were taken."""
        times, models = self.times.seconds(), len(self.plan.runs)
        rate = len(times) / sum(times) if times else None
        ordered = sorted(times)
        return TrainingSpeed(
            models=models,
            first=self.plan.start,
            steps=self.taken,
            timed=len(times),
            median_milliseconds=1e3 * ordered[len(ordered) // 2] if ordered else None,
            slowest_milliseconds=1e3 * ordered[-1] if ordered else None,
            steps_per_second=rate,
            samples_per_second=None if rate is None else rate * models * self.plan.config.train.batch_size,
            tokens_per_second=None if rate is None else rate * self.plan.tokens(),
            waiting_share=self._waiting_share,
            operators=None if self.trace is None else self.trace.found,
        )

    def _trace(self, trace: OperatorTrace, number: int) -> Float[Tensor, "models values"]:
        phases = self.profile.phases
        if not trace.running:
            phases.begin(TRACED)
            trace.start()
        values = self.step(number)
        if trace.reaches_border:
            phases.wait()  # the work of the steps before a border belongs to them
        if trace.step():
            phases.begin(TRAIN)
        return values

    @property
    def _waited(self) -> float:
        drawn = self.plan.drawn
        return drawn.waited if isinstance(drawn, HostStream) else 0.0

    @property
    def _waiting_share(self) -> float | None:
        if not isinstance(self.plan.drawn, HostStream):
            return None
        phases = self.profile.phases
        spent = sum(phases.seconds.get(Phase(name, phases.section), 0.0) for name in (TRAIN, TRACED))
        return (self._waited - self.untimed) / spent if spent else None
