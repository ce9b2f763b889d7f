"""Parser of `longreach predict`."""

import argparse
from pathlib import Path

from longreach.cli.trust import add_trust


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = verbs.add_parser(
        "predict",
        help="let a trained model answer a prompt",
        description='`longreach predict RUN --prompt "..."`: let a trained model answer a prompt of yours.',
    )
    parser.add_argument("run", type=Path, help="a run folder")
    parser.add_argument("--prompt", required=True, help="tokens, as `longreach show TASK` prints them")
    parser.add_argument("--max-tokens", type=int, help="the most tokens to write (default: twice the prompt and 16)")
    parser.add_argument("--temperature", type=float, default=0.0, help="draw tokens; 0 takes the best (default)")
    parser.add_argument("--top-k", type=int, default=0, help="draw from the so many best tokens only")
    parser.add_argument("--top-p", type=float, default=1.0, help="draw from the best tokens of this probability only")
    parser.add_argument("--seed", type=int, help="another seed, another draw (default: 0)")
    parser.add_argument("--prompt-ids-only", action="store_true", help="predicted IDs: only those the prompt has")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda (default: auto)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_trust(parser)
    parser.set_defaults(verb="longreach.cli.predict.run", takes_settings=False)
