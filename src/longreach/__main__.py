"""`python -m longreach`: the command line."""

import os
import sys

if __name__ == "__main__":
    # Python put the working folder first: off with it before anything is imported that a file there could stand in for
    sys.path[:] = [entry for entry in sys.path if entry and os.path.abspath(entry) != os.getcwd()]

    from longreach.cli.main import main

    sys.exit(main())
