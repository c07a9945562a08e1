"""The web server: daphne, with limits that it does not have.

daphne stores a whole body before it calls the application, and waits for ever for a header that drips. Here a body
past its route's cap is answered 413 as soon as it is known to be, and a request that does not arrive in time is cut.
"""

# ruff: noqa: N802, N803 - the names are Twisted's
# mypy: disable-error-code="misc, no-untyped-call, attr-defined, arg-type, union-attr, call-arg, override"
# (Twisted's interfaces and daphne carry no types that describe what is used here.)
from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

from daphne import server as daphne_server
from daphne.cli import CommandLineInterface
from daphne.http_protocol import HTTPFactory, WebRequest
from daphne.server import Server
from daphne.ws_protocol import WebSocketFactory, WebSocketProtocol
from twisted.internet import reactor
from twisted.web import http

from config import caps

log = logging.getLogger("pulse.access")
HEADER_S = 10.0
BODY_S = 15.0  # in each so long a time a body must have come, or a good piece of it
SLOWEST_BYTES_S = 32 * 1024
LINGER_S = 2.0
MESSAGE_BYTES = 64 * 1024  # from a page to us; the product's own pages send a hundred
MESSAGES_WAITING = 64  # of one socket, that the product has not read yet; beyond them no more is taken from the wire
LOOK_AGAIN_S = 0.05


class _Pace:
    """How fast a body comes. A length that was promised earns no time: only bytes that came do."""

    LOOKS = 3  # in each BODY_S

    def __init__(self) -> None:
        self._looks = 0
        self._bytes = 0
        self._last = time.monotonic()

    def came(self, count: int) -> None:
        self._bytes += count
        self._last = time.monotonic()

    def too_slow(self) -> bool:
        """Asked LOOKS times in BODY_S: silent for most of it, or less in the whole of it than the slowest sender."""
        self._looks = (self._looks + 1) % self.LOOKS
        if time.monotonic() - self._last >= BODY_S * (self.LOOKS - 1) / self.LOOKS:
            return True
        slow = self._looks == 0 and self._bytes < BODY_S * SLOWEST_BYTES_S
        if self._looks == 0:
            self._bytes = 0
        return slow


class _Channel(http.HTTPChannel):
    """A connection on which each request has a time by which its head must be here, and a pace for its body."""

    _deadline: Any = None
    _pace: _Pace | None = None

    def connectionMade(self) -> None:
        super().connectionMade()
        self.expect_within(HEADER_S)

    def dataReceived(self, data: bytes) -> None:
        if self._deadline is None and not self.requests:
            self.expect_within(HEADER_S)
        if self._pace is not None:
            self._pace.came(len(data))
        super().dataReceived(data)

    def allHeadersReceived(self) -> None:
        self.arrived()
        self._pace = _Pace()
        self._deadline = reactor.callLater(BODY_S / _Pace.LOOKS, self._look)
        super().allHeadersReceived()

    def allContentReceived(self) -> None:
        self.arrived()
        super().allContentReceived()

    def connectionLost(self, reason: Any) -> None:
        self.arrived()
        super().connectionLost(reason)

    def expect_within(self, seconds: float) -> None:
        self.arrived()
        self._deadline = reactor.callLater(seconds, self._late)

    def arrived(self) -> None:
        if self._deadline is not None and self._deadline.active():
            self._deadline.cancel()
        self._deadline = self._pace = None

    def _look(self) -> None:
        if self._pace is None or self._pace.too_slow():
            self._late()
        else:
            self._deadline = reactor.callLater(BODY_S / _Pace.LOOKS, self._look)

    def _late(self) -> None:
        self._deadline = self._pace = None
        self.transport.write(b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
        self.loseConnection()


class _Request(WebRequest):
    """A request that counts its body while it arrives."""

    _received = 0
    _refused = False

    def gotLength(self, length: int | None) -> None:
        if length is not None and length > caps.cap_of(path_of(self.channel)):
            super().gotLength(0)
            self._refuse()
        else:
            super().gotLength(length)

    def handleContentChunk(self, data: bytes) -> None:
        self._received += len(data)
        if not self._refused and self._received > caps.cap_of(path_of(self.channel)):
            self._refuse()
        if not self._refused:
            super().handleContentChunk(data)

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:
        # Twisted would parse forms, and answer those it cannot read by itself: bodies are the product's to read.
        self._parsePOSTFormSubmission = False
        if not self._refused:
            super().requestReceived(command, path, version)

    def _refuse(self) -> None:
        """Answer, then read on for a moment without keeping: a connection closed at once would lose the answer."""
        self._refused = True
        body, request_id = caps.refusal(path_of(self.channel))
        head = (
            "HTTP/1.1 413 Request Entity Too Large\r\nContent-Type: application/problem+json\r\n"
            f"X-Request-Id: {request_id}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        self.channel.transport.write(head.encode() + body)
        self.channel.arrived()
        reactor.callLater(LINGER_S, self.channel.forceAbortClient)


class _Factory(HTTPFactory):
    protocol = staticmethod(lambda: http._GenericHTTPChannelProtocol(_Channel()))  # noqa: SLF001 - has no other door

    def buildProtocol(self, addr: Any) -> Any:
        protocol = super().buildProtocol(addr)
        protocol.requestFactory = _Request
        return protocol


class _Socket(WebSocketProtocol):
    """A page's socket that is not read on while the product has not taken what came."""

    _paused = False

    def onMessage(self, payload: bytes, isBinary: bool) -> None:
        super().onMessage(payload, isBinary)
        if not self._paused and self.application_queue.qsize() > MESSAGES_WAITING:
            self._paused = True
            self.transport.pauseProducing()
            reactor.callLater(LOOK_AGAIN_S, self._go_on)

    def _go_on(self) -> None:
        if self.state == self.STATE_OPEN and self.application_queue.qsize() > MESSAGES_WAITING // 2:
            reactor.callLater(LOOK_AGAIN_S, self._go_on)
        else:
            self._paused = False
            self.transport.resumeProducing()


class _Sockets(WebSocketFactory):
    protocol = _Socket


def _log_request(protocol: str, action: str, details: Mapping[str, Any]) -> None:
    """One line a request, through the product's own log: without the query, where tokens get lost."""
    if protocol == "http" and action == "complete":
        path = str(details["path"]).split("?", 1)[0]
        milliseconds = round(details["time_taken"] * 1000)
        log.info("%s %s %s %s in %d ms", details["client"], details["method"], path, details["status"], milliseconds)


class _Server(Server):
    def run(self) -> None:
        self.action_logger = _log_request  # daphne's own writes whole addresses, past every filter
        self.websocket_max_message_size = self.websocket_max_frame_size = MESSAGE_BYTES
        daphne_server.HTTPFactory = _Factory  # daphne looks its factories up by these names and offers no setting
        daphne_server.WebSocketFactory = _Sockets
        super().run()


class _CommandLine(CommandLineInterface):
    server_class = _Server


def serve(*, host: str, port: int, unix_socket: str = "") -> None:
    """Serve the product until a signal ends the process."""
    where = ["-u", unix_socket] if unix_socket else ["-b", host, "-p", str(port)]
    _CommandLine().run([*where, "--no-server-name", "config.asgi:application"])


def path_of(channel: Any) -> str:
    """The path that the request line named, before the request itself knows it."""
    path: bytes = getattr(channel, "_path", b"") or b""
    return path.split(b"?", 1)[0].decode("latin-1")
