"""The age of this process."""

import os
import time
from pathlib import Path


def process_age(stat: Path = Path("/proc/self/stat")) -> float | None:
    """Return the seconds since this process was started, to a hundredth; None where the system does not say.

    Linux gives the start in ticks since boot.  No other system has this file.
    """
    try:
        # the second field is the program's name in parentheses, which may contain anything
        after_name = stat.read_text().rpartition(")")[2].split()
        started = int(after_name[19]) / os.sysconf("SC_CLK_TCK")
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - started
    except (OSError, ValueError, IndexError, AttributeError):
        return None
    return age if age >= 0 else None
