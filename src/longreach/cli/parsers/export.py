"""Parser of `longreach export`."""

import argparse
from pathlib import Path

from longreach.cli.trust import add_trust


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = verbs.add_parser(
        "export",
        help="write a trained model for Hugging Face",
        description="Write the model of a finished run so that AutoModelForCausalLM.from_pretrained reads it, with a"
        " tokenizer of the task's words and a model card.",
    )
    parser.add_argument("run", type=Path, help="a run folder")
    parser.add_argument("folder", type=Path, help="where to; must not exist, or be empty")
    parser.add_argument(
        "--format",
        choices=("auto", "huggingface", "longreach"),
        default="auto",
        help="huggingface: a GPT-NeoX or a Llama, where the run has such a counterpart; longreach: a model type of our"
        " own, which loads where this package is installed; auto: the first where possible (default)",
    )
    parser.add_argument("--longest", type=int, default=2048, help="tokens that it says it was made for (default: 2048)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_trust(parser)
    parser.set_defaults(verb="longreach.cli.export.run", takes_settings=False)
