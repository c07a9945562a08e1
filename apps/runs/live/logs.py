"""Follows log files that somebody watches: one thread a web process, one look a file, however many watch it."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field

from django.db import close_old_connections, connection

from apps.runs.live import attempts, frames
from apps.runs.live.hub import HUB, Hub
from apps.runs.live.topics import LogTopic
from engine.logs import LogReader

logger = logging.getLogger(__name__)
LOOK_S = 0.02
ENDED_LOOK_S = 0.5
AT_ONCE = (
    200  # lines that travel in one frame; of more at once only the count is told, and the page fetches what it shows
)


@dataclass
class _Followed:
    reader: LogReader
    looked_for_end: float = field(default_factory=time.monotonic)
    sealed: bool = False


class LogFollower(threading.Thread):
    def __init__(self, hub: Hub) -> None:
        super().__init__(name="live-logs", daemon=True)
        self._hub = hub
        self._followed: dict[LogTopic, _Followed] = {}

    def run(self) -> None:
        while True:
            self._hub.wait_until_watched(LogTopic)
            try:
                self._look()
                if not self._followed:
                    connection.close()
            except Exception:
                logger.exception("The log follower met a fault and goes on.")
                close_old_connections()
                time.sleep(1)
            time.sleep(LOOK_S)

    def _look(self) -> None:
        watched = {topic: mark for topic, mark in self._hub.watched().items() if isinstance(topic, LogTopic)}
        for gone in set(self._followed) - set(watched):
            del self._followed[gone]
        for topic, mark in watched.items():
            followed = self._followed.get(topic)
            if followed is None or not followed.reader.count():  # a log that was not there yet is opened anew
                followed = self._followed[topic] = _Followed(LogReader(attempts.places(topic)))
            if not followed.sealed:
                self._publish(topic, mark, followed)

    def _publish(self, topic: LogTopic, mark: int, followed: _Followed) -> None:
        count = followed.reader.count()
        if count > mark:
            self._hub.publish(topic, [news(topic, followed.reader, mark, count)], count)
        elif time.monotonic() - followed.looked_for_end > ENDED_LOOK_S:
            followed.looked_for_end = time.monotonic()
            close_old_connections()
            seal = attempts.seal(topic)
            if seal is not None and followed.reader.count() == count:
                followed.sealed = True
                self._hub.publish(topic, [frames.sealed(str(topic), seal, count)], count)


def news(topic: LogTopic, reader: LogReader, after: int, count: int) -> frames.Frame:
    if count - after > AT_ONCE:
        return frames.log_count(str(topic), reader, count)
    return frames.lines(str(topic), after, reader, count)


def since(topic: LogTopic, after: int) -> tuple[list[frames.Frame], int]:
    """What a page that shows `after` lines lacks: the lines, or only their number, and the seal if there is one."""
    reader = LogReader(attempts.places(topic))
    count = reader.count()
    batch = [news(topic, reader, after, count)] if count > after else []
    seal = attempts.seal(topic)
    if seal is not None:
        batch.append(frames.sealed(str(topic), seal, count))
    return [*batch, frames.caught_up(str(topic), count)], count


_started = threading.Lock()
_follower: LogFollower | None = None


def ensure_started() -> None:
    """Starts this process's follower with the first page that watches a log."""
    global _follower  # noqa: PLW0603 - one thread a process, by design
    with _started:
        if _follower is None or not _follower.is_alive():
            _follower = LogFollower(HUB)
            _follower.start()
