"""The hooks' own door in front of Django: many deliveries at once share one commit.

Django opens a thread and a database connection for every request of an ASGI server, which is most of what a delivery
would cost. Here the event loop reads the bytes, within their bound, and hands them to one writer thread that keeps its
connection and takes all that wait as one batch of `accept_deliveries`. `hook.receive` answers the same for any other
kind of server.
"""

from __future__ import annotations

import asyncio
import json
import logging
import queue
import re
import threading
from collections.abc import Awaitable, Callable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from django.conf import settings
from django.db import DatabaseError, close_old_connections, connections
from django.utils import timezone

from apps.webhooks.accept import BUSY, accept_deliveries
from apps.webhooks.arrivals import Answer, Arrival
from apps.webhooks.judging import FAULT, NO_METHOD, Refusal, judge_all, too_large
from apps.webhooks.settling import answer_refusal

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

log = logging.getLogger(__name__)

PATH: Final = re.compile(r"/hooks/([A-Za-z0-9_-]{1,64})/?")
BATCH: Final = 32  # one commit holds the write lock for some milliseconds, not longer
WAITING_BYTES: Final = 64 * 1024 * 1024
HEADERS_BYTES: Final = 4 * 1024  # reckoned for what waits beside its body
READ_S: Final = 15
PATIENCE_S: Final = 1.0
SLOW: Final = Refusal(408, "too_slow", f"The body did not come within {READ_S} s. No run was made.")


@dataclass(frozen=True)
class Waiting:
    """An arrival, and who waits for its answer."""

    arrival: Arrival
    answer: asyncio.Future[Answer]


class Writer:
    """One thread that accepts what waits, in batches. Bounded by bytes: beyond them the answer is 503."""

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[Waiting | None] = queue.SimpleQueue()
        self._bytes = 0
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    async def accept(self, arrival: Arrival) -> Answer:
        """The answer, once it is durable; while the database is held by others, a 401 or 404 before it is stored."""
        size = len(arrival.body) + HEADERS_BYTES
        if self._bytes + size > WAITING_BYTES:
            return answer_refusal(BUSY)
        self._start()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Answer] = loop.create_future()
        self._bytes += size
        answer.add_done_callback(lambda _: self._release(size))
        self._waiting.put(Waiting(arrival, answer))
        # Shielded: a sender that hangs up does not take its delivery back.
        with suppress(TimeoutError):
            return await asyncio.wait_for(asyncio.shield(answer), PATIENCE_S)
        turned_away: Answer | None = await loop.run_in_executor(JUDGES, _turned_away, arrival)
        return turned_away if turned_away is not None else await asyncio.shield(answer)

    def _release(self, size: int) -> None:
        self._bytes -= size

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="deliveries", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """Settle what waits, then end the thread and its connection; a later delivery starts it again."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            self._waiting.put(None)
            thread.join()

    def _serve(self) -> None:
        while batch := self._take():
            try:
                close_old_connections()
                answers = accept_deliveries([one.arrival for one in batch])
            except Exception:
                log.exception("A batch of %d deliveries failed; each was answered 500.", len(batch))
                answers = [answer_refusal(FAULT) for _ in batch]
            for one, answer in zip(batch, answers, strict=True):
                _tell(one.answer, answer)
        connections.close_all()

    def _take(self) -> list[Waiting]:
        """What waits, at least one; nothing when the thread is to end."""
        batch: list[Waiting] = []
        while len(batch) < BATCH:
            try:
                one = self._waiting.get(block=not batch)
            except queue.Empty:
                break
            if one is None:
                if batch:
                    self._waiting.put(None)  # first those that came before
                break
            batch.append(one)
        return batch


writer: Final = Writer()
JUDGES: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="delivery-judge")


def _turned_away(arrival: Arrival) -> Answer | None:
    """The answer to a stranger, which needs nothing of the writer; its row is written when that is free again."""
    try:
        refusal = judge_all([arrival])[0].refusal
    except DatabaseError:
        return None
    finally:
        connections.close_all()
    return answer_refusal(refusal) if refusal is not None and refusal.status in {401, 404} else None


def serves(scope: Scope) -> bool:
    """Whether this is a delivery: `/hooks/<key>`; addresses below it are Django's."""
    return scope["type"] == "http" and PATH.fullmatch(scope["path"]) is not None


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """One delivery over ASGI: the checks that need only its size here, all others in the writer."""
    found = PATH.fullmatch(scope["path"])
    if found is None or scope["method"] != "POST":
        await _respond(send, answer_refusal(NO_METHOD))
        return
    headers = _headers(scope)
    limit: int = settings.PULSE_HOOK_BODY_MAX
    try:
        async with asyncio.timeout(READ_S):
            body = await _read(receive, headers, limit)
    except TimeoutError:
        await _respond(send, answer_refusal(SLOW))
        return
    if body is None:
        return
    if len(body) > limit:
        await _respond(send, answer_refusal(too_large(limit)))
        return
    client = scope.get("client") or ("",)
    arrival = Arrival(found[1], body, headers, str(client[0]), timezone.now())
    await _respond(send, await writer.accept(arrival))


def _headers(scope: Scope) -> dict[str, str]:
    headers: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]},{value}" if name in headers else value
    return headers


async def _read(receive: Receive, headers: dict[str, str], limit: int) -> bytes | None:
    """The body; more than `limit` bytes as soon as it is known to have more; None when the sender went away."""
    said = headers.get("content-length", "0")
    if said.isdecimal() and int(said[:18]) > limit:
        return b"\0" * (limit + 1)
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > limit or not message.get("more_body", False):
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


def _tell(future: asyncio.Future[Answer], answer: Answer) -> None:
    def settle() -> None:
        if not future.done():
            future.set_result(answer)

    try:
        future.get_loop().call_soon_threadsafe(settle)
    except RuntimeError:
        log.info("The loop that waited for a delivery's answer is closed; the delivery itself is settled.")
