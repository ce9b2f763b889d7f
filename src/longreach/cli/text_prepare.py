"""`longreach text prepare SOURCE...`: texts to tokens on disk."""

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from longreach.cli.columns import print_columns
from longreach.terminal.console import say
from longreach.text import SPLITS, Meta, Phase, PrepareConfig, prepare

_QUIET_SECONDS = 15.0
"""Seconds between lines where there is no terminal to draw a bar on."""


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
