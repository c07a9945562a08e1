"""The two files while they are written: rows are appended, and over the limit the middle is given back."""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from engine.logs import holes
from engine.logs.format import HEADER, MAGIC, RECORD, SIZE, Flag, Stream
from engine.places import AttemptPlaces

_CHECKPOINT = 64 * 1024
_MOST_IN_MEMORY = 1024 * 1024
_PIECE = 1024 * 1024


@dataclass(frozen=True)
class Point:
    """A boundary between two rows, and how much stands before it."""

    row: int = 0
    offset: int = 0
    lines: int = 0


@dataclass(frozen=True)
class Kept:
    rows: int
    lines: int
    bytes: int
    sha256: str
    cut_rows: int


@dataclass
class Lost:
    """What could not be written, on a full disk or a broken one: so much, for the first time behind row `row`."""

    lines: int = 0
    bytes: int = 0
    row: int = 0
    why: str = ""

    @property
    def text(self) -> str:
        """For people; empty when nothing was lost."""
        if not self.why:
            return ""
        much = f"{self.lines} lines ({self.bytes} bytes)"
        return (
            f"Of the log {much} are missing, the first behind row {self.row}: they could not be written ({self.why})."
        )

    def record(self) -> dict[str, Any]:
        return {"lines": self.lines, "bytes": self.bytes, "text": self.text}


class Store:
    """Appends rows. Of more than `limit` bytes the first half of the limit is kept and, roughly, the last half.

    Where the file system cannot free the middle of a file, only the last megabyte is kept beside the first half, in
    memory until the end. What cannot be written is counted in `lost`, and what comes after it is tried again.
    """

    def __init__(self, places: AttemptPlaces, limit: int) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        self._bin, self._idx = os.open(places.log, flags, 0o640), -1
        try:
            self._idx = os.open(places.log_index, flags, 0o640)
            _write(self._idx, HEADER.pack(MAGIC, 0, 0, 0), 0)
        except OSError:
            self._close_files()
            raise
        self.lost = Lost()
        self._limit = limit
        self._half = limit // 2
        self._step = min(_PIECE, max(self._half // 4, 1))
        self._hash = hashlib.sha256()
        self.at = Point()
        self._head: Point | None = None
        self._tail: Point | None = None
        self._points: deque[Point] = deque()
        self._memory: deque[tuple[Point, bytes, bytes]] | None = None
        self._in_memory = 0

    @property
    def overflowed(self) -> bool:
        return self.at.offset > self._limit

    def append(self, data: bytes, rows: Sequence[tuple[int, Flag]], stream: Stream, ms: int, lines: int) -> None:
        """`rows` are the lengths and flags that `data` falls into, `lines` how many lines end in it."""
        before, offset, pack = self.at, self.at.offset, RECORD.pack
        records = []
        for length, flag in rows:
            records.append(pack(offset, length, ms, stream, flag))
            offset += length
        if self._memory is None:
            try:
                _write(self._bin, data, before.offset)  # before their record: a reader never sees one without the other
                _write(self._idx, b"".join(records), SIZE * (1 + before.row))
            except OSError as wrong:
                self._lose(len(data), lines, wrong)
                return
        self.at = Point(before.row + len(rows), offset, before.lines + lines)
        if self._memory is None:
            self._bound(before, data)
        else:
            self._remember(before, data, b"".join(records))

    def close_line(self) -> None:
        """A line whose pieces are all written came to its end without a newline."""
        self.at = Point(self.at.row, self.at.offset, self.at.lines + 1)

    def close(self) -> Kept:
        """Closes the files and says what they hold."""
        self._write_memory()
        head, tail = self._head or self.at, self._tail or self.at
        if self._tail is not None:
            self._hash = hashlib.sha256()
            self._hash_range(0, head.offset)
            self._hash_range(tail.offset, self.at.offset)
        self._close_files()
        cut = (
            Point()
            if self._tail is None
            else Point(tail.row - head.row, tail.offset - head.offset, tail.lines - head.lines)
        )
        return Kept(
            rows=self.at.row - cut.row,
            lines=self.at.lines - cut.lines,
            bytes=self.at.offset - cut.offset,
            sha256=self._hash.hexdigest(),
            cut_rows=cut.row,
        )

    def _close_files(self) -> None:
        for descriptor in (self._bin, self._idx):
            if descriptor >= 0:
                os.close(descriptor)

    def _lose(self, size: int, lines: int, wrong: OSError) -> None:
        if not self.lost.why:
            self.lost.row, self.lost.why = self.at.row, wrong.strerror or str(wrong)
        self.lost.lines += lines
        self.lost.bytes += size
        with suppress(OSError):  # what a reader would take for rows; else the next rows are written over it
            os.ftruncate(self._idx, SIZE * (1 + self.at.row))
            os.ftruncate(self._bin, self.at.offset)

    def _bound(self, before: Point, data: bytes) -> None:
        if self._tail is None:
            self._hash.update(data)
        if self.at.offset <= self._half:
            return
        if self._head is None:
            self._head = before if before.row else self.at
        if not self._points or self.at.offset - self._points[-1].offset >= min(_CHECKPOINT, self._step):
            self._points.append(self.at)
        done = self._tail or self._head
        if self.at.offset - done.offset > self._half + self._step:
            self._cut(self.at.offset - self._half)

    def _cut(self, offset: int) -> None:
        """Gives back what lies between the head and the last checkpoint before `offset`."""
        head, tail = self._head, self._tail
        while self._points and self._points[0].offset <= offset:
            tail = self._points.popleft()
        if head is None or tail is None or tail == self._tail:
            return
        os.pwrite(self._idx, HEADER.pack(MAGIC, 0, head.row, tail.row), 0)
        freed = holes.punch(self._bin, (self._tail or head).offset, tail.offset)
        freed = holes.punch(self._idx, SIZE * (1 + (self._tail or head).row), SIZE * (1 + tail.row)) and freed
        self._tail = tail
        if not freed:
            self._memory = deque()

    def _remember(self, before: Point, data: bytes, records: bytes) -> None:
        assert self._memory is not None  # noqa: S101
        self._memory.append((before, data, records))
        self._in_memory += len(data) + len(records)
        while self._in_memory > _MOST_IN_MEMORY and len(self._memory) > 1:
            _, gone, gone_records = self._memory.popleft()
            self._in_memory -= len(gone) + len(gone_records)

    def _write_memory(self) -> None:
        if not self._memory or self._head is None:
            return
        self._tail = self._memory[0][0]
        for point, data, records in self._memory:
            try:
                _write(self._bin, data, point.offset)
                _write(self._idx, records, SIZE * (1 + point.row))
            except OSError as wrong:
                end, self.at = self.at, point
                self._lose(end.offset - point.offset, end.lines - point.lines, wrong)
                break
        os.pwrite(self._idx, HEADER.pack(MAGIC, 0, self._head.row, self._tail.row), 0)

    def _hash_range(self, start: int, end: int) -> None:
        while start < end:
            piece = os.pread(self._bin, min(_PIECE, end - start), start)
            if not piece:
                return
            self._hash.update(piece)
            start += len(piece)


def _write(descriptor: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written
