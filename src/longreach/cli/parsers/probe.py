"""Parser of `longreach probe`."""

import argparse
from pathlib import Path

from longreach.cli.facts import facts
from longreach.cli.trust import add_trust


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    quoted = facts()["probe"]
    parser = verbs.add_parser(
        "probe",
        help="which earlier tokens a model's predictions depend on",
        description="Hides earlier tokens and watches what becomes of each prediction.  Prints how many tokens "
        "predictions depend on, and how faithful that account is.",
    )
    parser.add_argument("model", help="a model of Hugging Face by folder or name, a .gguf file, or a run folder")
    parser.add_argument("text", nargs="?", help="a text file, - for standard input, or a prepared corpus")
    parser.add_argument("--method", choices=quoted["method_choices"], help="what gives the weights (default: masks)")
    parser.add_argument("--masks", type=int, help=f"random masks for the regression (default: {quoted['masks']})")
    parser.add_argument("--held-out", type=int, help=f"further ones that judge it (default: {quoted['held_out']})")
    parser.add_argument("--keep", type=float, help=f"probability to keep a token (default: {quoted['keep']})")
    parser.add_argument("--mask-kind", choices=quoted["mask_kind_choices"], help=f"(default: {quoted['mask_kind']})")
    parser.add_argument("--window", type=int, help="tokens that each token always sees, itself among them (default: 1)")
    parser.add_argument("--tau", type=float, help=f"nats from which a token counts (default: {quoted['tau']})")
    parser.add_argument("--eps", type=float, help=f"nats of loss that do not count (default: {quoted['eps']})")
    parser.add_argument("--largest-k", type=int, help=f"most tokens retained (default: {quoted['largest_k']})")
    parser.add_argument("--seed", type=int, help="of the masks (default: 0)")
    parser.add_argument("--length", type=int, help="tokens of a passage (default: 256)")
    parser.add_argument("--passages", type=int, help="passages, spread over the text (default: 1)")
    parser.add_argument("--targets", nargs="+", metavar="WHICH", help="all, last N or every N (default: all)")
    parser.add_argument("--split", choices=["train", "valid", "test"], help="of a prepared corpus (default: test)")
    parser.add_argument("--chat", action="store_true", default=None, help="put the text to a chat model as a message")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda (default: auto)")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32", help="(default: fp32)")
    parser.add_argument("--memory", type=float, default=1.0, help="GiB that a batch may take (default: 1)")
    parser.add_argument("--show", type=int, metavar="N", help="name the influential tokens of the last N targets")
    parser.add_argument("--out", type=Path, help="save what was found in this folder; with --calibrate: a .png file")
    parser.add_argument(
        "--calibrate",
        nargs="?",
        const=16,
        type=int,
        metavar="SAMPLES",
        help="instead of a text: samples of the run's own task, where it is known what answers depend on (default: 16)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, and no progress")
    add_trust(parser)
    parser.set_defaults(verb="longreach.cli.probe.run", takes_settings=False)
