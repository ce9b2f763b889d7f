"""What a worker is told: one job, in a form that travels."""

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from longreach.config import to_plain
from longreach.sweep.plan import Job


@dataclass(frozen=True)
class Order:
    recipe: str
    title: str
    variant: str
    config: dict[str, Any]
    seeds: list[int]
    folders: list[str]
    """Of each seed, as absolute paths; without URLs, every machine must see them under the same name."""
    threads: int
    device: str = "cpu"
    urls: list[str] = field(default_factory=list)
    """Of each seed in shared storage: the folders are then scratch, and each machine has its own."""

    @property
    def stored(self) -> list[tuple[str, str]]:
        """Each scratch folder with its URL."""
        return list(zip(self.folders, self.urls, strict=True)) if self.urls else []

    @property
    def log(self) -> Path:
        """Of the whole job, in the folder of its first seed."""
        return Path(self.folders[0]) / "log.txt"

    def on(self, device: str) -> "Order":
        return replace(self, device=device)

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def make_order(job: Job, out: Path, threads: int) -> Order:
    folders = [str(folder.path) for folder in job.folders(out.resolve())]
    return Order(job.recipe, job.title, job.variant, to_plain(job.config), list(job.seeds), folders, threads)
