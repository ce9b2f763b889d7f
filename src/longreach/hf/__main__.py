"""Run an installed program that uses transformers such that it can load models of longreach.

python -m longreach.hf lm_eval --model hf --model_args pretrained=FOLDER ...
"""

import sys
from importlib.metadata import entry_points

from longreach.system.imports import own_the_process


def main() -> int:
    """Run the program that the first argument names; return its exit code."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    found = entry_points(group="console_scripts", name=name)
    if not found:
        print(f"python -m longreach.hf PROGRAM ...: no installed program is called {name!r}", file=sys.stderr)
        return 2
    own_the_process()  # modules of the working folder stand in for none of an installed package
    sys.argv = sys.argv[1:]
    return next(iter(found)).load()() or 0


if __name__ == "__main__":
    sys.exit(main())
