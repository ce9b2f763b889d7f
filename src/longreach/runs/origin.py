"""Proof that this user started a run, so that its classes may be imported again from where they were.

Anybody may have written a run folder, and everything that it says of itself.  So the places of its classes are signed,
together with its configuration, with a key that lies among the user's own files and never in a run folder.
"""

import errno
import hashlib
import hmac
import json
import os
import secrets
from pathlib import Path
from typing import Any

from longreach.config import strings_in
from longreach.system.imports import is_installed, place_of_class

_KEY_BYTES = 32


def places_of_classes(settings: Any, run: Path) -> dict[str, str]:
    """Return, by name, the folder of each class among the settings of a run that belongs to no installed package."""
    found = {}
    for name in strings_in(settings):
        place = place_of_class(name)
        if place is not None and not is_installed(name, run):
            found[name] = place
    return found


def sign(config: bytes, places: dict[str, str]) -> str:
    """Return a signature of this user's, whose key is made where there is none.  OSError if it cannot be kept."""
    return _signature(_read_key() or _make_key(), config, places)


def is_signed(config: bytes, places: object, signature: object) -> bool:
    """Return whether this user signed a configuration with these places."""
    key = _read_key()
    if key is None or not isinstance(signature, str) or not isinstance(places, dict):
        return False
    return hmac.compare_digest(_signature(key, config, places).encode(), signature.encode(errors="replace"))


def _signature(key: bytes, config: bytes, places: dict[str, str]) -> str:
    content = json.dumps([hashlib.sha256(config).hexdigest(), places], sort_keys=True)
    return hmac.new(key, content.encode(), "sha256").hexdigest()


def _key_path() -> Path:
    for folder in (os.environ.get("XDG_STATE_HOME", ""), os.path.expanduser("~/.local/state")):
        if os.path.isabs(folder):  # a relative one would lie in the working folder, which may be anybody's
            return Path(folder) / "longreach" / "key"
    raise OSError(errno.ENOENT, "there is no home folder", "~/.local/state/longreach/key")


def _read_key() -> bytes | None:
    try:
        key = _key_path().read_bytes()
    except OSError:
        return None  # there is none yet, or none that this user can read: nothing is signed with it
    return key if len(key) == _KEY_BYTES else None


def _make_key() -> bytes:
    """Write a key that nobody else can read, unless another process has just done so."""
    path = _key_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".key.{os.getpid()}.part")
    temporary.unlink(missing_ok=True)
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(secrets.token_bytes(_KEY_BYTES))
        os.link(temporary, path)
    except FileExistsError:
        pass  # another process was faster
    finally:
        temporary.unlink(missing_ok=True)
    key = _read_key()
    if key is None:
        raise OSError(errno.EINVAL, "it is no key of longreach", str(path))
    return key
