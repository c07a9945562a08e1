"""Writes a log while an attempt runs: masked, in rows, bounded, sealed at the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.logs.format import Flag, Stream
from engine.logs.masking import MaskedStream, Masker
from engine.logs.store import Lost, Store
from engine.places import AttemptPlaces
from engine.sandbox.limits import MEGABYTE, Limits

LONGEST_ROW = 64 * 1024
"""A longer line is written in pieces, so that a line without an end takes no memory."""
PATIENCE_MS = 200
"""A line without its end is shown after so long."""
MARKS = (b"PULSE_REFUSAL: ", b"CONCERN: ")
MOST_MARKED = 100


@dataclass(frozen=True)
class Seal:
    """What was kept, what was produced, and the digest of what was kept (without the line that shows the cut).

    `lost` is what could not be written; its record has it only when there is some.
    """

    lines: int
    bytes: int
    sha256: str
    rows: int
    cut_rows: int
    produced_lines: int
    produced_bytes: int
    lost: Lost

    def record(self) -> dict[str, Any]:
        lost = {"lost": self.lost.record()} if self.lost.why else {}
        return {
            **lost,
            "lines": self.lines,
            "bytes": self.bytes,
            "sha256": self.sha256,
            "rows": self.rows,
            "cut_rows": self.cut_rows,
            "kept": {"lines": self.lines, "bytes": self.bytes},
            "produced": {"lines": self.produced_lines, "bytes": self.produced_bytes},
        }


@dataclass
class _Source:
    """One stream on its way into the log."""

    masked: MaskedStream
    pending: bytes = b""
    """The beginning of a line whose end did not come yet; it came at `since`."""
    since: int = 0
    inside: bool = False
    """A piece of the open line is written already."""


class LogWriter:
    """Writes one attempt's log. `marked` holds what the script claimed: its lines that begin with one of MARKS."""

    def __init__(self, places: AttemptPlaces, masker: Masker, limits: Limits) -> None:
        self._store = Store(places, limits.log_mb * MEGABYTE)
        self._sources = {stream: _Source(masker.stream()) for stream in (Stream.OUT, Stream.ERR)}
        self._produced = 0
        self._seal: Seal | None = None
        self.marked: list[str] = []

    @property
    def rows(self) -> int:
        return self._store.at.row

    @property
    def size(self) -> int:
        return self._store.at.offset

    @property
    def overflowed(self) -> bool:
        """More was produced than is kept."""
        return self._store.overflowed

    def write(self, stream: Stream, data: bytes, ms: int) -> None:
        """Takes what came out of a stream, cut wherever it was cut."""
        self._produced += len(data)
        self._take(stream, self._sources[stream].masked.feed(data), ms)

    def idle(self, ms: int) -> None:
        """Shows the lines that have waited for their end long enough."""
        for stream, source in self._sources.items():
            if source.pending and ms - source.since >= PATIENCE_MS:
                size = _whole_characters(source.pending)
                if size:
                    self._store.append(source.pending[:size], [(size, Flag.CONTINUES)], stream, ms, 0)
                    source.pending, source.inside = source.pending[size:], True

    def seal(self, ms: int) -> Seal:
        """Ends both streams, closes the files and says what they hold. The same answer each time."""
        if self._seal is None:
            for stream in self._sources:
                self._end(stream, ms)
            kept, lost = self._store.close(), self._store.lost
            produced = self._store.at.lines + lost.lines
            self._seal = Seal(
                kept.lines, kept.bytes, kept.sha256, kept.rows, kept.cut_rows, produced, self._produced, lost
            )
        return self._seal

    def _take(self, stream: Stream, data: bytes, ms: int) -> None:
        source = self._sources[stream]
        if not data:
            return
        if not source.pending:
            source.since = ms
        end = data.rfind(b"\n") + 1
        if end:
            block = source.pending + data[:end] if source.pending else data[:end]
            self._append_lines(stream, block, ms)
            source.pending, source.inside, source.since = data[end:], False, ms
        else:
            source.pending += data
        if len(source.pending) > LONGEST_ROW:
            self._append_pieces(stream, source, ms)

    def _append_lines(self, stream: Stream, block: bytes, ms: int) -> None:
        lines = block.split(b"\n")
        lines.pop()
        rows: list[tuple[int, Flag]] = []
        for line in lines:
            if len(line) < LONGEST_ROW:
                rows.append((len(line) + 1, Flag.NONE))
            else:
                rows += _pieces(line + b"\n")
        self._store.append(block, rows, stream, ms, len(lines))
        if any(mark in block for mark in MARKS):
            self._mark(lines)

    def _append_pieces(self, stream: Stream, source: _Source, ms: int) -> None:
        rows = _pieces(source.pending)[:-1]
        size = sum(length for length, _ in rows)
        self._store.append(source.pending[:size], rows, stream, ms, 0)
        source.pending, source.inside = source.pending[size:], True

    def _end(self, stream: Stream, ms: int) -> None:
        source = self._sources[stream]
        self._take(stream, source.masked.close(), ms)
        if source.pending:
            self._store.append(source.pending, [(len(source.pending), Flag.NONE)], stream, ms, 1)
            if source.pending.startswith(MARKS):
                self._mark([source.pending])
        elif source.inside:
            self._store.close_line()

    def _mark(self, lines: list[bytes]) -> None:
        found = [line for line in lines if line.startswith(MARKS)][: MOST_MARKED - len(self.marked)]
        self.marked += [line[:LONGEST_ROW].decode("utf-8", "replace").rstrip("\r") for line in found]


def _pieces(line: bytes) -> list[tuple[int, Flag]]:
    """Lengths of the pieces of a long line, none of which ends inside a character; the last one ends the line."""
    rows: list[tuple[int, Flag]] = []
    start = 0
    while len(line) - start > LONGEST_ROW:
        size = _whole_characters(line[start : start + LONGEST_ROW]) or LONGEST_ROW
        rows.append((size, Flag.CONTINUES))
        start += size
    rows.append((len(line) - start, Flag.NONE))
    return rows


def _whole_characters(data: bytes) -> int:
    """How many bytes of `data` can be written without cutting a UTF-8 character that is still coming."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        wanted = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        return len(data) - back if wanted > back else len(data)
    return len(data)
