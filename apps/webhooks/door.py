"""The only way in for deliveries: an ASGI application in front of Django, for `/hooks/<key>` alone.

The event loop reads the bytes and hands them to the process's `writer`, which answers once they are on the disk. How
large a body may be is held in front of it, for every address in one place (`config.front`).
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from django.utils import timezone

from apps.webhooks.arrivals import Answer, Arrival
from apps.webhooks.judging import NO_METHOD, Refusal
from apps.webhooks.settling import answer_refusal
from apps.webhooks.writer import writer

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Accept = Callable[[Arrival], Awaitable[Answer]]

log = logging.getLogger(__name__)

PATH: Final = re.compile(r"/hooks/([^/]+)/?")
KEY: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
NO_KEY: Final = ""  # of no hook
READ_S: Final = 15
SLOW: Final = Refusal(408, "too_slow", f"The body did not come within {READ_S} s. No run was made.")


def serves(scope: Scope) -> bool:
    """Whether this is a delivery: `/hooks/<key>`; addresses below it are Django's."""
    return scope["type"] == "http" and PATH.fullmatch(scope["path"]) is not None


class Door:
    """One delivery a request: read here, accepted by `accept`."""

    def __init__(self, accept: Accept) -> None:
        self._accept = accept

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = PATH.fullmatch(scope["path"])
        if found is None or scope["method"] != "POST":
            await _respond(send, answer_refusal(NO_METHOD))
            return
        try:
            async with asyncio.timeout(READ_S):
                body = await _read(receive)
        except TimeoutError:
            await _respond(send, answer_refusal(SLOW))
            return
        if body is None:
            return
        client = scope.get("client") or ("",)
        key = found[1] if KEY.fullmatch(found[1]) else NO_KEY
        arrival = Arrival(key, body, _headers(scope), str(client[0]), timezone.now())
        await _respond(send, await self._accept(arrival))


application: Final = Door(writer.accept)


def _headers(scope: Scope) -> dict[str, str]:
    headers: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]},{value}" if name in headers else value
    return headers


async def _read(receive: Receive) -> bytes | None:
    """The body; None when the sender went away, or was sent away for a body that is too large."""
    parts: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)


async def _respond(send: Send, answer: Answer) -> None:
    body = json.dumps(answer.body).encode()
    if "request_id" in answer.body:
        log.info(
            "A delivery was answered %d %r, request id %s",
            answer.status,
            answer.body["code"],
            answer.body["request_id"],
        )
    kind = b"application/json" if answer.status < 300 else b"application/problem+json"
    headers = [
        (b"content-type", kind),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
        *((name.lower().encode(), value.encode()) for name, value in answer.headers.items()),
    ]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
