"""A sweep from shared storage into a folder, where reports can read it."""

from pathlib import Path, PurePosixPath

from longreach.errors import BadInput
from longreach.sweeps.courier import copying_order
from longreach.sweeps.storage import Storage


def fetch(storage: Storage, target: Path, checkpoints: bool = False) -> int:
    """Copy every file but checkpoints, unless they are wanted, and hidden ones; the answer is the number of runs."""
    paths = [path for path in storage.list() if not any(part.startswith(".") for part in PurePosixPath(path).parts)]
    runs = {str(PurePosixPath(path).parent) for path in paths if PurePosixPath(path).name == "config.yaml"}
    if not runs:
        raise BadInput(f"{storage.url} holds no runs")
    for run in sorted(runs):
        inside = [path.removeprefix(f"{run}/") for path in paths if path.startswith(f"{run}/")]
        for path in sorted(inside, key=copying_order):
            if checkpoints or not path.startswith("checkpoints/"):
                storage.fetch(f"{run}/{path}", target / run / path)
    return len(runs)
