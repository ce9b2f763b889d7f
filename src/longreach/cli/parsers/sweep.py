"""Parser of `longreach sweep`."""

import argparse
from pathlib import Path

_EXAMPLE = """A sweep file is a recipe by name or path, a grid of settings to vary, and what a run may use:

  recipe: copy_small
  seeds: 3
  grid:
    model.layers: [1, 2]
    train.optimizer.lr: [1e-3, 3e-3]
  resources: {cpus: 1}
"""


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = verbs.add_parser(
        "sweep",
        help="many runs, on one machine or a cluster",
        description="`longreach sweep run|status FILE`: many runs, on one machine or on a cluster; `fetch` gets them"
        " from storage.",
    )
    parts = parser.add_subparsers(metavar="WHAT", required=True)
    start = parts.add_parser(
        "run",
        help="run what is left of a sweep",
        description="Run what is left of a sweep: finished runs are never run again, begun ones go on.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    start.add_argument("--backend", choices=("local", "ray"), default="local", help="processes of this machine, or Ray")
    start.add_argument(
        "--address", help="of a Ray cluster, such as auto or HOST:6379 (default: a local one is started)"
    )
    start.add_argument(
        "--workers", type=int, metavar="N", help="runs at a time (default: as many as there is room for)"
    )
    start.add_argument(
        "--device",
        choices=("auto", "cpu", "cuda"),
        help="auto takes GPUs where there are any (default: auto, or execution.device of the runs)",
    )
    start.add_argument(
        "--dry-run", action="store_true", help="check everything, tell how many runs and how long, run nothing"
    )
    start.add_argument("--retry-failed", action="store_true", help="try runs again that were given up")
    start.add_argument(
        "--scratch", type=Path, metavar="DIR", help="with a URL: where each machine keeps what it works on"
    )
    start.set_defaults(verb="longreach.cli.sweep.run", takes_settings=False)
    look = parts.add_parser("status", help="how far a sweep is", description="How far a sweep is; it may be running.")
    look.set_defaults(verb="longreach.cli.sweep.status", takes_settings=False)
    for part in (start, look):
        part.add_argument("file", type=Path, help="a sweep file (`longreach sweep run --help` shows one)")
        part.add_argument("--out", help="folder of the sweep (default: runs/NAME), or a URL such as s3://BUCKET/PATH")
        part.add_argument("--json", action="store_true", help="print JSON, and no progress")
    get = parts.add_parser(
        "fetch",
        help="copy a sweep from storage into a folder",
        description="Copy what a sweep has in storage into a folder, for `longreach report`.",
    )
    get.add_argument("url", help="what was given as --out")
    get.add_argument("folder", type=Path, help="where to; what is there already is written over")
    get.add_argument("--checkpoints", action="store_true", help="checkpoints as well")
    get.set_defaults(verb="longreach.cli.sweep.fetch_runs", takes_settings=False)
