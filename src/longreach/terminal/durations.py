"""Seconds as text."""


def duration(seconds: float) -> str:
    """Format seconds: 1.5 h, 12 min, 40 s."""
    for size, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"
