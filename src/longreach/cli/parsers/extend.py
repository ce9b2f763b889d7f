"""Parser of `longreach extend`."""

import argparse
from pathlib import Path

from longreach.cli.facts import facts


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    known = facts()["extend"]
    parser = verbs.add_parser(
        "extend",
        help="make a Hugging Face model read longer texts",
        description="Scale RoPE and train with position IDs that skip (PoSE), beside controls that show what helped:"
        " the model as it is, scaling alone, and training with sequential IDs on the same tokens.",
    )
    parser.add_argument("model", help="a Hugging Face folder or name, or a .gguf file")
    parser.add_argument("--to", type=int, required=True, help="tokens that the model is to read")
    parser.add_argument(
        "--data",
        nargs="+",
        default=[],
        metavar="TEXT",
        help="text files, folders, .jsonl or .parquet files, names of fetched texts, or one prepared corpus",
    )
    parser.add_argument("--out", type=Path, help="the folder to write; must not exist, or be empty")
    parser.add_argument(
        "--window", type=int, help="tokens of a row of training (default: the trained length, at most 2048)"
    )
    parser.add_argument(
        "--trained",
        type=int,
        help="tokens that the model was trained for (default: max_position_embeddings of its configuration)",
    )
    parser.add_argument("--rope", choices=known["rope_choices"], help="how RoPE is scaled (default: yarn)")
    parser.add_argument("--ids", choices=known["ids_choices"], help="position IDs in training (default: pose)")
    parser.add_argument("--steps", type=int, help=f"optimizer steps of each trained arm (default: {known['steps']})")
    parser.add_argument("--batch-size", type=int, help=f"rows of a step (default: {known['batch_size']})")
    parser.add_argument(
        "--lr",
        type=float,
        help="highest learning rate (default: 2e-5 for 7 billion parameters, more for smaller models, at most 1e-3; ten"
        " times as much with --lora)",
    )
    parser.add_argument("--lora", type=int, metavar="RANK", help="train adapters of this rank instead of all weights")
    parser.add_argument(
        "--controls", choices=("all", "none"), help="none: train and measure the result alone (default: all)"
    )
    parser.add_argument(
        "--samples", type=int, help=f"about how many tokens are predicted at each context (default: {known['samples']})"
    )
    parser.add_argument("--field", help="where the text is in JSONL, Parquet and datasets (default: text)")
    parser.add_argument("--test", type=float, help="share of documents held out and measured (default: 0.1)")
    parser.add_argument("--documents", type=int, help="at most so many, from the beginning")
    parser.add_argument("--estimate", action="store_true", help="print memory, time and disk, and start nothing")
    parser.add_argument("--resume", action="store_true", help="go on where an earlier start stopped")
    parser.add_argument("--seed", type=int, help="other rows, IDs and measured tokens (default: 0)")
    parser.add_argument(
        "--precision", choices=("fp32", "bf16"), help="of the arithmetic and of the folder (default: fp32)"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda (default: auto)")
    parser.add_argument("--json", action="store_true", help="print JSON, and no progress")
    parser.set_defaults(verb="longreach.cli.extend.run", takes_settings=False)
