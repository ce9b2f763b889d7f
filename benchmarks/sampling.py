"""Tokens per second that each task's sampler makes on one CPU core.

python benchmarks/sampling.py [--json FILE]
"""

import argparse
import json
import platform
import time
from datetime import date
from pathlib import Path

import torch

from longreach.api import ParityScratchpad, Planted, Span, SparseParity, VariableAssignment, stream

JOBS = [
    (SparseParity(k=Span(1, 8)), 50),
    (SparseParity(k=Span(1, 8)), 500),
    (ParityScratchpad(), 40),
    (Planted(), 50),
    (VariableAssignment(num_names=100), 20),
    (VariableAssignment(num_names=1000), 20),
]
BATCH, REPEATS = 1024, 30


def measure(task, length: int) -> float:
    """Median tokens per second, padding not counted."""
    lengths = torch.full((BATCH,), length)
    rates = []
    for repeat in range(REPEATS):
        numbers = torch.arange(repeat * BATCH, (repeat + 1) * BATCH)
        start = time.perf_counter()
        sample = task.sample(lengths, stream(0, "bench", numbers), length)
        rates.append(float(sample.num_tokens.sum()) / (time.perf_counter() - start))
    return sorted(rates)[REPEATS // 2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for task, length in JOBS:
        rows.append({"task": str(task), "length": length, "tokens_per_second": round(measure(task, length))})
        print(f"{rows[-1]['tokens_per_second'] / 1e6:8.1f} M tokens/s   length {length:4}   {task}")
    if args.json:
        facts = {
            "date": date.today().isoformat(),
            "torch": torch.__version__,
            "machine": platform.processor() or platform.machine(),
            "rows": rows,
        }
        args.json.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
