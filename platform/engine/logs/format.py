"""The two files of a log. Offsets are bytes, times milliseconds since the attempt's start, numbers little-endian.

`log.bin` holds the masked bytes of both streams in order of arrival, a line's bytes always in one piece. `log.idx`
begins with one header of 24 bytes and goes on with one record of 24 bytes a row. A row is a line with its newline, or
a piece of one that came without an end: a prompt, a progress bar, a line of many megabytes.

Over the limit the middle is cut: the rows from the header's `cut_first` up to `cut_end` are gone, their bytes given
back to the file system as a hole in both files. What stays keeps its row number and its offset, so links to it hold.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum, IntFlag

MAGIC = b"PLG1"
HEADER = struct.Struct("<4sIQQ")
"""Magic, reserved, first row cut, first row kept after the cut. Both 0: nothing was cut."""
RECORD = struct.Struct("<QIIBB6x")
"""Offset, length, milliseconds, stream, flags."""
SIZE = RECORD.size


class Stream(IntEnum):
    """Whose bytes they are. `PLATFORM`: no step's; the line that shows a cut is its."""

    OUT = 1
    ERR = 2
    PLATFORM = 3


class Flag(IntFlag):
    """`CONTINUES`: the line goes on in the stream's next row. `CUT`: stands for rows that are gone. `SHORT`: the
    reader was asked for less than the whole row."""

    NONE = 0
    CONTINUES = 1
    CUT = 2
    SHORT = 4


@dataclass(frozen=True)
class Line:
    """One row as it is read: `n` counts from 0, `ms` since the start, `data` with its newline when it has one."""

    n: int
    stream: Stream
    ms: int
    data: bytes
    flags: Flag = Flag.NONE

    @property
    def text(self) -> str:
        return self.data.decode("utf-8", "replace").removesuffix("\n").removesuffix("\r")


def cut_text(rows: int, limit_mb: int = 0) -> bytes:
    """The line that a reader shows in place of what was cut."""
    bound = f" The log's limit is {limit_mb} MB (limits.log_mb)." if limit_mb else ""
    return f"[{rows} lines were cut here; the first and the last are kept.{bound}]\n".encode()


assert HEADER.size == RECORD.size == 24  # noqa: S101 - a reader finds row n at 24 * (n + 1)
