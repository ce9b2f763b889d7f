"""What a worker is told: one job, in a form that travels."""

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from longreach.config import to_plain
from longreach.runs import RunConfig, RunFolder
from longreach.sweeps.plan import Job


@dataclass(frozen=True)
class Order:
    recipe: str
    title: str
    variants: list[str]
    """Of each run, as are the lists that follow."""
    configs: list[dict[str, Any]]
    seeds: list[int]
    folders: list[str]
    """As absolute paths; without URLs, every machine must see them under the same name."""
    threads: int
    device: str = "cpu"
    urls: list[str] = field(default_factory=list)
    """In shared storage: the folders are then scratch, and each machine has its own."""
    origins: list[dict[str, Any]] = field(default_factory=list)
    """`places` and `signature` of each run's record, signed by the user who started the sweep."""
    command: str = ""
    """Command that started the sweep."""

    @property
    def stored(self) -> list[tuple[str, str]]:
        """Each scratch folder with its URL."""
        return list(zip(self.folders, self.urls, strict=True)) if self.urls else []

    @property
    def log(self) -> Path:
        """Of the whole job, in the folder of its first run."""
        return Path(self.folders[0]) / "log.txt"

    def on(self, device: str) -> "Order":
        return replace(self, device=device)

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def make_order(job: Job, out: Path, threads: int, command: str = "") -> Order:
    block = job.runs[0].variation.block
    return Order(
        recipe=block.name,
        title=job.runs[0].variation.title,
        variants=[run.variation.name for run in job.runs],
        configs=[to_plain(run.variation.config) for run in job.runs],
        seeds=[run.seed for run in job.runs],
        folders=[str(folder.path) for folder in job.folders(out.resolve())],
        threads=threads,
        origins=[_origin(run.variation.config, run.folder(out)) for run in job.runs],
        command=command,
    )


def _origin(config: RunConfig, folder: RunFolder) -> dict[str, Any]:
    try:
        return folder.sign_places(config)
    except OSError:
        return {}  # the job tries again, and its log says what is wrong
