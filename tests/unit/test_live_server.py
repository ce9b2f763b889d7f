"""The page of `longreach watch --serve` is for this machine, read only, and for those who know its address."""

import json
import re
import socket
import subprocess
import sys
import threading
import time
from http.client import HTTPConnection

import pytest
from live_runs import advance, make_run

from longreach.errors import RunFailed
from longreach.live import Watched
from longreach.system.lock import hold
from longreach.terminal.live_server import LiveServer, serve

HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@pytest.fixture
def server(tmp_path):
    make_run(tmp_path, "a/seed-0", 300)
    server = LiveServer(Watched(tmp_path), every=0.2)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def ask(server, path, method="GET", host=None, body=None):
    """Return status, headers and content of the answer; path `~` is the secret part of the address."""
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    connection.putrequest(method, path.replace("~", server.token), skip_host=True)
    for name in [f"127.0.0.1:{server.server_port}"] if host is None else host:
        connection.putheader("Host", name)
    connection.putheader("Content-Length", str(len(body or b"")))
    connection.endheaders(body)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, dict(answer.getheaders()), content


def test_it_is_bound_to_this_machine_only(server):
    assert server.socket.getsockname()[0] == "127.0.0.1"
    assert server.address == f"http://127.0.0.1:{server.server_port}/{server.token}/"
    assert len(server.token) >= 32
    assert LiveServer(server.watched).token != server.token


def test_it_serves_the_page_and_the_state(server, tmp_path):
    status, headers, content = ask(server, "/~/")
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    policy = headers["Content-Security-Policy"]
    (nonce,) = re.findall(r"script-src 'nonce-([\w-]+)'", policy)
    assert content.count(f'<script nonce="{nonce}">'.encode()) == content.count(b"<script") == 2
    assert "default-src 'none'" in policy
    assert "unsafe-inline" not in policy.partition("script-src")[2].partition(";")[0]
    assert server.token.encode() not in content
    assert re.findall(r"script-src 'nonce-([\w-]+)'", ask(server, "/~/")[1]["Content-Security-Policy"]) != [nonce]
    status, headers, content = ask(server, "/~/state.json")
    assert (status, headers["Content-Type"]) == (200, "application/json")
    state = json.loads(content)
    assert [(run["name"], run["step"]) for run in state["runs"]] == [("a/seed-0", 300)]
    assert state["folder"] == str(tmp_path)


def test_the_state_follows_the_runs(server, tmp_path):
    with hold(tmp_path / "a/seed-0/.run.lock"):
        advance(tmp_path / "a/seed-0", 300, 400, 100)
        (run,) = json.loads(ask(server, "/~/state.json")[2])["runs"]
    assert (run["state"], run["step"], run["rate"]) == ("running", 400, 50.0)


@pytest.mark.parametrize(
    "path", ["/", "/state.json", "/wrong/", "/wrong/state.json", "/~", "/~x/", "/~/../", "/~/config.yaml",
             "/~/a/seed-0/config.yaml", "/~/state.json?x", "/~/%2e%2e/", "/\xff/", "*", "http://127.0.0.1/~/"]
)  # fmt: skip
def test_every_other_address_is_not_found(server, path):
    if path == "*" or "\xff" in path:
        with socket.create_connection(("127.0.0.1", server.server_port)) as raw:
            raw.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{server.server_port}\r\n\r\n".encode("latin-1"))
            assert raw.recv(100).startswith(b"HTTP/1.0 404 ")
        return
    status, headers, content = ask(server, path)
    assert (status, content) == (404, b"")
    assert HEADERS.items() <= headers.items()


@pytest.mark.parametrize("host", [["evil.example"], ["127.0.0.1"], [], ["127.0.0.1:1"], ["evil", "127.0.0.1:{}"]])
def test_another_host_is_refused(server, host):
    status, headers, content = ask(server, "/~/", host=[name.format(server.server_port) for name in host])
    assert (status, content) == (403, b"")
    assert HEADERS.items() <= headers.items()
    assert ask(server, "/~/", host=[f"localhost:{server.server_port}"])[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "CONNECT", "ODD"])
def test_every_other_method_is_refused(server, method):
    status, headers, content = ask(server, "/~/", method, body=b"x")
    assert (status, content, headers["Allow"]) == (405, b"", "GET")
    assert HEADERS.items() <= headers.items()


def test_requests_that_are_no_http_are_answered_without_their_words(server, capsys):
    for line in (b"<script>\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET " + b"x" * 70000 + b"\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", server.server_port)) as raw:
            raw.sendall(line)
            answer = raw.recv(4096)
        assert b"script>" not in answer
        assert b"xxx" not in answer
    assert ask(server, "/~/state.json")[0] == 200
    assert capsys.readouterr().err == ""


def test_a_client_that_goes_away_is_no_error(server, capsys):
    with socket.create_connection(("127.0.0.1", server.server_port)) as raw:
        raw.sendall(f"GET /{server.token}/ HTTP/1.1\r\nHost: {server.address.split('/')[2]}\r\n\r\n".encode())
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    assert ask(server, "/~/state.json")[0] == 200
    assert "Traceback" not in capsys.readouterr().err


def test_pages_share_a_look(server, monkeypatch):
    looks = []
    look = server.watched.look
    monkeypatch.setattr(server.watched, "look", lambda *args: looks.append(1) or look(*args))
    server.every = 100.0
    for _ in range(5):
        ask(server, "/~/state.json")
    assert len(looks) == 1


def test_a_port_that_is_taken_is_one_line(server):
    with pytest.raises(RunFailed, match=rf"cannot serve on 127.0.0.1:{server.server_port}: Address already in use"):
        serve(server.watched, server.server_port, 2.0, lambda address: None)


def test_the_address_is_on_stderr_only_and_an_interrupt_ends_the_command(tmp_path):
    make_run(tmp_path, "a/seed-0", 300)
    process = subprocess.Popen(
        [sys.executable, "-m", "longreach", "watch", str(tmp_path), "--serve"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    address = re.findall(r"^http://127\.0\.0\.1:(\d+)/([\w-]+)/  \(only", process.stderr.readline())
    ((port, token),) = address
    connection = HTTPConnection("127.0.0.1", int(port), timeout=10)
    connection.request("GET", f"/{token}/state.json")
    assert connection.getresponse().status == 200
    started = time.monotonic()
    process.send_signal(2)
    out, err = process.communicate(timeout=10)
    assert time.monotonic() - started < 5
    assert (process.returncode, out, err) == (130, "", "longreach: interrupted\n")
