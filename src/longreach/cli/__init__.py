"""The command line: one short file per verb."""

import time

ENTERED = time.perf_counter()
"""When the command line was imported."""
