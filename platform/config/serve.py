"""The web server: daphne, with limits that it does not have.

daphne stores a whole body before it calls the application, and waits for ever for a header that drips. Here a body
past its route's cap is answered 413 as soon as it is known to be, and a request that does not arrive in time is cut.
"""

# ruff: noqa: N802 - the names are Twisted's
# mypy: disable-error-code="misc, no-untyped-call, attr-defined, arg-type, union-attr, call-arg, override"
# (Twisted's interfaces and daphne carry no types that describe what is used here.)
from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from daphne import server as daphne_server
from daphne.cli import CommandLineInterface
from daphne.http_protocol import HTTPFactory, WebRequest
from daphne.server import Server
from twisted.internet import reactor
from twisted.web import http

from config import caps

log = logging.getLogger("pulse.access")
HEADER_S = 10.0
BODY_S = 15.0
SLOWEST_BYTES_S = 32 * 1024
LINGER_S = 2.0
MESSAGE_BYTES = 64 * 1024  # from a page to us; the product's own pages send a hundred


class _Channel(http.HTTPChannel):
    """A connection on which each request has a time by which its head, and then its body, must be here."""

    _deadline: Any = None

    def connectionMade(self) -> None:
        super().connectionMade()
        self.expect_within(HEADER_S)

    def dataReceived(self, data: bytes) -> None:
        if self._deadline is None and not self.requests:
            self.expect_within(HEADER_S)
        super().dataReceived(data)

    def allHeadersReceived(self) -> None:
        length = self.length if self.length is not None else caps.cap_of(path_of(self))
        self.expect_within(BODY_S + min(length, caps.cap_of(path_of(self))) / SLOWEST_BYTES_S)
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
        self._deadline = None

    def _late(self) -> None:
        self._deadline = None
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
        if not self._refused:
            super().requestReceived(command, path, version)

    def _refuse(self) -> None:
        """Answer, then read on for a moment without keeping: a connection closed at once would lose the answer."""
        self._refused = True
        body = caps.refusal(path_of(self.channel))
        head = (
            "HTTP/1.1 413 Request Entity Too Large\r\nContent-Type: application/problem+json\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
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
        daphne_server.HTTPFactory = _Factory  # daphne looks its factory up by this name and offers no setting
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
