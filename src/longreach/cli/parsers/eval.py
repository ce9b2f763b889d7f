"""Parser of `longreach eval`."""

import argparse
from pathlib import Path

from longreach.cli.trust import add_trust


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = verbs.add_parser(
        "eval",
        help="test a trained model at other lengths or settings",
        description="Test one run, or every run below a folder.  Every task field is an axis: --task.k 4,6,8.  Every"
        " setting of a recipe's sections `evaluate` and `execution` is a flag, such as --evaluate.seed 1; --samples is"
        " short for --evaluate.samples, --batch-tokens for --execution.batch_tokens, and so on.",
    )
    parser.add_argument("run", type=Path, help="a run folder, or a folder of runs")
    parser.add_argument("--lengths", help="such as 20:500:20 (both ends included) or 10,20,40")
    parser.add_argument("--samples", type=int, help="samples in a cell")
    parser.add_argument("--free-samples", type=int, help="how many of them are generated token by token")
    parser.add_argument("--batch-tokens", type=int, help="tokens in a forward pass")
    parser.add_argument("--relabel-ids", action="store_true", help="relabel IDs as in training")
    parser.add_argument("--control", choices=["none", "shuffled", "off_by_one"], help="spoil the IDs of the prompt")
    parser.add_argument("--shift", type=int, help="a number added to all IDs, the reserved one included")
    parser.add_argument(
        "--encoding", help="another encoding for the same weights: self_extend, yarn, or {name: rerope, window: 20}"
    )
    parser.add_argument(
        "--measure",
        help="also measure why, and write it into the run folder: mass (attention on the true dependencies), margin (of"
        " predicted IDs), token_margin (of tokens), or several as in mass,margin",
    )
    parser.add_argument("--prompt-ids-only", action="store_true", help="predicted IDs: only those the prompt has")
    parser.add_argument("--device", help="auto, cpu, cuda (default: auto)")
    parser.add_argument(
        "--out",
        type=Path,
        help="write scores, losses on text and measures to this .json file, or without measures to this .csv file",
    )
    parser.add_argument("--json", action="store_true", help="print the same as JSON, and no progress")
    add_trust(parser)
    parser.set_defaults(verb="longreach.cli.eval.run", takes_settings=True)
