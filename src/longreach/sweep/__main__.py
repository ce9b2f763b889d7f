"""`python -m longreach.sweep` is a job's process."""

import sys

from longreach.sweep.job import main

if __name__ == "__main__":
    sys.exit(main())
