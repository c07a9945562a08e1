"""Who watches what in this web process. Each process has its own tailer, so nothing needs to cross between them.

Fan-out goes straight to the sockets of this process instead of through the channel layer: the in-memory layer copies
each message per viewer and drops silently when a queue is full (docs/decisions/0110-live-fan-out.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Sequence
from typing import Protocol

from apps.runs.live.frames import Frame
from apps.runs.live.topics import Topic


class Subscriber(Protocol):
    def offer(self, topic: Topic, batch: Sequence[Frame]) -> None:
        """Takes frames, on the event loop's thread, in order. Must not block or raise."""


class Hub:
    """Topics, their subscribers, and up to where each topic was published. Safe to use from any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._watchers: dict[Topic, dict[Subscriber, asyncio.AbstractEventLoop]] = {}
        self._marks: dict[Topic, int] = {}

    def join(self, topic: Topic, subscriber: Subscriber, mark: int) -> None:
        """Adds a subscriber, on the event loop it lives on. The first one's `mark` is where publishing begins.

        Whoever joins first and reads the rows afterwards misses nothing: what comes in between is offered.
        """
        with self._changed:
            self._watchers.setdefault(topic, {})[subscriber] = asyncio.get_running_loop()
            self._marks.setdefault(topic, mark)
            self._changed.notify_all()

    def leave(self, topic: Topic, subscriber: Subscriber) -> None:
        with self._changed:
            watchers = self._watchers.get(topic, {})
            watchers.pop(subscriber, None)
            if not watchers:
                self._watchers.pop(topic, None)
                self._marks.pop(topic, None)

    def watched(self) -> dict[Topic, int]:
        """Every watched topic with the mark it was published up to."""
        with self._changed:
            return dict(self._marks)

    def wait_until_watched(self, kinds: type | tuple[type, ...]) -> None:
        with self._changed:
            self._changed.wait_for(lambda: any(isinstance(topic, kinds) for topic in self._watchers))

    def publish(self, topic: Topic, batch: Sequence[Frame], mark: int | None = None) -> None:
        """Hands a batch to everyone who watches the topic, on their own event loop."""
        with self._changed:
            if mark is not None and topic in self._marks:
                self._marks[topic] = max(mark, self._marks[topic])
            homes: dict[asyncio.AbstractEventLoop, list[Subscriber]] = {}
            for subscriber, loop in self._watchers.get(topic, {}).items():
                homes.setdefault(loop, []).append(subscriber)
            for loop, subscribers in homes.items():
                with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is there any more
                    # Scheduled under the lock: two batches of one topic keep their order.
                    loop.call_soon_threadsafe(_offer, subscribers, topic, batch)


def _offer(subscribers: Sequence[Subscriber], topic: Topic, batch: Sequence[Frame]) -> None:
    for subscriber in subscribers:
        subscriber.offer(topic, batch)


HUB = Hub()
