"""The two ways a command can fail, so that the command line can answer each with a clear line."""


class BadInput(ValueError):
    """What the user asked for cannot be done as asked (exit code 2); several mistakes have a line each."""

    def __init__(self, *lines: str) -> None:
        super().__init__("; ".join(lines))
        self.lines = lines


class RunFailed(RuntimeError):
    """The request was fine but the work could not be finished (exit code 1); several failed runs have a line each."""

    def __init__(self, *lines: str) -> None:
        super().__init__("; ".join(lines))
        self.lines = lines
