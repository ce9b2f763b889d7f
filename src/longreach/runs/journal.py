"""What happened to a run, and when: `log.jsonl`, one object per line, for people and programs that come later."""

import json
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from longreach.errors import RunFailed
from longreach.system.files import append_line

Level = Literal["info", "warning", "error"]


class Journal:
    """Of one run, from one start to its end; later starts add to it.  As a context it notes what broke the run."""

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self._path = folder / "log.jsonl"
        self._say = say
        self._started = time.monotonic()

    def note(self, event: str, level: Level = "info", **fields: Any) -> None:
        """One line: time, level, event, seconds since this start, and what else there is to know."""
        about = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "level": level, "event": event}
        seconds = round(time.monotonic() - self._started, 3)
        append_line(self._path, json.dumps({**about, "seconds": seconds, **fields}))

    def warn(self, message: str) -> None:
        self.tell("warning", message, "warning")

    def tell(self, event: str, message: str, level: Level = "info", **fields: Any) -> None:
        """Note it, and say it to whoever watches."""
        self.note(event, level, message=message, **fields)
        self._say(message)

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, *_: object) -> None:
        if kind is not None:
            with suppress(RunFailed):  # a disk that is too full for this line may be what broke the run: that is told
                self.note("failed", "error", message=f"{kind.__name__}: {error}")
