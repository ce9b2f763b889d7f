"""From a sweep file to its runs, with every mistake found before the first of them starts."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

from longreach.config import to_plain
from longreach.errors import BadInput
from longreach.runs import (
    RunConfig,
    RunFolder,
    build_config,
    check,
    check_together,
    cut_into_stacks,
    refuse_other_config,
)
from longreach.sweeps.block import SweepBlock
from longreach.sweeps.complaints import Complaints, Origins
from longreach.sweeps.expand import combinations, settle
from longreach.sweeps.file import SweepFile, read_file
from longreach.sweeps.names import variation_name
from longreach.sweeps.source import Place, SweepSource, read_source


@dataclass(frozen=True)
class Variation:
    """A variant of a block with one value for each axis."""

    block: SweepBlock
    name: str
    origins: Origins
    config: RunConfig
    variant: str = ""
    """The variant of the recipe that it varies."""

    @property
    def title(self) -> str:
        """The title of its runs: that of the recipe, or of the task if the sweep changes it."""
        return self.block.title_for(self.variant, self.config.task.name)

    @property
    def path(self) -> str:
        """The folder of its runs, below the sweep's."""
        return "/".join(filter(None, (self.block.name, self.name)))

    @property
    def runs(self) -> list["PlannedRun"]:
        return [PlannedRun(self, seed) for seed in self.block.seeds]


@dataclass(frozen=True)
class PlannedRun:
    """One seed of a variation."""

    variation: Variation
    seed: int

    @property
    def name(self) -> str:
        """Its folder, below the sweep's."""
        return f"{self.variation.path}/seed-{self.seed}"

    def folder(self, out: Path) -> RunFolder:
        return RunFolder(out / self.name)


@dataclass(frozen=True)
class Job:
    """Runs of a block that are trained together: one, unless the file says `stack`."""

    runs: list[PlannedRun]

    @property
    def names(self) -> list[str]:
        return [run.name for run in self.runs]

    def folders(self, out: Path) -> list[RunFolder]:
        return [run.folder(out) for run in self.runs]

    def finished(self, out: Path) -> bool:
        return all(folder.finished for folder in self.folders(out))


@dataclass(frozen=True)
class SweepPlan:
    """All runs of a sweep."""

    source: SweepSource
    file: SweepFile
    variations: list[Variation]

    @property
    def runs(self) -> list[PlannedRun]:
        return [run for variation in self.variations for run in variation.runs]

    @property
    def device(self) -> str:
        """The kind of device that all runs ask for; a sweep hands out GPUs itself."""
        asked = sorted({variation.config.execution.device for variation in self.variations})
        if len(asked) != 1 or asked[0] not in ("auto", "cpu", "cuda"):
            text = f"execution.device must be auto, cpu or cuda for all runs of a sweep, got {', '.join(asked)}"
            raise BadInput(f"{self.source.path}: {text}")
        return asked[0]

    @cached_property
    def jobs(self) -> list[Job]:
        """Runs of a block that may share a stack do, finished or not: it must not matter how far the sweep is.  To find
        out, a model of each configuration is made, and none of them may be bad: whoever only looks asks for `runs`."""
        return [job for block in self.file.blocks for job in _jobs(block, self.variations)]


def make_plan(path: Path) -> SweepPlan:
    """Read a file and build the configuration of every run; nothing is trained or written."""
    source = read_source(path)
    file = read_file(source)
    variations = [variation for block in file.blocks for variation in _expand(source, block)]
    _refuse_duplicates(source, variations)
    source.refuse_mistakes()
    return SweepPlan(source, file, variations)


def check_plan(
    plan: SweepPlan,
    out: Path,
    progress: Callable[[int, int], None] = lambda done, total: None,
    device: str | None = None,
) -> None:
    """Find out what would go wrong in any run that is still to do, before one of them starts.

    `device` is that of the runs if they are trained on this machine: its memory decides which of them fit.
    """
    todo = [one for one in plan.variations if not all(run.folder(out).finished for run in one.runs)]
    of_block = {block.place: Complaints(plan.source, block) for block in plan.file.blocks}
    for done, variation in enumerate(todo):
        progress(done, len(todo))
        complaints = of_block[variation.block.place]
        complaints.runs.append(variation.origins)
        try:
            for folder in (run.folder(out) for run in variation.runs):
                if (folder.path / "config.yaml").exists():
                    refuse_other_config(folder, variation.config)
            together = min(variation.config.execution.stack_size(1), len(variation.block.seeds))
            if device is None:
                check(variation.config, together > 1)
            else:
                check(variation.config, together > 1, partial(check_together, number=together, device=device))
        except BadInput as error:
            complaints.add(variation.name, variation.origins, str(error))
    for complaints in of_block.values():
        complaints.tell()
    plan.source.refuse_mistakes()


def _expand(source: SweepSource, block: SweepBlock) -> list[Variation]:
    """The variations of a block that can be built; the others complain."""
    complaints = Complaints(source, block)
    found = []
    used: set[Place] = set()
    for variant, base in block.variants.items():
        for combination in combinations(block.grid, block.listed):
            settings, held = settle(variant, base, combination, block.whens)
            excluded = {condition.place for condition in block.left_out if condition.holds(variant, settings)}
            applied = [when.condition.place for when in held]
            used |= {*applied, *excluded}
            if excluded:
                continue
            name = variation_name(variant, combination)
            origins = (*applied, *(choice.place for choice in combination), (*block.place, "variants", variant))
            complaints.runs.append(origins)
            try:
                found.append(Variation(block, name, origins, build_config(settings), variant))
            except BadInput as error:
                complaints.add(name, origins, str(error))
    complaints.tell()
    if block.variants and not source.mistakes:
        for key, conditions in (("when", [when.condition for when in block.whens]), ("except", block.left_out)):
            for condition in conditions:
                if condition.place not in used:
                    source.blame(condition.place, f"{key}: this holds for none of the runs")
        if not found:
            source.blame((*block.place, "except"), "except leaves out every run")
    return found


def _jobs(block: SweepBlock, variations: list[Variation]) -> list[Job]:
    own = [(variation.config, variation.runs) for variation in variations if variation.block is block]
    return [Job(stack) for stack in cut_into_stacks(own, lambda config: config.execution.stack_size(1))]


def _refuse_duplicates(source: SweepSource, variations: list[Variation]) -> None:
    """Two runs in one folder, or the same run under two names of a block."""
    runs: dict[str, Variation] = {}
    configs: dict[tuple[Place, str], Variation] = {}
    for variation in variations:
        block = variation.block
        twin = configs.setdefault((block.place, str(to_plain(variation.config))), variation)
        if twin is not variation:
            source.blame(variation.origins[0], f"{variation.name} and {twin.name} are the same run")
            continue
        for name in (run.name for run in variation.runs):
            twin = runs.setdefault(name, variation)
            if twin.block is not block:
                line = source.line(twin.block.place)
                text = f"{name} is a run of line {line} as well: give one of the two blocks a `name`"
                source.blame(block.place, text)
                break
            if twin is not variation:
                source.blame(variation.origins[0], f"{name} would be the name of two runs")
                break
