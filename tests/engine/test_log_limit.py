"""Over its limit a log keeps both ends, and the cut is a line that can be seen."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from engine.logs import Flag, LogReader, LogWriter, Masker, Stream, holes
from engine.places import AttemptPlaces
from engine.sandbox.limits import MEGABYTE, Limits
from tests.engine.logs_of import everything

LINES = 100_000


def overflowing(root: Path, lines: int = LINES) -> tuple[LogReader, LogWriter, AttemptPlaces]:
    """About ten times a limit of 1 MB."""
    places = AttemptPlaces(root)
    writer = LogWriter(places, Masker(), Limits(log_mb=1))
    for first in range(0, lines, 500):
        piece = b"".join(b"%08d %s\n" % (number, b"." * 90) for number in range(first, min(first + 500, lines)))
        writer.write(Stream.OUT, piece, first)
    return LogReader(places), writer, places


def test_the_first_and_the_last_lines_are_kept(tmp_path: Path) -> None:
    reader, writer, _ = overflowing(tmp_path)
    writer.seal(1)
    gap = reader.gap()
    assert gap is not None
    assert reader.lines(0, 1)[0].data.startswith(b"00000000 ")
    assert reader.last(1)[0].data.startswith(b"%08d" % (LINES - 1))
    assert reader.count() == LINES
    kept_before, kept_after = gap.first * 100, (LINES - gap.end) * 100
    assert kept_before > MEGABYTE // 3
    assert kept_after > MEGABYTE // 3


def test_a_row_keeps_its_number_beyond_the_cut(tmp_path: Path) -> None:
    reader, writer, _ = overflowing(tmp_path)
    writer.seal(1)
    assert reader.lines(LINES - 7, 1)[0].data.startswith(b"%08d" % (LINES - 7))


def test_the_cut_is_a_line(tmp_path: Path) -> None:
    reader, writer, _ = overflowing(tmp_path)
    writer.seal(1)
    gap = reader.gap()
    assert gap is not None
    rows = reader.lines(gap.first - 2, 5)
    assert [row.n for row in rows] == [gap.first - 2, gap.first - 1, gap.first, gap.end, gap.end + 1]
    assert (rows[2].flags, rows[2].stream) == (Flag.CUT, Stream.PLATFORM)
    assert f"{gap.end - gap.first} lines were cut here" in rows[2].text
    assert reader.lines(gap.first + 5, 2)[0].flags is Flag.CUT


def test_the_seal_counts_what_is_kept_and_what_was_produced(tmp_path: Path) -> None:
    reader, writer, _ = overflowing(tmp_path)
    seal = writer.seal(1)
    gap = reader.gap()
    assert gap is not None
    assert (seal.produced_lines, seal.produced_bytes) == (LINES, LINES * 100)
    assert seal.lines == LINES - (gap.end - gap.first)
    assert seal.bytes == seal.lines * 100
    text = everything(reader)
    cut = reader.lines(gap.first, 1)[0].data
    assert hashlib.sha256(text.replace(cut, b"")).hexdigest() == seal.sha256


def test_the_disk_holds_little_more_than_the_limit(tmp_path: Path) -> None:
    _, writer, places = overflowing(tmp_path)
    writer.seal(1)
    on_disk = sum(path.stat().st_blocks * 512 for path in (places.log, places.log_index))
    assert on_disk < 3 * MEGABYTE


def test_the_end_can_be_read_while_it_overflows(tmp_path: Path) -> None:
    reader, writer, _ = overflowing(tmp_path)
    assert reader.last(1)[0].data.startswith(b"%08d" % (LINES - 1))
    assert writer.overflowed


def test_search_finds_both_ends_and_nothing_in_between(tmp_path: Path) -> None:
    reader, writer, _ = overflowing(tmp_path)
    writer.seal(1)
    assert reader.search("00000003 ").rows == (3,)
    assert reader.search(f"{LINES - 3:08d} ").rows == (LINES - 3,)
    assert reader.search("00050000 ").matches == 0


def test_without_holes_the_first_and_the_last_megabyte_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holes, "punch", lambda *_: False)  # as a file system that has none answers
    reader, writer, places = overflowing(tmp_path)
    seal = writer.seal(1)
    assert reader.last(1)[0].data.startswith(b"%08d" % (LINES - 1))
    assert reader.lines(0, 1)[0].data.startswith(b"00000000 ")
    assert seal.produced_lines == LINES
    assert places.log.stat().st_blocks * 512 < 4 * MEGABYTE


def test_a_line_without_end_takes_no_memory(tmp_path: Path) -> None:
    places = AttemptPlaces(tmp_path)
    writer = LogWriter(places, Masker(), Limits(log_mb=1))
    for at in range(200):
        writer.write(Stream.OUT, b"z" * 65_536, at)
        assert sum(len(source.pending) for source in writer._sources.values()) <= 65_536
    seal = writer.seal(200)
    assert (seal.produced_lines, seal.produced_bytes) == (1, 200 * 65_536)
    assert seal.bytes < 2 * MEGABYTE
