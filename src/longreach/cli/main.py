"""The command line.  Exit codes: 0 ok, 1 failed, 2 bad usage or bad input, 130 interrupted."""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from longreach.cli.console import say
from longreach.cli.dotted import take_settings
from longreach.errors import BadInput, RunFailed
from longreach.imports import allow_working_folder, own_the_process
from longreach.registry import nearest
from longreach.version import __version__

_VERBS = (
    "run",
    "sweep",
    "eval",
    "predict",
    "inspect",
    "export",
    "show",
    "report",
    "results",
    "list",
    "bench",
    "theory",
    "diagnose",
    "probe",
    "text",
)
"""Each is a file beside this one."""


def parser(only: str = "") -> argparse.ArgumentParser:
    """`only` one verb, if it is one: the files of the others, with all that they import, are then left alone."""
    top = argparse.ArgumentParser(
        prog="longreach",
        description="Trained short, how far does this transformer reach, and how do I make it reach farther?",
        epilog="Exit codes: 0 ok, 1 failed, 2 bad usage or bad input, 130 interrupted (a run can be resumed)."
        "  LONGREACH_DEBUG=1 shows tracebacks.",
    )
    top.add_argument("--version", action="version", version=f"longreach {__version__}")
    verbs = top.add_subparsers(metavar="VERB", required=True)
    for verb in (only,) if only in _VERBS else _VERBS:
        import_module(f"longreach.cli.{verb}").add(verbs)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Every expected failure is one line on stderr, and so is every mistake in a file."""
    if arguments is None:
        own_the_process()
    allow_working_folder()  # so that `my_task.MyTask` beside a recipe can be named in it
    plain, settings = take_settings(sys.argv[1:] if arguments is None else arguments)
    args, rest = parser(only=plain[0] if plain else "").parse_known_args(plain)
    settings = [*rest, *settings]
    try:
        if settings and not args.takes_settings:
            known = [f"--{name.replace('_', '-')}" for name in vars(args) if name not in ("verb", "takes_settings")]
            raise BadInput(f"unknown argument {settings[0]!r}{nearest(settings[0], known)}")
        return int(args.verb(args, settings))
    except (BadInput, RunFailed) as error:
        if os.environ.get("LONGREACH_DEBUG"):
            raise
        for line in error.lines:
            say.print(f"longreach: {' '.join(line.split())}", markup=False, highlight=False, soft_wrap=True)
        return 2 if isinstance(error, BadInput) else 1
    except OSError as error:  # a full disk, a folder that cannot be written
        if os.environ.get("LONGREACH_DEBUG"):
            raise
        place = f" {error.filename}" if error.filename else ""
        say.print(f"longreach: cannot read or write{place}: {error.strerror}", markup=False, highlight=False)
        return 1
    except KeyboardInterrupt:
        say.print("longreach: interrupted")
        return 130


if __name__ == "__main__":
    sys.exit(main())
