"""One page's socket. It may watch several topics; it resumes each from the mark that the page says it has."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from autobahn.exception import Disconnected
from channels.consumer import get_handler_name
from channels.generic.websocket import AsyncWebsocketConsumer
from django.db import DatabaseError, InterfaceError
from django.utils import timezone

from apps.runs.live import frames, logs, replay, tailer
from apps.runs.live.hub import HUB
from apps.runs.live.outbox import Outbox
from apps.runs.live.topics import Topic, TopicRefused, parse

logger = logging.getLogger(__name__)
FAULT = 1011
TRY_AGAIN = 1013
SIGNED_OUT = 4401
TOO_MUCH = 4408
PING_S = 5.0
SILENT_S = 35.0  # a page that answered no ping for so long is gone
RECHECK_S = 30.0  # session, membership and access are looked at again
TOPICS = 12
MESSAGE_CHARS = 4_096
MESSAGES_S = 50.0  # sustained; acknowledgements of what was sent are bounded by that and not counted
BURST = 100.0
REFUSALS = 50  # that wait for a page, which so many times asked for what there is not

# Channels' own helper shares one thread among all consumers; a slow query of one page would hold up every other.
READER_THREADS = 4
READERS = ThreadPoolExecutor(max_workers=READER_THREADS, thread_name_prefix="live-reader")


@dataclass
class Watch:
    """How far the page got with a topic: its rows are read until it is `live`, then what is offered is taken."""

    topic: Topic
    mark: int  # up to here frames were queued
    sent: int  # up to here they were sent
    live: bool = False
    missed: bool = False  # something was offered while the rows were read


class Allowance:
    """So many a second, and at first, or after a pause, a burst."""

    def __init__(self, each_second: float, burst: float) -> None:
        self._each_second, self._burst = each_second, burst
        self._left, self._at = burst, time.monotonic()

    def spend(self) -> bool:
        now = time.monotonic()
        self._left = min(self._burst, self._left + (now - self._at) * self._each_second)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class LiveConsumer(AsyncWebsocketConsumer):
    """Frames go out in order through one queue. A page acknowledges them, so a slow one costs bounded memory."""

    channel_layer_alias = "none"  # no socket waits at Redis: docs/decisions/0110-live-fan-out.md

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self._watches: dict[str, Watch] = {}
        self._outbox = Outbox()
        self._wake = asyncio.Event()
        self._heard = time.monotonic()
        self._allowance = Allowance(MESSAGES_S, BURST)
        self._closing = False
        self._tasks: list[asyncio.Task[None]] = []
        try:
            await super().__call__(scope, receive, send)
        finally:
            # Not in disconnect(): a fault, or a server that ends us, comes past it.
            for task in self._tasks:
                task.cancel()
            for name in list(self._watches):
                self._forget(name)

    async def dispatch(self, message: dict[str, Any]) -> None:
        # Without Channels' own, which before each message looks for old connections in a thread that we do not use.
        await getattr(self, get_handler_name(message))(message)

    async def connect(self) -> None:
        await self.accept()
        user = self.scope.get("user")
        if user is None or not user.is_authenticated:
            # Closed after accepting: before it, a browser sees a plain 403 and cannot tell why.
            await self.close(SIGNED_OUT)
            return
        self._user = user
        tailer.ensure_started()
        logs.ensure_started()
        self._tasks = [asyncio.create_task(self._guarded(work)) for work in (self._send_frames(), self._watch_over())]

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        if not self._tasks or self._closing:  # refused already
            return
        self._heard = time.monotonic()
        message = _read(text_data)
        if message is None:
            await self.close(TOO_MUCH)
        elif self._acknowledges(message):
            self._wake.set()
        elif not self._allowance.spend():
            await self.close(TOO_MUCH)
        elif message["type"] == "subscribe":
            await self._guarded(self._subscribe(message))
        elif message["type"] == "unsubscribe":
            self._forget(str(message.get("topic")))

    def _acknowledges(self, message: dict[str, Any]) -> bool:
        count = message.get("n")
        return message["type"] == "ack" and isinstance(count, int) and self._outbox.acknowledge(count)

    async def close(self, code: int | bool | None = None, reason: str | None = None) -> None:
        """What still waits to be read from a page that is let go is not read."""
        self._closing = True
        self._outbox.drop()
        await super().close(code, reason)

    # --- topics

    async def _subscribe(self, message: dict[str, Any]) -> None:
        name, after = str(message.get("topic")), message.get("after")
        after = after if isinstance(after, int) and after >= 0 else 0
        try:
            topic = parse(name)
            if len(self._watches) >= TOPICS and name not in self._watches:
                raise TopicRefused
            latest = await _in_thread(replay.admit, self._user, topic)
        except TopicRefused as refusal:
            self._put(frames.refused(name, str(refusal.__doc__)))
            if self._outbox.lasting > REFUSALS:
                await self.close(TOO_MUCH)
            return
        mark = min(after, latest)
        self._watches[name] = Watch(topic, mark, mark)
        HUB.join(topic, self, latest)
        self._wake.set()

    def _forget(self, name: str) -> None:
        watch = self._watches.pop(name, None)
        if watch is not None:
            HUB.leave(watch.topic, self)

    async def _catch_up(self, watch: Watch) -> None:
        """Queues a piece of what the page lacks. Live once a piece is the last and nothing was offered meanwhile."""
        watch.missed = False
        piece = await _in_thread(replay.since, watch.topic, watch.mark)
        watch.mark = piece.mark
        watch.live = piece.last and not watch.missed
        for frame in piece.frames if self._watches.get(str(watch.topic)) is watch else []:
            self._put(frame)

    def offer(self, topic: Topic, batch: Sequence[frames.Frame]) -> None:
        """Called by the hub, on this event loop."""
        watch = self._watches.get(str(topic))
        if watch is None:
            return
        if not watch.live:
            watch.missed = True
            return
        mark = batch[-1].mark
        if mark is not None and mark <= watch.mark:
            return
        for frame in batch:
            if frame.seq is None or frame.seq > watch.mark:  # a batch may begin before where this page joined
                self._put(frame)
        watch.mark = watch.mark if mark is None else mark
        if self._outbox.overflows:
            self._fall_behind()

    def _fall_behind(self) -> None:
        """Drops what waits for a slow page; it is caught up from the rows once it has taken what was sent."""
        self._outbox.clear()
        for watch in self._watches.values():
            watch.mark, watch.live = watch.sent, False

    # --- sending

    def _put(self, frame: frames.Frame) -> None:
        self._outbox.put(frame)
        self._wake.set()

    async def _send_frames(self) -> None:
        while True:
            if self._outbox.has_room and self._outbox.waiting:
                await self._send_one()
            elif self._outbox.has_room and (behind := [one for one in self._watches.values() if not one.live]):
                await self._catch_up(behind[0])
            else:
                self._wake.clear()
                await self._wake.wait()

    async def _send_one(self) -> None:
        frame = self._outbox.take()
        await self.send(text_data=frame.text)
        watch = self._watches.get(frame.topic)
        if watch is not None and frame.mark is not None:
            watch.sent = max(watch.sent, frame.mark)

    async def _watch_over(self) -> None:
        checked = time.monotonic()
        while True:
            await asyncio.sleep(PING_S)
            if time.monotonic() - self._heard > SILENT_S:
                await self.close(TOO_MUCH)
                return
            self._put(frames.ping(timezone.now().isoformat()))
            if time.monotonic() - checked >= RECHECK_S:
                checked = time.monotonic()
                if not await _in_thread(replay.still_signed_in, self.scope["session"], self._user):
                    await self.close(SIGNED_OUT)
                    return
                await self._recheck_topics()

    async def _recheck_topics(self) -> None:
        for name, watch in list(self._watches.items()):
            try:
                await _in_thread(replay.admit, self._user, watch.topic)
            except TopicRefused as refusal:
                self._forget(name)
                self._put(frames.refused(name, str(refusal.__doc__)))

    async def _guarded(self, work: Awaitable[None]) -> None:
        """Closes the socket when its work fails: a page takes a new one, but never sits before a dead one."""
        try:
            await work
        except Disconnected:  # of daphne's: the page left while something was on its way to it
            self._closing = True
        except (DatabaseError, InterfaceError):
            logger.warning("A page's socket lost the database and is closed.", exc_info=True)
            await self.close(TRY_AGAIN)
        except Exception:
            logger.exception("A page's socket met a fault of ours and is closed.")
            await self.close(FAULT)


def _read(text: str | None) -> dict[str, Any] | None:
    """The message, or None for what no page of ours sends."""
    if text is None or len(text) > MESSAGE_CHARS:
        return None
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) and "type" in message else None


async def _in_thread(function: Any, *arguments: Any) -> Any:
    return await asyncio.get_running_loop().run_in_executor(READERS, function, *arguments)
