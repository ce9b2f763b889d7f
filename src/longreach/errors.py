"""The two ways a command can fail, so that the command line can answer each with one clear line."""


class BadInput(ValueError):
    """What the user asked for cannot be done as asked (exit code 2)."""


class RunFailed(RuntimeError):
    """The request was fine but the work could not be finished (exit code 1)."""
