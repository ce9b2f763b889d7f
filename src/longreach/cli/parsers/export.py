"""Parser of `longreach export`."""

import argparse
from pathlib import Path

from longreach.cli.trust import add_trust


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = verbs.add_parser(
        "export",
        help="write a trained model for Hugging Face",
        description="Write the model of a finished run so that AutoModelForCausalLM.from_pretrained reads it.  The "
        "task's words stand beside it in vocabulary.json, and a text's tokenizer in files of its own.",
    )
    parser.add_argument("run", type=Path, help="a run folder")
    parser.add_argument("folder", type=Path, help="where to; must not exist, or be empty")
    parser.add_argument("--longest", type=int, default=2048, help="tokens that it says it was made for (default: 2048)")
    add_trust(parser)
    parser.set_defaults(verb="longreach.cli.export.run", takes_settings=False)
