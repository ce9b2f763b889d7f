"""Where jobs run: processes of this machine, or Ray."""

from longreach.sweep.backends.base import Backend, BackendLost
from longreach.sweep.backends.local import LocalBackend

__all__ = ["Backend", "BackendLost", "LocalBackend"]
