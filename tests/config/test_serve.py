"""The server itself: what is too large or too slow is cut before it is stored. A real process, real sockets."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).resolve().parents[2]
SERVER = """
import sys
sys.path[:0] = [{root!r}, {root!r} + "/platform"]
import django
django.setup()
from config import serve
serve.HEADER_S, serve.BODY_S, serve.SLOWEST_BYTES_S = 1.0, 1.0, 10**9
serve.serve(host="127.0.0.1", port={port})
"""


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("log") / "server"


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory, log: Path) -> Iterator[int]:
    with serving(SERVER, tmp_path_factory.mktemp("served"), log) as number:
        yield number


@contextmanager
def serving(program: str, data: Path, log: Path | None = None) -> Iterator[int]:
    """A process of the program, which listens at the port that is given."""
    log = log or data / "server-log"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number = int(probe.getsockname()[1])
    environment = {
        "PATH": os.environ["PATH"],
        "DJANGO_SETTINGS_MODULE": "config.settings",
        "PULSE_DATA": str(data),
        "PULSE_PORT": str(number),
        "PULSE_HOOK_BODY_MAX": "100000",
        "TMPDIR": str(data),
    }
    out = log.open("wb")
    server = subprocess.Popen(
        [sys.executable, "-c", program.format(root=str(ROOT), port=number)], env=environment, stdout=out, stderr=out
    )
    try:
        wait_for(number, server, log)
        yield number
    finally:
        server.kill()
        server.wait()
        out.close()


def wait_for(port: int, server: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(300):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            assert server.poll() is None, log.read_text()
            time.sleep(0.1)
        else:
            return
    pytest.fail("the server did not start: " + log.read_text())


def talk(port: int, *parts: bytes, wait: float = 10) -> bytes:
    """Send the parts, and read until the server closes or is silent for `wait` seconds."""
    with socket.create_connection(("127.0.0.1", port), wait) as connection:
        for part in parts:
            try:
                connection.sendall(part)
            except OSError:
                break
        received = b""
        try:
            while chunk := connection.recv(65536):
                received += chunk
        except OSError:
            pass
        return received


def test_it_serves(port):
    answer = httpx.get(f"http://127.0.0.1:{port}/healthz")
    assert answer.status_code == 200
    assert "daphne" not in str(answer.headers).lower()


def test_its_log_has_a_line_a_request_without_queries_and_keys(port, log):
    httpx.post(f"http://127.0.0.1:{port}/hooks/canary-hook-key?token=canary-in-query", content=b"{}")
    httpx.get(f"http://127.0.0.1:{port}/healthz?canary-in-query")
    for _ in range(100):
        if "GET /healthz 200" in log.read_text():
            break
        time.sleep(0.05)
    assert "GET /healthz 200" in log.read_text()
    assert "POST /hooks/*** " in log.read_text()
    assert "canary" not in log.read_text()


def test_a_declared_body_that_is_too_large_is_answered_before_it_is_sent(port):
    head = b"POST /hooks/k HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 10000000\r\n\r\n"
    assert talk(port, head).startswith(b"HTTP/1.1 413 ")


def test_an_endless_chunked_body_is_cut_at_the_cap(port):
    head = b"POST /hooks/k HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunk = b"8000\r\n" + b"x" * 0x8000 + b"\r\n"
    answer = talk(port, head, *[chunk] * 300)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 413 ")  # a reset may swallow the answer, never the cut


def test_a_body_within_the_cap_reaches_the_product(port):
    answer = httpx.post(f"http://127.0.0.1:{port}/hooks/no-such-key", content=b"x" * 99_000)
    assert answer.status_code != 413


def test_a_head_that_drips_is_cut(port):
    started = time.monotonic()
    answer = talk(port, b"GET / HTTP/1.1\r\nHost: a\r\n", wait=20)
    assert answer.startswith(b"HTTP/1.1 408")
    assert time.monotonic() - started < 15


def test_a_connection_that_says_nothing_is_cut(port):
    assert talk(port, wait=20).startswith(b"HTTP/1.1 408")


def test_a_body_that_never_comes_is_cut(port):
    answer = talk(port, b"POST /hooks/k HTTP/1.1\r\nHost: a\r\nContent-Length: 50\r\n\r\nhalf", wait=20)
    assert answer.startswith(b"HTTP/1.1 408")


def drip(port: int, head: bytes, piece: bytes) -> tuple[bytes, float]:
    """Send a piece every moment; what was answered, and after how long."""
    started = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), 20) as connection:
        connection.sendall(head)
        connection.settimeout(0.1)
        while time.monotonic() - started < 15:
            try:
                connection.sendall(piece)
                return connection.recv(1000), time.monotonic() - started
            except TimeoutError:
                continue
    return b"", time.monotonic() - started


@pytest.mark.parametrize(
    ("length", "piece"),
    [(b"Content-Length: 50000000", b"x"), (b"Transfer-Encoding: chunked", b"1\r\nx\r\n")],
)
def test_a_long_body_that_drips_is_cut_whatever_length_it_promised(port, length, piece):
    head = b"POST /api/v1/workflows/import HTTP/1.1\r\nHost: a\r\n" + length + b"\r\n\r\n"
    answer, took = drip(port, head, piece)
    assert answer.startswith(b"HTTP/1.1 408")
    assert took < 10


def test_a_form_that_cannot_be_parsed_reaches_the_product(port):
    answer = httpx.post(
        f"http://127.0.0.1:{port}/hooks/no-such-key",
        content=b"no form",
        headers={"content-type": "multipart/form-data"},
    )
    assert answer.headers["content-type"] == "application/problem+json"  # nobody's empty 400


def test_a_413_has_the_shape_of_every_error_and_its_request_id(port):
    answer = talk(port, b"POST /hooks/k HTTP/1.1\r\nHost: a\r\nContent-Length: 10000000\r\n\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    told = json.loads(body)
    assert told["title"] == "Too large"
    assert f"X-Request-Id: {told['request_id']}".encode() in head


DEAF = """
import asyncio, sys
sys.path[:0] = [{root!r}, {root!r} + "/platform"]
import django
django.setup()
from config import serve
async def deaf(scope, receive, send):
    await receive()
    await send({{"type": "websocket.accept"}})
    await asyncio.sleep(3600)
