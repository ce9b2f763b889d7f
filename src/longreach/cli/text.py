"""`longreach text`: texts to fetch, and prepared corpora."""

import argparse
import json

from longreach.cli.columns import print_columns
from longreach.errors import BadInput
from longreach.system.labels import visible
from longreach.terminal.console import say
from longreach.text import FETCHABLE, SPLITS, Corpus, fetch, in_cache


def list_texts(args: argparse.Namespace, settings: list[str]) -> int:
    rows = []
    for name, item in FETCHABLE.items():
        there = in_cache(name)
        rows.append(
            {
                "name": name,
                "licence": item.licence,
                "download_mb": item.size / 1e6,
                "by": item.client,
                "there": None if there is None else there.version,
                "documents": None if there is None else there.documents or None,
                "mb": None if there is None else there.bytes / 1e6,
                "summary": item.summary,
            }
        )
    if args.json:
        print(json.dumps(rows))
    else:
        print_columns({column: [row[column] for row in rows] for column in rows[0]})
    return 0


def fetch_texts(args: argparse.Namespace, settings: list[str]) -> int:
    texts = [name for name, item in FETCHABLE.items() if item.documents is not None]
    names = list(dict.fromkeys(name for asked in args.names for name in (texts if asked == "all" else [asked])))
    if args.any_version and not any(name in FETCHABLE and FETCHABLE[name].client == "apt-get" for name in names):
        raise BadInput("--any-version concerns anarchism: the other packages are pinned")
    for name in names:
        found = fetch(name, args.any_version and FETCHABLE[name].client == "apt-get", _say)
        what = f"{found.documents} documents, " if found.documents else ""
        _say(f"{name} {found.version}: {what}{found.bytes / 1e6:.1f} MB")
        print(found.path)
    return 0


def show_document(args: argparse.Namespace, settings: list[str]) -> int:
    corpus = Corpus.open(args.folder)
    split = corpus.split(args.split)
    if not split.documents:
        raise BadInput(f"{args.folder}: split {args.split} is empty")
    if not 0 <= args.document < split.documents:
        raise BadInput(f"--document must be from 0 to {split.documents - 1}, got {args.document}")
    if args.tokens < 1:
        raise BadInput(f"--tokens must be at least 1, got {args.tokens}")
    document = split.document(args.document)
    tokens = [int(token) for token in document[: args.tokens]]
    words = [corpus.tokenizer.vocabulary[token] for token in tokens]
    if args.json:
        print(json.dumps(list(zip(tokens, words, strict=True))))
        return 0
    _say(f"{args.split}, document {args.document} of {split.documents}: {len(document)} tokens")
    print(visible("|".join(words).replace("\\n|", "\\n|\n")))
    return 0


def check_corpus(args: argparse.Namespace, settings: list[str]) -> int:
    corpus = Corpus.open(args.folder)
    corpus.check()
    counts = ", ".join(f"{name} {corpus.meta.splits[name].tokens}" for name in SPLITS)
    _say(f"{args.folder}: all checksums agree; tokens: {counts}")
    return 0


def _say(line: str) -> None:
    say.print(line, markup=False, highlight=False, soft_wrap=True)
