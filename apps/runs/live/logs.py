"""Follows log files that somebody watches: one thread a web process, one look a file, however many watch it."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field

from django.db import DatabaseError, InterfaceError, close_old_connections, connection

from apps.runs.live import attempts, frames
from apps.runs.live.frames import Piece
from apps.runs.live.hub import HUB, Hub
from apps.runs.live.topics import LogTopic, TopicRefused
from engine.logs import LogReader
from engine.places import AttemptPlaces

logger = logging.getLogger(__name__)
LOOK_S = 0.02
ENDED_LOOK_S = 0.5
AFTER_FAULT_S = 1.0
COUNT_EVERY_S = 0.1  # of a log that grows faster than lines are sent, the count is told so often
AT_ONCE = 200  # lines that travel in one frame; of more only the count is told, and the page fetches what it shows
AT_ONCE_CHARS = 64_000


@dataclass
class _Followed:
    places: AttemptPlaces
    reader: LogReader
    looked_for_end: float = field(default_factory=time.monotonic)
    told_count: float = 0.0
    sealed: bool = False

    def count(self) -> int:
        rows = self.reader.count()
        if not rows:  # not there when it was opened, perhaps
            self.reader.close()
            self.reader = LogReader(self.places)
        return rows or self.reader.count()


class LogFollower(threading.Thread):
    def __init__(self, hub: Hub) -> None:
        super().__init__(name="live-logs", daemon=True)
        self._hub = hub
        self._followed: dict[LogTopic, _Followed | None] = {}  # None: its attempt is gone

    def run(self) -> None:
        while True:
            if not self._followed:
                self._hub.wait_until_watched(LogTopic)
            try:
                self._look()
            except (DatabaseError, InterfaceError):
                logger.warning("The log follower lost its database and tries again.", exc_info=True)
                with suppress(DatabaseError, InterfaceError):
                    connection.close()
                time.sleep(AFTER_FAULT_S)
            except Exception:
                logger.exception("The log follower met a fault of its own and goes on.")
                time.sleep(AFTER_FAULT_S)
            time.sleep(LOOK_S)

    def _look(self) -> None:
        watched = {topic: mark for topic, mark in self._hub.watched().items() if isinstance(topic, LogTopic)}
        for topic in set(self._followed) - set(watched):
            if (gone := self._followed.pop(topic)) is not None:
                gone.reader.close()
        for topic, mark in watched.items():
            try:
                self._follow(topic, mark)
            except (DatabaseError, InterfaceError):
                raise
            except Exception:  # one log that cannot be read keeps no other from its readers
                logger.exception("The log of %s could not be read; it is tried again.", topic)
                time.sleep(AFTER_FAULT_S)
        if not self._followed:
            connection.close()  # nobody watches: none is held

    def _follow(self, topic: LogTopic, mark: int) -> None:
        if topic not in self._followed:
            self._followed[topic] = _open(topic)
        followed = self._followed[topic]
        if followed is not None and not followed.sealed:
            self._publish(topic, mark, followed)

    def _publish(self, topic: LogTopic, mark: int, followed: _Followed) -> None:
        count, now = followed.count(), time.monotonic()
        if count > mark:
            if count - mark > AT_ONCE:
                if now - followed.told_count < COUNT_EVERY_S:
                    return
                followed.told_count = now
            self._hub.publish(topic, [news(topic, followed.reader, mark, count)], count)
        elif now - followed.looked_for_end > ENDED_LOOK_S:
            followed.looked_for_end = now
            close_old_connections()
            seal = attempts.seal(topic)
            if seal is not None and followed.count() == count:  # nothing came between the two looks
                followed.sealed = True
                self._hub.publish(topic, [frames.sealed(str(topic), seal, count)])


def news(topic: LogTopic, reader: LogReader, after: int, count: int) -> frames.Frame:
    """The rows from `after` on, or only how many there are when they are too many, or too long, to be sent at once."""
    if count - after <= AT_ONCE:
        frame = frames.lines(str(topic), after, reader, count)
        if len(frame.text) <= AT_ONCE_CHARS:
            return frame
    return frames.log_count(str(topic), reader, count)


def count(topic: LogTopic) -> int:
    with LogReader(attempts.places(topic)) as reader:
        return reader.count()


def since(topic: LogTopic, after: int) -> Piece:
    """What a page that shows `after` lines lacks: the lines, or only their number, and the seal if there is one."""
    seal = attempts.seal(topic)  # before the count: of a log that has ended, the count is final
    with LogReader(attempts.places(topic)) as reader:
        rows = reader.count()
        batch = [news(topic, reader, after, rows)] if rows > after else []
    if seal is not None:
        batch.append(frames.sealed(str(topic), seal, rows))
    return Piece([*batch, frames.caught_up(str(topic), rows)], rows)


def _open(topic: LogTopic) -> _Followed | None:
    close_old_connections()
    try:
        places = attempts.places(topic)
    except TopicRefused:
        return None
    return _Followed(places, LogReader(places))


_started = threading.Lock()
_follower: LogFollower | None = None


def ensure_started() -> None:
    """Starts this process's follower with the first page that watches a log."""
    global _follower  # noqa: PLW0603 - one thread a process, by design
    with _started:
        if _follower is None or not _follower.is_alive():
            _follower = LogFollower(HUB)
            _follower.start()
