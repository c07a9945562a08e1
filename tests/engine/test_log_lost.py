"""What cannot be written is missing from a log, and the log says so: it neither ends its writer nor tears its rows."""

from __future__ import annotations

import hashlib
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine.logs import LogReader, LogWriter, Masker, Stream, holes
from engine.places import AttemptPlaces
from engine.sandbox.limits import MEGABYTE, Limits
from tests.engine.logs_of import everything


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """The system refuses this process every byte beyond: as on a full disk, a write fails or stops half-way."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("room", [1, 30, 51])
def test_lines_without_room_are_counted_and_those_after_them_are_whole(tmp_path: Path, room: int) -> None:
    places = AttemptPlaces(tmp_path)
    writer = LogWriter(places, Masker(), Limits())
    writer.write(Stream.OUT, b"one\ntwo\n", 1)
    with files_of_at_most(room):
        writer.write(Stream.ERR, b"PULSE_REFUSAL: no\n" + b"lost\n" * 9, 2)
        writer.write(Stream.OUT, b"lost as well\n", 3)
    writer.write(Stream.OUT, b"three\n", 4)
    seal = writer.seal(5)
    reader = LogReader(places)
    assert everything(reader) == b"one\ntwo\nthree\n"
    assert [(row.n, row.stream, row.ms) for row in reader.lines(0, 9)] == [(0, 1, 1), (1, 1, 1), (2, 1, 4)]
    assert (seal.lines, seal.rows, seal.bytes) == (3, 3, 14)
    assert seal.sha256 == hashlib.sha256(b"one\ntwo\nthree\n").hexdigest()
    assert (seal.produced_lines, seal.produced_bytes) == (14, 14 + 18 + 45 + 13)
    assert (seal.lost.lines, seal.lost.bytes, seal.lost.row) == (11, 76, 2)
    assert "11 lines (76 bytes) are missing" in seal.record()["lost"]["text"]
    assert "File too large" in seal.record()["lost"]["text"]
    assert writer.marked == ["PULSE_REFUSAL: no"]


def test_what_was_kept_in_memory_and_finds_no_room_at_the_end_is_said_to_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holes, "punch", lambda *_: False)
    places = AttemptPlaces(tmp_path)
    writer = LogWriter(places, Masker(), Limits(log_mb=1))
    for number in range(40):
        writer.write(Stream.OUT, b"".join(b"%07d %s\n" % (number, b"." * 91) for _ in range(1000)), number)
    with files_of_at_most(3 * MEGABYTE):
        seal = writer.seal(41)
    assert seal.lost.lines > 0
    assert seal.produced_lines == 40_000
    kept = everything(LogReader(places))
    assert (kept.startswith(b"0000000 "), len(kept) < 2 * MEGABYTE) == (True, True)


def test_a_log_that_loses_nothing_says_nothing_of_it(tmp_path: Path) -> None:
    writer = LogWriter(AttemptPlaces(tmp_path), Masker(), Limits())
    writer.write(Stream.OUT, b"one\n", 1)
    assert "lost" not in writer.seal(1).record()
