"""Run folders as they are while their runs are under way, without training."""

import json
import math
from pathlib import Path


def make_run(root: Path, name: str, steps: int = 0, total: int = 1000, events: tuple[str, ...] = ("started",)) -> Path:
    """A run that has logged every tenth of its steps."""
    folder = root / name
    folder.mkdir(parents=True)
    variant, _, seed = name.rpartition("/seed-")
    record = {"recipe": "r", "variant": variant.rpartition("/")[2], "seed": int(seed), "title": "Copying"}
    (folder / "run.json").write_text(json.dumps(record))
    (folder / "config.yaml").write_text(
        f"task:\n  name: copy\ntrain:\n  lengths: 1..8\n  steps: {total}\n  batch_size: 64\n  optimizer:\n    lr: 0.1\n"
    )
    (folder / ".run.lock").touch()
    for event in events:
        note(folder, event)
    advance(folder, 0, steps, max(1, total // 10))
    return folder


def note(folder: Path, event: str, **fields: object) -> None:
    with (folder / "log.jsonl").open("a") as file:
        file.write(json.dumps({"time": "2026-01-01T00:00:00+00:00", "event": event, **fields}) + "\n")


def advance(folder: Path, after: int, until: int, every: int) -> None:
    """Log the steps behind `after` up to `until`: 64 samples, which is a step, take 1/50 s."""
    with (folder / "metrics.jsonl").open("a") as file:
        for step in range(after + every, until + 1, every):
            loss = 0.01 + 2 * math.exp(-step / 200)
            file.write(json.dumps({"step": step, "loss": loss, "samples_per_second": 3200.0}) + "\n")
            file.write(json.dumps({"step": step, "in_distribution_em": 1 - loss / 3}) + "\n")


def finish(folder: Path, hits: tuple[int, ...] = (10, 8, 3)) -> None:
    """Write scores at lengths 8, 16, 32, ... of ten samples each."""
    cells = [
        {"seed": 0, "length": 8 << place, "metric": metric, "hits": hit, "samples": 10, "overrides": {}}
        for place, hit in enumerate(hits)
        for metric in ("token_em_tf", "token_em_free")
    ]
    temporary = folder / ".scores.part"
    temporary.write_text(json.dumps(cells))
    temporary.replace(folder / "scores.json")
