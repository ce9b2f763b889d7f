"""`python -m longreach`: the command line."""

import sys

from longreach.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
