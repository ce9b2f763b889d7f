"""Run folders below a path, each with a stamp that changes when the run does; 10,000 of them in a moment."""

import os
from pathlib import Path

from longreach.errors import BadInput

_OF_EVERY_RUN = ("config.yaml", "run.json", "scores.json", "attempts.json")
_INSIDE_A_RUN = ("checkpoints", "tensorboard", "wandb")
"""Folders with many files and no runs."""


def scan(root: Path) -> dict[str, str]:
    """Path below the root (empty for the root itself) -> stamp.  Like `find_runs`, it follows no links to folders."""
    if not root.exists():
        raise BadInput(f"there is no {root}")
    found = {}
    prefix = len(os.path.join(root, ""))
    waiting = [str(root)]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(folder) as listing:
                entries = {entry.name: entry for entry in listing}
        except FileNotFoundError:  # removed since its parent was listed
            continue
        is_run = "config.yaml" in entries
        if is_run:
            found[folder[prefix:]] = _stamp(entries)
        for name, entry in entries.items():
            if not (is_run and name in _INSIDE_A_RUN) and entry.is_dir(follow_symlinks=False):
                waiting.append(entry.path)
    return found


def _stamp(entries: dict[str, os.DirEntry[str]]) -> str:
    # every stat is a round trip on a network's disk: the metrics matter only until there are scores
    names = _OF_EVERY_RUN if "scores.json" in entries else (*_OF_EVERY_RUN, "metrics.jsonl")
    parts = []
    for name in names:
        if name in entries:
            stat = entries[name].stat()
            # the inode tells a file that was replaced by one of the same size within a tick of the clock
            parts.append(f"{name}:{stat.st_mtime_ns}:{stat.st_size}:{stat.st_ino}")
    return " ".join(parts)
