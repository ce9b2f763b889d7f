"""Parser of `longreach run`."""

import argparse
from pathlib import Path

from longreach.cli.facts import facts


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = verbs.add_parser(
        "run",
        help="train and test a recipe",
        description="Train and test every variant and seed of a recipe, then write a report.",
        epilog=_settings_help(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,  # --seed is no short form of --seeds
    )
    parser.add_argument(
        "recipe",
        nargs="?",
        help="a name from `longreach list recipe`, or a YAML file; none with --preset and --task.name",
    )
    parser.add_argument(
        "--preset",
        metavar="NAME",
        help="position IDs, model and training of a preset (ppc) instead of the recipe's; variants are left out",
    )
    parser.add_argument("--seeds", type=int, metavar="N", help="number of seeds (default: the recipe's, or 1)")
    parser.add_argument("--first_seed", "--first-seed", type=int, metavar="N", help="the first of them (default: 0)")
    parser.add_argument("--out", type=Path, help="folder for the runs (default: runs/NAME)")
    parser.add_argument("--only", metavar="VARIANTS", help="run only these variants, such as counting,aligned")
    parser.add_argument("--resume", action="store_true", help="go on where an earlier start stopped, if there was one")
    parser.add_argument("--device", help="auto, cpu, cuda, cuda:1 (default: auto, or execution.device of the recipe)")
    parser.add_argument(
        "--stack",
        type=int,
        metavar="N",
        help="train up to N runs that are alike as one computation (default: on a GPU up to 8 where they fit, else 1)",
    )
    parser.add_argument("--batch-tokens", type=int, metavar="N", help="tokens in a forward pass of a test")
    parser.add_argument(
        "--parallel",
        choices=facts()["parallel"],
        help="how the processes of torchrun share a run: each with the whole model, or with a part (default: ddp)",
    )
    parser.add_argument(
        "--track", metavar="NAMES", help="where to watch besides TensorBoard: wandb, trackio, or wandb,trackio"
    )
    parser.add_argument(
        "--no-check", action="store_true", help="train on a task of yours that `longreach check` would refuse"
    )
    parser.add_argument(
        "--profile",
        action="store_true",
        help="measure where the time goes: a table, and profile.md and profile.json in the output folder",
    )
    parser.add_argument(
        "--profile-steps",
        type=int,
        metavar="N",
        help="training steps whose kernels or operators --profile counts (default: 32; on a CPU 16; 0: none)",
    )
    parser.add_argument("--threads", type=int, default=0, help="CPU threads (default: torch's choice)")
    parser.add_argument("--json", action="store_true", help="print the result as JSON, and no progress")
    parser.set_defaults(verb="longreach.cli.run.run", takes_settings=True)


def _settings_help() -> str:
    """Return every setting of a recipe as a flag."""
    lines = [
        "Any setting of a recipe can be given as a flag and applies to every variant that runs:",
        "  --task.FIELD, --ids.FIELD, --model.encoding.FIELD, --model.attention.FIELD: see `longreach list KIND`",
    ]
    return "\n".join([*lines, *(f"  {line}" for line in facts()["settings"])])