serve._Server(deaf, endpoints=["tcp:{port}:interface=127.0.0.1"], signal_handlers=False).run()
"""


def pour(into: socket.socket, data: memoryview) -> None:
    while data:
        data = data[into.send(data) :]


def test_a_socket_is_not_read_faster_than_the_product_takes_its_messages(tmp_path):
    with serving(DEAF, tmp_path) as port, socket.create_connection(("127.0.0.1", port), 5) as page:
        page.sendall(
            b"GET /ws/live HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        assert page.recv(1000).startswith(b"HTTP/1.1 101")
        frame = b"\x81\xfe\x0f\xa0" + b"\0" * 4 + b"x" * 4000
        page.settimeout(1)
        with pytest.raises(TimeoutError):
            pour(page, memoryview(frame * 16_000))  # 64 MB; what buffers on the way may hold is less


def test_a_connection_that_is_kept_serves_another_request(port):
    with httpx.Client() as client:
        for _ in range(3):
            assert client.get(f"http://127.0.0.1:{port}/healthz").status_code == 200
            time.sleep(0.6)


def handshake(port: int, origin: str) -> bytes:
    """The first line that the server answers to a socket's opening from a page of this origin."""
    told = f"Origin: {origin}\r\n" if origin else ""
    head = (
        f"GET /ws/live HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n{told}"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    return talk(port, head.encode(), wait=5).split(b"\r\n")[0]


def test_a_socket_without_or_with_a_foreign_origin_is_refused(port):
    for origin in ("", "http://evil.example", "null", f"http://127.0.0.1:{port + 1}", f"https://127.0.0.1:{port}"):
        assert handshake(port, origin).startswith(b"HTTP/1.1 403"), origin


def test_a_socket_of_our_own_pages_is_opened(port):
    assert handshake(port, f"http://127.0.0.1:{port}").startswith(b"HTTP/1.1 101")
