"""Commands start quickly: help imports nothing heavy, and the first step imports no report."""

import argparse
import inspect
import subprocess
import sys
import textwrap
from importlib import import_module

from longreach.cli.facts import facts, gather_facts
from longreach.cli.main import parser

HEAVY = ("torch", "numpy", "matplotlib", "pyarrow", "rich", "yaml", "jaxtyping")


def every_parser():
    """Return the parser of every verb and of what is below it, by its words."""
    found, left = {}, [((), parser())]
    while left:
        words, one = left.pop()
        found[words] = one
        for action in one._actions:
            if isinstance(action, argparse._SubParsersAction):
                left += [((*words, word), below) for word, below in action.choices.items()]
    return found


def in_python(script, *arguments):
    """Run a script in a fresh process, and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.split("\n")


def heavy_after(commands):
    """Return, by command, its exit code and the heavy modules that are loaded after it, all in one process."""
    script = f"""
    import contextlib, io, sys
    from longreach.cli.main import main
    for command in {commands!r}:
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()):
            try:
                code = main(command)
            except SystemExit as end:
                code = end.code
        print(code, len(out.getvalue()) > 0, *({{name.partition(".")[0] for name in sys.modules}} & set({HEAVY!r})))
    """
    return dict(zip(map(tuple, commands), in_python(script), strict=False))


def test_no_help_imports_torch():
    commands = [[*words, "--help"] for words in every_parser()]
    assert len(commands) > 30
    assert {words: line for words, line in heavy_after(commands).items() if line != "0 True"} == {}


def test_the_version_and_usage_errors_import_no_torch():
    assert set(heavy_after([["--version"]]).values()) == {"0 True"}
    mistakes = [
        [],
        ["rnu"],
        ["show", "copy"],
        ["show", "copy", "--length", "x"],
        ["bench"],
        ["probe", "m", "--method=x"],
    ]
    assert {words: line for words, line in heavy_after(mistakes).items() if line != "2 False"} == {}


def test_every_parser_names_a_function():
    below = {words[:-1] for words in every_parser()}
    for words, one in every_parser().items():
        if words in below:
            continue
        module, _, name = one.get_default("verb").rpartition(".")
        function = getattr(import_module(module), name)
        assert list(inspect.signature(function).parameters) == ["args", "settings"], words
        assert isinstance(one.get_default("takes_settings"), bool)


def test_the_facts_that_help_quotes_are_up_to_date():
    assert facts() == gather_facts(), "run `make facts`"


def test_the_first_step_of_a_run_imports_nothing_that_it_does_not_need(tmp_path):
    script = """
    import sys
    from longreach.training.step import Step

    step = Step.__call__

    def report(self, number):
        loss = step(self, number)
        names = ["matplotlib", "jinja2", "PIL", "torch._dynamo", "sympy", "tensorboard", "transformers"]
        print(len(sys.modules) > 500, *(name for name in names if name in sys.modules))
        sys.stdout.flush()
        raise SystemExit(0)

    Step.__call__ = report
    from longreach.cli.main import main
    main(["run", "demo", "--device", "cpu", "--out", sys.argv[1]])
    """
    assert in_python(script, str(tmp_path / "run"))[0] == "True"
