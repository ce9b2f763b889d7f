"""`python -m longreach.sweep` is a job's process."""

import sys

from longreach.imports import allow_working_folder
from longreach.sweep.job import main

if __name__ == "__main__":
    allow_working_folder()
    sys.exit(main())
