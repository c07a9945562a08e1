"""One page's socket. It may watch several topics; it resumes each from the mark that the page says it has."""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from channels.generic.websocket import AsyncWebsocketConsumer
from django.utils import timezone

from apps.runs.live import frames, logs, replay, tailer
from apps.runs.live.hub import HUB
from apps.runs.live.topics import Topic, TopicRefused, parse

SIGNED_OUT = 4401
TOO_MUCH = 4408
PING_S = 10.0
SILENT_S = 35.0  # a page that answered no ping for so long is gone
RECHECK_S = 30.0  # session, membership and access are looked at again
WINDOW = 200  # frames a page may be behind with its receipts before it is sent no more
BACKLOG = 1_000  # frames kept for a slow page; beyond that it is caught up from the rows later
TOPICS = 12
MESSAGE_BYTES = 4_096

# Channels' own helper shares one thread among all consumers; a slow query of one page would hold up every other.
READER_THREADS = 4
READERS = ThreadPoolExecutor(max_workers=READER_THREADS, thread_name_prefix="live-reader")


class LiveConsumer(AsyncWebsocketConsumer):
    """Frames go out in order through one queue. A page acknowledges them, so a slow one costs bounded memory."""

    async def connect(self) -> None:
        self._queue: deque[frames.Frame] = deque()
        self._wake = asyncio.Event()
        self._topics: dict[Topic, int | None] = {}  # the mark sent last; None while its replay is under way
        self._held: dict[Topic, list[Sequence[frames.Frame]]] = {}
        self._behind: set[Topic] = set()
        self._sent = self._acknowledged = 0
        self._heard = time.monotonic()
        self._tasks: list[asyncio.Task[None]] = []
        await self.accept()
        user = self.scope.get("user")
        if user is None or not user.is_authenticated:
            # Closed after accepting: before it, a browser sees a plain 403 and cannot tell why.
            await self.close(SIGNED_OUT)
            return
        self._user = user
        tailer.ensure_started()
        logs.ensure_started()
        self._tasks = [asyncio.create_task(self._send_frames()), asyncio.create_task(self._watch_over())]

    async def disconnect(self, code: int) -> None:
        for task in self._tasks:
            task.cancel()
        for topic in list(self._topics):
            HUB.leave(topic, self)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        self._heard = time.monotonic()
        if text_data is None or len(text_data) > MESSAGE_BYTES:
            await self.close(TOO_MUCH)
            return
        try:
            message = json.loads(text_data)
            kind = message["type"]
        except (ValueError, TypeError, KeyError):
            await self.close(TOO_MUCH)
            return
        if kind == "ack" and isinstance(message.get("n"), int):
            self._acknowledged = min(message["n"], self._sent)
            self._wake.set()
        elif kind == "subscribe":
            await self._subscribe(message)
        elif kind == "unsubscribe":
            self._unsubscribe(str(message.get("topic")))

    # --- topics

    async def _subscribe(self, message: dict[str, Any]) -> None:
        name, after = str(message.get("topic")), message.get("after")
        after = after if isinstance(after, int) and after >= 0 else 0
        try:
            topic = parse(name)
            if len(self._topics) >= TOPICS and topic not in self._topics:
                raise TopicRefused
            await self._in_thread(replay.check, self._user, topic)
        except TopicRefused as refusal:
            self._put(frames.refused(name, str(refusal.__doc__)))
            return
        await self._replay(topic, after)

    def _unsubscribe(self, name: str) -> None:
        for topic in [topic for topic in self._topics if str(topic) == name]:
            HUB.leave(topic, self)
            self._topics.pop(topic, None)
            self._held.pop(topic, None)

    async def _replay(self, topic: Topic, after: int) -> None:
        """Reads what the page lacks, then joins; what was published between the two is read once more.

        Live batches that arrive meanwhile are held back, so that the page gets everything in order.
        """
        self._topics[topic], self._held[topic] = None, []
        batch, mark = await self._in_thread(replay.since, topic, after)
        if HUB.join(topic, self, mark) > mark:
            rest, mark = await self._in_thread(replay.since, topic, mark)
            batch = [*batch, *rest]
        if topic not in self._topics:  # the page left it meanwhile
            HUB.leave(topic, self)
            return
        self._topics[topic] = mark
        for frame in batch:
            self._put(frame)
        for held in self._held.pop(topic):
            self._put_newer(topic, held)

    def offer(self, topic: Topic, batch: Sequence[frames.Frame]) -> None:
        """Called by the hub, on this event loop."""
        if topic not in self._topics or topic in self._behind:
            return
        if self._topics[topic] is None:
            self._held[topic].append(batch)
            return
        self._put_newer(topic, batch)
        if len(self._queue) > BACKLOG:
            self._fall_behind()

    def _put_newer(self, topic: Topic, batch: Sequence[frames.Frame]) -> None:
        mark, new = self._topics[topic], batch[-1].mark
        if new is not None:
            if mark is not None and new <= mark:
                return
            self._topics[topic] = new
        for frame in batch:
            self._put(frame)

    def _fall_behind(self) -> None:
        """Drops what waits for a slow page; it is caught up from the rows once it has taken what was sent."""
        self._behind |= set(self._topics)
        self._queue.clear()

    # --- sending

    def _put(self, frame: frames.Frame) -> None:
        self._queue.append(frame)
        self._wake.set()

    async def _send_frames(self) -> None:
        delivered: dict[str, int] = {}
        while True:
            if not self._queue and self._behind and self._sent - self._acknowledged <= WINDOW // 2:
                behind, self._behind = self._behind, set()
                for topic in behind:
                    if topic in self._topics:
                        await self._replay(topic, delivered.get(str(topic), 0))
            if not self._queue or self._sent - self._acknowledged >= WINDOW:
                self._wake.clear()
                await self._wake.wait()
                continue
            frame = self._queue.popleft()
            self._sent += 1
            await self.send(text_data=frame.text)
            if frame.mark is not None:
                delivered[frame.topic] = frame.mark

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
                if not await self._in_thread(replay.still_signed_in, self.scope["session"], self._user):
                    await self.close(SIGNED_OUT)
                    return
                await self._recheck_topics()

    async def _recheck_topics(self) -> None:
        for topic in list(self._topics):
            try:
                await self._in_thread(replay.check, self._user, topic)
            except TopicRefused as refusal:
                self._unsubscribe(str(topic))
                self._put(frames.refused(str(topic), str(refusal.__doc__)))

    @staticmethod
    async def _in_thread(function: Any, *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(READERS, function, *arguments)
