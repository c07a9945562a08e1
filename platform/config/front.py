"""The outermost ASGI layer: whom to believe about the client, and how large a body may be.

Django reads a whole body into a temporary file before any middleware, sign-in or view is asked; so the limit is here.
The product's own server (`config.serve`) holds to the same limits earlier still; this layer holds under any server.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Any

from config import caps

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

UNIX_SOCKET = "unix"
"""Stands for a client that came over a Unix socket and has no address of its own."""
FORWARDED = {b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host", b"x-forwarded-port", b"forwarded"}


class Front:
    """`proxies`: the addresses whose X-Forwarded-For and -Proto are believed; from others they are dropped."""

    def __init__(self, application: Application, *, proxies: Collection[str] = ()) -> None:
        self._application = application
        self._proxies = frozenset(proxies)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] in {"http", "websocket"}:
            scope = believed(scope, self._proxies)
        if scope["type"] == "http":
            await self._capped(scope, receive, send)
        else:
            await self._application(scope, receive, send)

    async def _capped(self, scope: Message, receive: Receive, send: Send) -> None:
        body = _Counted(receive, send, caps.cap_of(scope["path"]))
        if not _declared_fits(scope["headers"], body.cap):
            await _refuse(scope["path"], send)
            return
        await self._application(scope, body.receive, body.send)
        if body.exceeded and not body.started:
            await _refuse(scope["path"], send)


class _Counted:
    """Counts what arrives; past the cap the application sees a client that went away, and says nothing more."""

    def __init__(self, receive: Receive, send: Send, cap: int) -> None:
        self.cap = cap
        self.exceeded = False
        self.started = False
        self._receive = receive
        self._send = send
        self._count = 0

    async def receive(self) -> Message:
        if self.exceeded:
            return {"type": "http.disconnect"}
        message = await self._receive()
        self._count += len(message.get("body", b""))
        if self._count > self.cap:
            self.exceeded = True
            return {"type": "http.disconnect"}
        return message

    async def send(self, message: Message) -> None:
        if not self.exceeded or self.started:
            self.started = True
            await self._send(message)


def believed(scope: Message, proxies: Collection[str]) -> Message:
    """The scope with the client and scheme that a named proxy vouches for, and without anyone's own claims of them."""
    headers: Headers = scope["headers"]
    if not any(name in FORWARDED for name, _ in headers):
        return scope
    kept = [(name, value) for name, value in headers if name not in FORWARDED]
    client = scope.get("client") or [UNIX_SOCKET]
    if client[0] not in proxies:
        return {**scope, "headers": kept}
    changed: Message = {"headers": kept}
    if address := _client(_values(headers, b"x-forwarded-for"), proxies):
        changed["client"] = [address, 0]
    proto = _values(headers, b"x-forwarded-proto")[-1:]
    if proto and proto[0] in {"http", "https"}:
        secure = proto[0] == "https"
        changed["scheme"] = ("wss" if secure else "ws") if scope["type"] == "websocket" else proto[0]
    return {**scope, **changed}


def _client(hops: list[str], proxies: Collection[str]) -> str:
    """The last hop that is no proxy of ours: what stands before it anyone could have written."""
    return next((hop for hop in reversed(hops) if hop not in proxies), "")


def _values(headers: Iterable[tuple[bytes, bytes]], wanted: bytes) -> list[str]:
    joined = b",".join(value for name, value in headers if name == wanted).decode("latin-1")
    return [part.strip() for part in joined.split(",") if part.strip()]


def _declared_fits(headers: Headers, cap: int) -> bool:
    declared = _values(headers, b"content-length")
    return all(length.isdecimal() and int(length[:20]) <= cap for length in declared)


async def _refuse(path: str, send: Send) -> None:
    body, request_id = caps.refusal(path)
    headers = [
        (b"content-type", b"application/problem+json"),
        (b"content-length", str(len(body)).encode()),
        (b"x-request-id", request_id.encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": body})
