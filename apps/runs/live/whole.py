"""One whole line of a log, however many rows it was written in and whatever the other stream wrote between them."""

from __future__ import annotations

from collections.abc import Iterator

from engine.logs import Flag, Line, LogReader

AT_ONCE = 256  # rows
FURTHEST_BACK = 20_000  # rows in which the beginning of a line is looked for


def line(reader: LogReader, row: int, most: int) -> bytes | None:
    """The line that row `row` is a part of, up to `most` bytes; None when there is no such row."""
    here = reader.lines(row, 1, longest=0)
    if not here:
        return None
    data = bytearray()
    for part in _rows_from(reader, _start(reader, here[0]), longest=most):
        if part.stream == here[0].stream:
            data += part.data
            if not part.flags & Flag.CONTINUES or len(data) >= most:
                break
    return bytes(data[:most])


def _start(reader: LogReader, here: Line) -> int:
    """The first row of the line: before it, the stream's last row ended one."""
    start, end, bound = here.n, here.n, max(here.n - FURTHEST_BACK, 0)
    while end > bound:
        first = max(end - AT_ONCE, bound)
        for row in reversed(reader.lines(first, end - first, longest=0)):
            if row.stream == here.stream:
                if not row.flags & Flag.CONTINUES:
                    return start
                start = row.n
        end = first
    return start


def _rows_from(reader: LogReader, row: int, longest: int) -> Iterator[Line]:
    while rows := reader.lines(row, AT_ONCE, longest=longest):
        yield from rows
        row = rows[-1].n + 1
