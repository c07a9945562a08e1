"""Who watches what in this web process. Each process has its own tailer, so nothing needs to cross between them.

Fan-out goes straight to the sockets of this process instead of through the channel layer: the in-memory layer copies
each message per viewer and drops silently when a queue is full (docs/decisions/0110-live-fan-out.md).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Protocol

from apps.runs.live.frames import Frame
from apps.runs.live.topics import Topic


class Subscriber(Protocol):
    def offer(self, topic: Topic, batch: Sequence[Frame]) -> None:
        """Takes frames, on the event loop's thread, in order. Must not block."""


class Hub:
    """Topics, their subscribers, and up to where each topic was published. Safe to use from any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._watchers: dict[Topic, dict[Subscriber, asyncio.AbstractEventLoop]] = {}
        self._marks: dict[Topic, int] = {}
        self._fresh: set[Topic] = set()

    def join(self, topic: Topic, subscriber: Subscriber, mark: int) -> int:
        """Adds a subscriber that has everything up to `mark`; returns up to where the topic was published before.

        A higher number than `mark` means: frames between the two went out just before this join, read them again.
        """
        with self._changed:
            self._watchers.setdefault(topic, {})[subscriber] = asyncio.get_running_loop()
            published = self._marks.setdefault(topic, mark)
            self._fresh.add(topic)
            self._changed.notify_all()
            return published

    def leave(self, topic: Topic, subscriber: Subscriber) -> None:
        with self._changed:
            watchers = self._watchers.get(topic, {})
            watchers.pop(subscriber, None)
            if not watchers:
                self._watchers.pop(topic, None)
                self._marks.pop(topic, None)
                self._fresh.discard(topic)

    def watched(self) -> dict[Topic, int]:
        """Every watched topic with the mark it was published up to."""
        with self._changed:
            return dict(self._marks)

    def take_fresh(self) -> set[Topic]:
        """The topics joined since the last call: to be looked at once even when nothing was committed."""
        with self._changed:
            fresh, self._fresh = self._fresh, set()
            return fresh

    def wait_until_watched(self, kinds: type | tuple[type, ...]) -> None:
        with self._changed:
            self._changed.wait_for(lambda: any(isinstance(topic, kinds) for topic in self._watchers))

    def publish(self, topic: Topic, batch: Sequence[Frame], mark: int | None = None) -> None:
        """Hands a batch to everyone who watches the topic, on their own event loop."""
        with self._changed:
            watchers = list(self._watchers.get(topic, {}).items())
            if mark is not None and topic in self._marks:
                self._marks[topic] = mark
            loops = {loop for _, loop in watchers}
            for loop in loops:
                mine = [subscriber for subscriber, home in watchers if home is loop]
                # Scheduled under the lock: two batches of one topic keep their order.
                if not loop.is_closed():
                    loop.call_soon_threadsafe(_offer, mine, topic, batch)


def _offer(subscribers: Sequence[Subscriber], topic: Topic, batch: Sequence[Frame]) -> None:
    for subscriber in subscribers:
        subscriber.offer(topic, batch)


HUB = Hub()
