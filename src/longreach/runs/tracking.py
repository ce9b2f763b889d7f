"""Where a run can be watched: TensorBoard always, Weights & Biases and trackio where they are asked for."""

import importlib.util
import json
import os
import sys
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from longreach.config import to_plain
from longreach.config.registry import nearest
from longreach.errors import BadInput, RunFailed, argument
from longreach.evaluation import Score
from longreach.runs.folder import RunFolder, RunInfo
from longreach.runs.recipe import RunConfig
from longreach.system.files import read_json, write_atomically

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

_PROJECT = "longreach"


class Tracker(Protocol):
    """What the values of a run are sent to."""

    def forget_after(self, step: int) -> None:
        """Training goes on from here: values of later steps, if there were any, will come again."""

    def log(self, step: int, values: Mapping[str, float]) -> None: ...

    def finish(self, done: bool) -> None:
        """Nothing more will come; `done` unless the run failed."""


class TensorBoard:
    """Files in the run's folder."""

    def __init__(self, config: RunConfig, folder: RunFolder, info: RunInfo) -> None:
        self._place = str(folder.path / "tensorboard")
        self._after = 0
        self._writer: SummaryWriter | None = None

    def forget_after(self, step: int) -> None:
        self._after = step

    def log(self, step: int, values: Mapping[str, float]) -> None:
        try:
            if self._writer is None:
                from torch.utils.tensorboard import SummaryWriter  # takes a second to import

                self._writer = SummaryWriter(self._place, purge_step=self._after + 1)
            for name, value in values.items():
                self._writer.add_scalar(name, value, step)
        except OSError as error:
            raise RunFailed(f"could not write to {self._place}: {error.strerror}") from error

    def finish(self, done: bool) -> None:
        if self._writer is None:
            return
        try:
            self._writer.close()
        except OSError as error:
            raise RunFailed(f"could not write to {self._place}: {error.strerror}") from error


class WeightsAndBiases:
    """One W&B run for each run, however often it is resumed.  WANDB_MODE, WANDB_PROJECT and the like are W&B's own."""

    def __init__(self, config: RunConfig, folder: RunFolder, info: RunInfo) -> None:
        import wandb

        try:
            self._run = wandb.init(
                project=os.environ.get("WANDB_PROJECT", _PROJECT),
                id=_identity(folder.path),
                resume="allow",
                name=_name(info),
                group=info.recipe,
                config=_about(config, info),
                allow_val_change=True,  # a resume may come from another commit or device
                dir=str(folder.path),
                reinit="create_new",  # the seeds of a stack are open together
                settings=wandb.Settings(console="off"),  # bars are no log
            )
        except wandb.Error as error:
            reason = str(error).strip().splitlines()[0]
            raise RunFailed(f"wandb could not start: {reason}; see `wandb login`, or set WANDB_MODE=offline") from error

    def forget_after(self, step: int) -> None:
        """W&B keeps the values that it has of a step, and a resumed run repeats them exactly."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def finish(self, done: bool) -> None:
        self._run.finish(exit_code=0 if done else 1)


class Trackio:
    """A run in trackio's local database, or where its TRACKIO_ variables say."""

    def __init__(self, config: RunConfig, folder: RunFolder, info: RunInfo) -> None:
        import trackio

        # it resumes by name, and two folders may hold runs of the same one
        name = f"{_name(info)}-{_identity(folder.path)[:6]}"
        with redirect_stdout(sys.stderr):  # stdout is for results
            self._run = trackio.init(
                project=_PROJECT, name=name, group=info.recipe, config=_about(config, info), resume="allow"
            )

    def forget_after(self, step: int) -> None:
        """trackio takes nothing back: steps that are done again stand there twice, with the same values."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def finish(self, done: bool) -> None:
        import trackio

        with redirect_stdout(sys.stderr):
            trackio.finish()


Maker = Callable[[RunConfig, RunFolder, RunInfo], Tracker]
TRACKERS: dict[str, Maker] = {"wandb": WeightsAndBiases, "trackio": Trackio}
"""Named after their packages, which are extras."""


class Trackers:
    """All trackers of one run, as one: opened on entering it as a context, finished on leaving if not before."""

    def __init__(self, names: Iterable[str], config: RunConfig, folder: RunFolder, info: RunInfo) -> None:
        self._makers: list[Maker] = [TensorBoard, *(TRACKERS[name] for name in names)]
        self._run = (config, folder, info)
        self._all: list[Tracker] = []

    def forget_after(self, step: int) -> None:
        for tracker in self._all:
            tracker.forget_after(step)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        for tracker in self._all:
            tracker.log(step, values)

    def finish(self, done: bool) -> None:
        while self._all:
            self._all.pop().finish(done)

    def __enter__(self) -> "Trackers":
        for make in self._makers:
            self._all.append(make(*self._run))
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            return self.finish(done=True)
        with suppress(RunFailed):  # what broke the run is told; that a tracker could not be closed after it is not
            self.finish(done=False)
        return None


def check_trackers(names: Sequence[str], together: int = 1) -> None:
    """Refuse before training what cannot be watched; `together` is the number of runs in one stack."""
    for name in names:
        if name not in TRACKERS:
            raise BadInput(f"unknown tracker {name!r}{nearest(name, TRACKERS)}; tensorboard is always written")
        if importlib.util.find_spec(name) is None:
            raise BadInput(f"{name} is not installed: pip install 'longreach[{name}]'")
    if "trackio" in names and together > 1:
        track = argument("track", "trackio")
        raise BadInput(f"trackio follows one run at a time: leave out {argument('stack')}, or {track}")


def score_values(scores: Iterable[Score]) -> dict[str, float]:
    """Exact match by length, or of text the share of tokens, each cell under a name of its own."""
    found = {}
    for score in scores:
        if "_em_" in score.metric or score.metric == "next_token":
            setting = "".join(f"{name}={value}/" for name, value in score.overrides.items())
            found[f"test/{score.metric}/{setting}{score.length}"] = score.rate
    return found


def _identity(folder: Path) -> str:
    """What a run is called elsewhere.  Kept in its folder, so that it outlives interruptions and moves."""
    path = folder / "tracking.json"
    if not path.exists():
        write_atomically(path, (json.dumps({"id": uuid.uuid4().hex[:12]}) + "\n").encode())
    return read_json(path, lambda content: str(content["id"]))


def _name(info: RunInfo) -> str:
    return f"{info.variant or info.recipe}/seed-{info.seed}"


def _about(config: RunConfig, info: RunInfo) -> dict[str, Any]:
    origin = {"recipe": info.recipe, "variant": info.variant, "seed": info.seed, "commit": info.commit}
    return {**to_plain(config), **origin, "device": info.device}
