"""Where jobs run: processes of this machine, or Ray."""

from longreach.sweeps.backends.base import Backend, BackendLost
from longreach.sweeps.backends.local import LocalBackend

__all__ = ["Backend", "BackendLost", "LocalBackend"]
