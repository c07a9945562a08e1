"""Any row of a log is found at once, and so is a text."""

from __future__ import annotations

import random
import re
from pathlib import Path

from engine.logs import Flag, LogReader, Stream
from engine.places import AttemptPlaces
from tests.engine.logs_of import everything, written


def test_a_hundred_thousand_lines_are_read_from_anywhere(tmp_path: Path) -> None:
    data = b"".join(b"\x1b[32mline %d\x1b[0m\n" % number for number in range(100_000))
    reader, seal = written(tmp_path, data)
    assert (reader.count(), seal.lines) == (100_000, 100_000)
    assert [line.n for line in reader.lines(50_000, 3)] == [50_000, 50_001, 50_002]
    assert reader.lines(99_999, 100)[0].data == b"\x1b[32mline 99999\x1b[0m\n"
    assert [line.n for line in reader.last(2)] == [99_998, 99_999]
    assert reader.lines(100_000, 10) == []


def test_a_log_that_is_not_there_has_no_rows(tmp_path: Path) -> None:
    reader = LogReader(AttemptPlaces(tmp_path / "none"))
    assert (reader.count(), reader.size(), reader.lines(0, 5), everything(reader)) == (0, 0, [], b"")
    assert reader.search("x").matches == 0


def test_a_long_row_is_shown_in_part_when_asked(tmp_path: Path) -> None:
    reader, _ = written(tmp_path, b"short\n" + b"y" * 5000 + b"\n")
    rows = reader.lines(0, 2, longest=100)
    assert (rows[0].flags, rows[1].flags, len(rows[1].data)) == (Flag.NONE, Flag.SHORT, 100)


def test_search_counts_matches_and_names_their_rows(tmp_path: Path) -> None:
    reader, _ = written(tmp_path, b"error one\nfine\nError two, error three\n", (Stream.ERR, b"no\n"))
    found = reader.search("error")
    assert (found.matches, found.rows, found.complete) == (3, (0, 2), True)
    assert reader.search("error", ignore_case=False).matches == 2


def test_search_sees_through_colours_and_takes_text_literally(tmp_path: Path) -> None:
    reader, _ = written(tmp_path, b"\x1b[1mER\x1b[31mROR\x1b[0m 1+1\nERROR\n")
    assert reader.search("error 1").rows == (0,)
    assert reader.search("1+1").rows == (0,)
    assert reader.search(".*").matches == 0


def test_search_finds_what_an_expression_would(tmp_path: Path) -> None:
    """Over the cuts between windows, beside colours, in lines of any length."""
    pieces = [b"ab", b"AB", b"a\x1b[1mb", b"b", b"\x1b[0m", b"c\n", b"\x1b", b"x" * 3000, b"a" * 70_000 + b"\n"]
    chosen = random.Random(5)
    data = b"".join(chosen.choices(pieces, k=400)) + b"ab" * 400_000
    reader, _ = written(tmp_path, data)
    for needle in ("ab", "abab", "bc", "xa", "a" * 199 + "b", "ba"):
        plain = re.sub(rb"\x1b\[[0-9;:?]*[ -/]*[@-~]", b"", data).lower()
        assert reader.search(needle, most=10**6).matches == plain.count(needle.encode()), needle


def test_a_search_for_an_unlucky_text_ends_and_any_can_be_bounded(tmp_path: Path) -> None:
    reader, _ = written(tmp_path, (b"a" * 60_000 + b"\n") * 80)
    for unlucky in ("a" * 199 + "b", "\x1b[" * 60):
        found = reader.search(unlucky)
        assert (found.matches, found.complete) == (0, True)
    assert not reader.search("b", seconds=-1).complete


def test_search_ends_at_its_bound(tmp_path: Path) -> None:
    reader, _ = written(tmp_path, b"x\n" * 100)
    found = reader.search("x", most=10)
    assert (found.matches, found.complete) == (10, False)


def test_a_download_may_come_in_ranges(tmp_path: Path) -> None:
    reader, _ = written(tmp_path, b"0123456789\n" * 3)
    assert reader.bytes(5, 10) == b"56789\n0123"
    assert reader.bytes(30, 100) == b"89\n"[-3:]
    assert reader.bytes(1000, 10) == b""
