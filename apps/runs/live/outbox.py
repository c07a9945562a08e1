"""The frames that wait for one page, and how many it has not acknowledged yet."""

from __future__ import annotations

from collections import deque

from apps.runs.live.frames import Frame

WINDOW = 200  # frames on their way, unacknowledged, before a page is sent no more
WINDOW_CHARS = 2_000_000
BACKLOG = 1_000  # frames kept for a slow page
BACKLOG_CHARS = 4_000_000


class Outbox:
    """Bounded by number and by size. The server's transport never says stop: receipts bound what is on its way."""

    def __init__(self) -> None:
        self._queue: deque[Frame] = deque()
        self._queued = 0
        self._flying: deque[int] = deque()  # sizes
        self._in_air = 0
        self._acknowledged = 0
        self._lasting = 0

    @property
    def waiting(self) -> bool:
        return bool(self._queue)

    @property
    def has_room(self) -> bool:
        """The page keeps up: another frame may go out."""
        return len(self._flying) < WINDOW and self._in_air < WINDOW_CHARS

    @property
    def lasting(self) -> int:
        """How many wait that a page falling behind does not lose."""
        return self._lasting

    @property
    def overflows(self) -> bool:
        return len(self._queue) > BACKLOG or self._queued > BACKLOG_CHARS

    def put(self, frame: Frame) -> None:
        self._queue.append(frame)
        self._queued += len(frame.text)
        self._lasting += frame.lasting

    def take(self) -> Frame:
        frame = self._queue.popleft()
        self._queued -= len(frame.text)
        self._lasting -= frame.lasting
        self._flying.append(len(frame.text))
        self._in_air += len(frame.text)
        return frame

    def acknowledge(self, count: int) -> bool:
        """The page has taken `count` frames since it came; whether that was news."""
        before = self._acknowledged
        while self._acknowledged < count and self._flying:
            self._in_air -= self._flying.popleft()
            self._acknowledged += 1
        return self._acknowledged > before

    def clear(self) -> None:
        """Drops what waits, not what is on its way. Refusals stay: nothing would tell of them again."""
        kept = [frame for frame in self._queue if frame.lasting]
        self.drop()
        for frame in kept:
            self.put(frame)

    def drop(self) -> None:
        """Drops all that waits: the page is let go."""
        self._queue.clear()
        self._queued = self._lasting = 0
