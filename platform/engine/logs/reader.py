"""Reads a log, sealed or still growing: any row at once, however long it is."""

from __future__ import annotations

import mmap
import os
import re
import time
from bisect import bisect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from engine.logs.format import HEADER, MAGIC, RECORD, SIZE, Flag, Line, Stream, cut_text
from engine.places import AttemptPlaces

LONGEST_SHOWN = 256 * 1024
MOST_ROWS = 20_000
_WINDOW = 256 * 1024
Bytes = bytes  # a method below has that name
_COLOUR = re.compile(rb"\x1b\[[0-9;:?]*[ -/]*[@-~]")


@dataclass(frozen=True)
class Gap:
    """The rows from `first` up to `end` are gone."""

    first: int
    end: int


@dataclass(frozen=True)
class Found:
    """What a search found: the number of matches, and the rows they are in, at most as many as were asked for."""

    matches: int
    rows: tuple[int, ...]
    complete: bool
    """False when counting ended at the bound."""


class LogReader:
    """A log as it is now; each call sees what has come meanwhile. A log that is not there yet has no rows."""

    def __init__(self, places: AttemptPlaces) -> None:
        self._bin = _open(places.log)
        self._idx = _open(places.log_index)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        for descriptor in (self._bin, self._idx):
            if descriptor >= 0:
                os.close(descriptor)
        self._bin = self._idx = -1

    def count(self) -> int:
        """Rows so far, those that were cut included: the number of the next one."""
        return 0 if self._idx < 0 else max(os.fstat(self._idx).st_size // SIZE - 1, 0)

    def size(self) -> int:
        """Bytes so far, those that were cut included."""
        return 0 if self._bin < 0 else os.fstat(self._bin).st_size

    def gap(self) -> Gap | None:
        if self._idx < 0:
            return None
        header = os.pread(self._idx, SIZE, 0)
        if len(header) < SIZE:
            return None
        magic, _, first, end = HEADER.unpack(header)
        if magic != MAGIC:
            raise ValueError("this is no index of a log")
        return Gap(first, end) if end else None

    def lines(self, first: int, count: int, *, longest: int = LONGEST_SHOWN) -> list[Line]:
        """Up to `count` rows from `first` on; one that stands for all that were cut. At most `longest` bytes each."""
        count = min(count, MOST_ROWS)
        gap = self.gap()
        if gap is None or first + count <= gap.first or first >= gap.end:
            return self._rows(first, count, longest)
        before = self._rows(first, max(gap.first - first, 0), longest)
        rows = gap.end - gap.first
        cut = Line(gap.first, Stream.PLATFORM, before[-1].ms if before else 0, cut_text(rows), Flag.CUT)
        return [*before, cut, *self._rows(gap.end, count - len(before) - 1, longest)]

    def last(self, count: int, *, longest: int = LONGEST_SHOWN) -> list[Line]:
        """The last rows."""
        total = self.count()
        return self.lines(max(total - count, 0), count, longest=longest)

    def bytes(self, offset: int, limit: int) -> Bytes:
        """Up to `limit` bytes of the whole text from `offset` on, as `chunks` gives them: for ranges of a download."""
        found: list[Bytes] = []
        for piece in self.chunks():
            if offset < len(piece):
                found.append(piece[offset : offset + limit])
                limit -= len(found[-1])
                if limit <= 0:
                    break
            offset = max(offset - len(piece), 0)
        return b"".join(found)

    def chunks(self, piece: int = 1024 * 1024) -> Iterator[Bytes]:
        """The whole text, with the line that shows a cut in its place."""
        gap, size = self.gap(), self.size()
        if gap is None:
            yield from self._range(0, size, piece)
            return
        yield from self._range(0, self._end_of(gap.first - 1), piece)
        yield cut_text(gap.end - gap.first)
        yield from self._range(self._offset(gap.end), size, piece)

    def search(self, text: str, *, most: int = 10_000, ignore_case: bool = True, seconds: float = 10) -> Found:
        """Rows that hold `text`, colours inside it ignored. Not complete after `most` matches, or `seconds`."""
        if not text or not self.size():
            return Found(0, (), complete=True)
        needle = text.encode("utf-8", "surrogatepass")
        rows: list[int] = []
        matches = 0
        deadline = time.monotonic() + seconds
        with mmap.mmap(self._bin, 0, prot=mmap.PROT_READ) as data, mmap.mmap(self._idx, 0, prot=mmap.PROT_READ) as idx:
            last = len(idx) // SIZE - 2
            row, gap = 0, self.gap()
            for place in _places(data, needle, ignore_case=ignore_case):
                if place is None:
                    if time.monotonic() > deadline:
                        return Found(matches, tuple(rows), complete=False)
                    continue
                row = _row_at(idx, place, row, last, gap)
                matches += 1
                if not rows or rows[-1] != row:
                    rows.append(row)
                if matches >= most:
                    return Found(matches, tuple(rows), complete=False)
        return Found(matches, tuple(rows), complete=True)

    def _rows(self, first: int, count: int, longest: int) -> list[Line]:
        count = min(count, self.count() - first)
        if count <= 0 or first < 0:
            return []
        index = os.pread(self._idx, SIZE * count, SIZE * (first + 1))
        records = list(RECORD.iter_unpack(index[: len(index) // SIZE * SIZE]))
        if max((length for _, length, *_ in records), default=0) <= longest:
            return self._together(first, records)
        return [self._one(first + at, record, longest) for at, record in enumerate(records)]

    def _together(self, first: int, records: list[tuple[int, int, int, int, int]]) -> list[Line]:
        """Rows lie one after the other, so that one read gets them all."""
        start = records[0][0]
        data = os.pread(self._bin, records[-1][0] + records[-1][1] - start, start)
        return [
            Line(first + at, Stream(stream), ms, data[offset - start : offset - start + length], Flag(flags))
            for at, (offset, length, ms, stream, flags) in enumerate(records)
        ]

    def _one(self, n: int, record: tuple[int, int, int, int, int], longest: int) -> Line:
        offset, length, ms, stream, flags = record
        data = os.pread(self._bin, min(length, longest), offset)
        short = Flag.SHORT if length > longest else Flag.NONE
        return Line(n, Stream(stream), ms, data, Flag(flags) | short)

    def _offset(self, row: int) -> int:
        record = os.pread(self._idx, SIZE, SIZE * (row + 1))
        return int(RECORD.unpack(record)[0]) if len(record) == SIZE else self.size()

    def _end_of(self, row: int) -> int:
        if row < 0:
            return 0
        offset, length, *_ = RECORD.unpack(os.pread(self._idx, SIZE, SIZE * (row + 1)))
        return int(offset + length)

    def _range(self, start: int, end: int, piece: int) -> Iterator[Bytes]:
        while start < end:
            data = os.pread(self._bin, min(piece, end - start), start)
            if not data:
                return
            yield data
            start += len(data)


def _places(data: mmap.mmap, needle: bytes, *, ignore_case: bool) -> Iterator[int | None]:
    """Where `needle` begins, in windows, with None after each: within one find no other thread of the process runs.

    In time linear in the log whatever is sought and whatever it holds: bytes are found, no expression is tried.
    """
    needle = needle.lower() if ignore_case else needle
    start = 0
    while start < len(data):
        end = data.find(b"\n", start + _WINDOW, start + 2 * _WINDOW) + 1 or min(start + 2 * _WINDOW, len(data))
        window, removed = _without_colours(data[start:end])
        window = window.lower() if ignore_case else window
        at = window.find(needle)
        while at >= 0:
            before = bisect(removed, at, key=lambda one: one[0]) - 1
            yield start + at + (removed[before][1] if before >= 0 else 0)
            at = window.find(needle, at + len(needle))
        yield None
        start = end if end == len(data) or data[end - 1 : end] == b"\n" else end - len(needle) + 1


def _without_colours(window: bytes) -> tuple[bytes, list[tuple[int, int]]]:
    """What is left of it, and from which of its places on how many bytes are missing before."""
    if b"\x1b" not in window:
        return window, []
    kept: list[bytes] = []
    removed: list[tuple[int, int]] = []
    last = gone = 0
    for colour in _COLOUR.finditer(window):
        kept.append(window[last : colour.start()])
        gone += colour.end() - colour.start()
        last = colour.end()
        removed.append((last - gone, gone))
    return b"".join([*kept, window[last:]]), removed


def _open(path: os.PathLike[str]) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return -1


def _row_at(index: mmap.mmap, offset: int, low: int, high: int, gap: Gap | None) -> int:
    """The row that holds the byte at `offset`; not before row `low`."""
    while low < high:
        middle = (low + high + 1) // 2
        if gap is not None and gap.first <= middle < gap.end:
            middle = gap.end if gap.end <= high else gap.first
            if middle == gap.first or RECORD.unpack_from(index, SIZE * (middle + 1))[0] > offset:
                high = gap.first - 1
            else:
                low = middle
            continue
        if RECORD.unpack_from(index, SIZE * (middle + 1))[0] <= offset:
            low = middle
        else:
            high = middle - 1
    return low
