"""The page of `longreach watch --serve`: read only, for browsers of this machine that know its address.

It binds to 127.0.0.1.  The address holds a random token, and requests under another host name are refused, so that no
web page can read along (DNS rebinding).  Nothing that a client sends becomes a path of a file.
"""

import hmac
import json
import secrets
import sys
import threading
import time
from collections.abc import Callable
from functools import cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from longreach.errors import RunFailed
from longreach.live import Watched
from longreach.version import PACKAGE

HOST = "127.0.0.1"
_RUNS = 200
"""In the state; the others are counted."""
_POINTS = 150
"""Of a curve in the state."""
_TEMPLATE = PACKAGE / "terminal" / "live.html"
_PLOTLY = PACKAGE / "reports" / "vendor" / "plotly-cartesian.min.js"
_SECONDS = 10.0
"""Until a client that sends nothing is dropped."""


class LiveServer(ThreadingHTTPServer):
    """Serves a page and the state of a folder under a secret address."""

    daemon_threads = True

    def __init__(self, watched: Watched, port: int = 0, every: float = 2.0) -> None:
        self.watched, self.every = watched, every
        self.token = secrets.token_urlsafe(24)
        self._lock = threading.Lock()
        self._state, self._until = b"", 0.0
        super().__init__((HOST, port), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report an error on stderr, unless the client is gone."""
        if not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):
            super().handle_error(request, client_address)

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.server_port}/{self.token}/"

    def page(self, nonce: str) -> bytes:
        """Return the page; only its own scripts, which carry the nonce, may run."""
        return _page().replace("%NONCE%", nonce).replace("%EVERY%", json.dumps(self.every)).encode()

    def state(self) -> bytes:
        """Return the state of the folder as JSON, looked at most every few seconds however many pages are open."""
        with self._lock:
            if time.monotonic() >= self._until:
                start = time.monotonic()
                self._state = json.dumps(self.watched.look(_RUNS, _POINTS).to_json()).encode()
                self._until = time.monotonic() + max(self.every / 2, 4 * (time.monotonic() - start))
            return self._state


@cache
def _page() -> str:
    return _TEMPLATE.read_text(encoding="utf-8").replace("/*PLOTLY*/", _PLOTLY.read_text(encoding="utf-8"))


class _Handler(BaseHTTPRequestHandler):
    server: LiveServer
    server_version, sys_version = "longreach", ""
    timeout = _SECONDS

    def do_GET(self) -> None:
        if not self._is_ours():
            self._answer(HTTPStatus.FORBIDDEN)
            return
        token, slash, name = self.path.removeprefix("/").partition("/")
        if not hmac.compare_digest(token.encode(), self.server.token.encode()) or not slash:
            self._answer(HTTPStatus.NOT_FOUND)
        elif name == "":
            nonce = secrets.token_urlsafe(16)
            self._answer(HTTPStatus.OK, self.server.page(nonce), "text/html; charset=utf-8", nonce)
        elif name == "state.json":
            self._answer(HTTPStatus.OK, self.server.state(), "application/json")
        else:
            self._answer(HTTPStatus.NOT_FOUND)

    def __getattr__(self, name: str) -> Callable[[], None]:
        """Answer every other method."""
        if name.startswith("do_"):
            return self._refuse
        raise AttributeError(name)

    def _refuse(self) -> None:
        self._answer(HTTPStatus.METHOD_NOT_ALLOWED)

    def _is_ours(self) -> bool:
        """Return whether the request names this machine as its host."""
        hosts = self.headers.get_all("Host") or []
        return hosts in ([f"{name}:{self.server.server_port}"] for name in (HOST, "localhost"))

    def _answer(
        self, status: HTTPStatus, content: bytes = b"", kind: str = "text/plain; charset=utf-8", nonce: str = ""
    ) -> None:
        scripts = f"script-src 'nonce-{nonce}'; " if nonce else ""
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header(
            "Content-Security-Policy",
            f"default-src 'none'; {scripts}style-src 'unsafe-inline'; img-src data:; connect-src 'self'; "
            "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        )
        if status == HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET")
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(content)
        self.close_connection = True

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer a request that is no HTTP, without repeating a word of it."""
        self._answer(HTTPStatus(code))

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: every line would hold the token."""


def serve(watched: Watched, port: int, every: float, announce: Callable[[str], None]) -> None:
    """Serve until KeyboardInterrupt; `announce` is called once with the address."""
    try:
        server = LiveServer(watched, port, every)
    except OSError as error:
        raise RunFailed(f"cannot serve on {HOST}:{port}: {error.strerror}") from error
    with server:
        announce(server.address)
        server.serve_forever(poll_interval=0.2)
