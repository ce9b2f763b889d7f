"""The command line.  Exit codes: 0 ok, 1 failed, 2 bad usage or bad input, 130 interrupted, 143 terminated.

Help and usage errors import nothing heavy: parsers lie in `cli/parsers`, and the module of a verb is imported when the
verb runs.
"""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from importlib import import_module

from longreach.cli.dotted import take_settings
from longreach.errors import BadInput, RunFailed, lacks_memory, naming_flags, nearest
from longreach.system.collection import no_collection
from longreach.system.imports import allow_working_folder, own_the_process
from longreach.system.interrupts import catch_interrupts, stop_seconds
from longreach.version import __version__

_VERBS = (
    "run",
    "sweep",
    "watch",
    "eval",
    "predict",
    "inspect",
    "export",
    "extend",
    "init",
    "show",
    "dataset",
    "check",
    "report",
    "results",
    "list",
    "bench",
    "theory",
    "diagnose",
    "probe",
    "text",
    "reach",
)
"""Each has a parser, a file in `cli/parsers`, and a file beside this one."""

_WITH_LESS_MEMORY = {
    "run": "a smaller model, train.batch_size or execution.batch_tokens",
    "sweep": "a smaller model, train.batch_size or execution.batch_tokens",
    "watch": "a folder with fewer runs",
    "eval": "a smaller --batch-tokens, or shorter --lengths,",
    "predict": "a shorter prompt or a smaller --max-tokens",
    "inspect": "a shorter --length or prompt",
    "extend": "a smaller --batch-size or --window, or --lora,",
    "show": "a shorter --length",
    "dataset": "shorter --lengths or --no-dependencies",
    "check": "fewer --samples or shorter --lengths",
    "report": "fewer runs at once",
    "results": "fewer runs at once, or --where,",
    "bench": "a smaller workload",
    "diagnose": "a shorter --target or fewer --samples",
    "probe": "a smaller --memory or a shorter --length",
    "text": "a smaller --batch-tokens, --memory or number of --workers",
    "reach": "smaller --contexts or --batch-tokens, or --precision bf16,",
}
"""What needs less memory, by verb."""


def parser(only: str = "") -> argparse.ArgumentParser:
    """Return the parser of all verbs, or of `only` one, if it is one."""
    top = argparse.ArgumentParser(
        prog="longreach",
        description="Trained short, how far does this transformer reach, and how do I make it reach farther?",
        epilog="Exit codes: 0 ok, 1 failed, 2 bad usage or bad input, 130 interrupted, 143 terminated"
        " (a run can be resumed).  Ctrl-C and SIGTERM stop within 5 s, a second one at once.  LONGREACH_DEBUG=1 shows"
        " tracebacks.",
    )
    top.add_argument("--version", action="version", version=f"longreach {__version__}")
    verbs = top.add_subparsers(metavar="VERB", required=True)
    for verb in (only,) if only in _VERBS else _VERBS:
        import_module(f"longreach.cli.parsers.{verb}").add(verbs)
    return top


def _flags(parser: argparse.ArgumentParser, words: Sequence[str]) -> list[str]:
    """Return the long flags of the verb that the words name, such as `text sparsity`."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            named = next((number for number, word in enumerate(words) if word in action.choices), None)
            return [] if named is None else _flags(action.choices[words[named]], words[named + 1 :])
    return [flag for action in parser._actions for flag in action.option_strings if flag.startswith("--")]


_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a verb and return its exit code; SIGINT and SIGTERM end it within seconds."""
    try:
        seconds = stop_seconds()
    except BadInput as error:
        _complain(str(error))
        return 2
    # only a process of its own may be ended after this function has returned
    with catch_interrupts(_complain, seconds, linger=arguments is None) as interrupts:
        try:
            with naming_flags():
                code = _run_verb(arguments)
        except KeyboardInterrupt:
            _complain("interrupted")
            code = _INTERRUPTED
        return interrupts.exit_code() if code == _INTERRUPTED else code


def _run_verb(arguments: Sequence[str] | None) -> int:
    """Every expected failure is one line on stderr, and so is every mistake in a file."""
    if arguments is None:
        own_the_process()
    allow_working_folder()  # so that `my_task.MyTask` beside a recipe can be named in it
    plain, settings = take_settings(sys.argv[1:] if arguments is None else arguments)
    every = parser(only=plain[0] if plain else "")
    args, rest = every.parse_known_args(plain)
    settings = [*rest, *settings]
    try:
        if settings and not args.takes_settings:
            raise BadInput(f"unknown argument {settings[0]!r}{nearest(settings[0], _flags(every, plain))}")
        with no_collection() if arguments is None else nullcontext():  # only a process of its own keeps its imports
            verb = _verb(args.verb)
        return verb(args, settings)
    except (BadInput, RunFailed) as error:
        if os.environ.get("LONGREACH_DEBUG"):
            raise
        for line in error.lines:
            _complain(line)
        return 2 if isinstance(error, BadInput) else 1
    except OSError as error:  # a full disk, a folder that cannot be written
        if os.environ.get("LONGREACH_DEBUG"):
            raise
        place = f" {error.filename}" if error.filename else ""
        _complain(f"cannot read or write{place}: {error.strerror or error}")
        return 1
    except (RuntimeError, MemoryError) as error:
        if os.environ.get("LONGREACH_DEBUG") or not lacks_memory(error):
            raise
        _complain(f"out of memory: {_WITH_LESS_MEMORY.get(plain[0], 'a smaller model')} needs less")
        return 1


def _verb(path: str) -> Callable[[argparse.Namespace, list[str]], int]:
    """Import the function of a verb, such as `longreach.cli.run.run`."""
    module, _, name = path.rpartition(".")
    function: Callable[[argparse.Namespace, list[str]], int] = getattr(import_module(module), name)
    return function


def _complain(line: str) -> None:
    from longreach.terminal.console import say  # rich takes a while to load, and most commands have no complaint

    say.print(f"longreach: {' '.join(line.split())}", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
