"""Run folders without training: as many as a test of tables wants, with the files that a run leaves."""

import json
from dataclasses import asdict
from pathlib import Path

from longreach.api import EvalConfig, ParityScratchpad, RunConfig, Score, Sequential, TrainConfig, TransformerConfig
from longreach.config import dump_yaml, to_plain
from longreach.evaluation import to_json
from longreach.runs import RunInfo

METRICS = ("token_em_tf", "token_em_free", "token_accuracy", "near_tie")
LENGTHS = (5, 10, 20, 40, 80)
CONFIG = RunConfig(
    task=ParityScratchpad(), ids=Sequential(), model=TransformerConfig(), train=TrainConfig(), evaluate=EvalConfig()
)


def make_runs(root: Path, count: int, seeds: int = 5, lengths: tuple[int, ...] = LENGTHS) -> list[Path]:
    """Variants v0, v1, ... that differ in their width and rate of learning, so many seeds of each."""
    marked = dump_yaml(to_plain(CONFIG)).replace("width: 256", "width: WIDTH").replace("lr: 0.0003", "lr: RATE")
    assert "WIDTH" in marked
    assert "RATE" in marked
    folders = []
    for number in range(count):
        variant, seed = divmod(number, seeds)
        folder = root / f"v{variant}" / f"seed-{seed}"
        folder.mkdir(parents=True)
        config = marked.replace("WIDTH", str(64 + 64 * (variant % 4))).replace("RATE", f"{1e-4 * (1 + variant):.6f}")
        info = RunInfo("synthetic", f"v{variant}", seed, "cpu", {"torch": "none"}, "")
        (folder / "config.yaml").write_text(config)
        (folder / "run.json").write_text(json.dumps(asdict(info)))
        (folder / "metrics.jsonl").write_text('{"step": 1000, "loss": 0.5}\n{"step": 2000, "loss": 0.1}\n')
        (folder / "checkpoints").mkdir()
        write_scores(folder, variant, seed, lengths)
        folders.append(folder)
    return folders


def write_scores(folder: Path, variant: int, seed: int, lengths: tuple[int, ...] = LENGTHS) -> None:
    scores = [
        Score(seed, length, metric, (7 * variant + 3 * seed + length) % 101, 100)
        for length in lengths
        for metric in METRICS
    ]
    (folder / "scores.json").write_text(json.dumps(to_json(scores), indent=1) + "\n")
