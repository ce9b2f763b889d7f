"""Parser of `longreach reach`."""

import argparse
from pathlib import Path

from longreach.cli.facts import facts


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = verbs.add_parser(
        "reach",
        help="how far a Hugging Face model holds: loss and retrieval by context",
        description="Measures a causal language model by the size of its context: the loss of the same tokens, the gain"
        " of the last doubling, and whether it finds needles in your texts.  Runs of longreach: longreach eval.",
    )
    parser.add_argument("model", help="a Hugging Face folder or name, or a .gguf file")
    parser.add_argument(
        "texts",
        nargs="+",
        metavar="text",
        help="text files, .jsonl or .parquet files, fetched texts, or a corpus prepared with the model's tokenizer",
    )
    parser.add_argument(
        "--contexts", help="such as 512,1024,2048 (default: powers of two up to twice the trained length)"
    )
    parser.add_argument("--samples", type=int, default=1024, help="about how many tokens are predicted (default: 1024)")
    parser.add_argument("--no-retrieval", action="store_true", help="do not ask for needles")
    parser.add_argument("--needles", default="1,4", help="numbers of needles in a text (default: 1,4)")
    parser.add_argument(
        "--depths",
        default="0,0.25,0.5,0.75,1",
        help="shares of the text in front of the asked needle (default: %(default)s)",
    )
    parser.add_argument("--questions", type=int, default=4, help="questions at each depth (default: 4)")
    parser.add_argument(
        "--encoding",
        action="append",
        default=[],
        help="also with another encoding for the same weights, such as self_extend, yarn or '{name: yarn, factor: 4}';"
        " the trained length comes from the model's config, and a window is half of it; may be given several times"
        " (Llama and GPT-NeoX only)",
    )
    parser.add_argument(
        "--probe",
        nargs="?",
        const=4,
        default=0,
        type=int,
        metavar="PASSAGES",
        help="also measure how few tokens predictions depend on, in so many passages (4 without a number)",
    )
    parser.add_argument("--split", choices=facts()["splits"], help="of a prepared corpus (default: test)")
    parser.add_argument("--field", help="field of the text in .jsonl and .parquet files (default: text)")
    parser.add_argument("--batch-tokens", type=int, default=65_536, help="tokens in a forward pass (default: 65536)")
    parser.add_argument("--precision", default="fp32", choices=["fp32", "bf16"], help="(default: fp32)")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda (default: auto)")
    parser.add_argument("--seed", type=int, default=0, help="another seed, other tokens and questions")
    parser.add_argument("--out", type=Path, help="write reach.json and the page reach.html into this folder")
    parser.add_argument("--json", action="store_true", help="print JSON, and no progress")
    parser.set_defaults(verb="longreach.cli.reach.run", takes_settings=False)
