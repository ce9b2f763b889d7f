"""`python -m longreach.sweeps` is a job's process."""

import sys

from longreach.errors import naming_flags
from longreach.sweeps.job import main
from longreach.system.imports import allow_working_folder

if __name__ == "__main__":
    allow_working_folder()
    with naming_flags():
        sys.exit(main())
