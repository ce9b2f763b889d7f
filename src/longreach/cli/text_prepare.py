"""`longreach text prepare SOURCE...`: texts to tokens on disk."""

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from longreach.cli.columns import print_columns
from longreach.terminal.console import say
from longreach.text import SPLITS, Meta, Phase, PrepareConfig, prepare

_QUIET_SECONDS = 15.0
"""Seconds between lines where there is no terminal to draw a bar on."""


def add(parts: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = parts.add_parser(
        "prepare",
        help="texts to tokens on disk",
        description="A source is the name of a fetched text; a text file, which is one document; a folder of files; "
        ".jsonl (or .jsonl.gz) or .parquet; or hf:NAME[:CONFIGURATION], a dataset of Hugging Face.",
    )
    parser.add_argument("sources", nargs="+", metavar="SOURCE")
    parser.add_argument("--out", type=Path, required=True, help="the folder to write")
    parser.add_argument(
        "--tokenizer", default="bpe", help="bytes, bpe, or the path or name of a Hugging Face tokenizer (default: bpe)"
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
    parser.set_defaults(verb=run, takes_settings=False)


def run(args: argparse.Namespace, settings: list[str]) -> int:
    config = PrepareConfig(
        tokenizer=args.tokenizer,
        vocabulary=args.vocabulary,
        sample_bytes=args.sample_bytes,
        field=args.field,
        valid=args.valid,
        test=args.test,
        documents=args.documents,
    )
    try:
        with _bars(say) as phase:
            corpus = prepare(
                args.sources,
                args.out,
                config,
                workers=args.workers,
                resume=args.resume,
                phase=phase,
            )
    except KeyboardInterrupt:
        say.print("interrupted; what is encoded is kept.  To go on: the same command with --resume")
        return 130
    _show(corpus.meta)
    return 0


def _show(meta: Meta) -> None:
    splits = [meta.splits[name] for name in SPLITS]
    print_columns(
        {
            "split": list(SPLITS),
            "documents": [split.documents for split in splits],
            "bytes": [split.bytes for split in splits],
            "tokens": [split.tokens for split in splits],
            "bytes/token": [split.bytes / split.tokens if split.tokens else None for split in splits],
        }
    )
    say.print(f"{meta.vocabulary} tokens in the vocabulary", highlight=False)
    for name, split in meta.splits.items():
        if not split.documents and meta.settings.get(name):
            say.print(f"{name} is empty: a text falls into a split as a whole, and there are few", highlight=False)


@contextmanager
def _bars(console: Console) -> Iterator[Phase]:
    """A bar for each phase, in bytes, or plain lines where output is not a terminal."""
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    rest = (TimeRemainingColumn(compact=True), TextColumn("{task.fields[note]}", markup=False))
    with Progress(*columns, *rest, console=console, disable=not console.is_terminal) as progress:

        def phase(title: str, total: int) -> Callable[[int, str], None]:
            bar = progress.add_task(title, total=total or None, note="")
            shown = monotonic()

            def report(done: int, note: str) -> None:
                nonlocal shown
                progress.update(bar, completed=done, note=note)
                if not console.is_terminal and monotonic() - shown > _QUIET_SECONDS:
                    shown = monotonic()
                    part = f"{done / 1e6:.1f} of {total / 1e6:.1f} MB, " if total else ""
                    console.print(f"{title}: {part}{note}", markup=False, highlight=False)

            return report

        yield phase
