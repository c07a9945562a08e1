"""A log is two files: what was printed, in rows that any reader finds at once."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.logs import Flag, LogReader, LogWriter, Masker, Stream
from engine.logs.format import HEADER, RECORD, SIZE
from engine.logs.writer import LONGEST_ROW, PATIENCE_MS
from engine.places import AttemptPlaces
from engine.sandbox.limits import Limits
from tests.engine.logs_of import everything, written

PER_TEST = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)


def test_an_index_record_has_the_published_shape(tmp_path: Path) -> None:
    written(tmp_path, b"one\n", (Stream.ERR, b"two\n"))
    index = AttemptPlaces(tmp_path).log_index.read_bytes()
    assert len(index) == 3 * SIZE
    assert HEADER.unpack(index[:SIZE]) == (b"PLG1", 0, 0, 0)
    assert RECORD.unpack(index[SIZE : 2 * SIZE]) == (0, 4, 0, Stream.OUT, 0)
    assert RECORD.unpack(index[2 * SIZE :]) == (4, 4, 1, Stream.ERR, 0)


def test_bytes_are_kept_as_they_came(tmp_path: Path) -> None:
    data = b"\xff\xfe half \xc3\nNUL \x00 here\n\x1b[31mred\x1b[0m\r\n"
    reader, seal = written(tmp_path, data)
    assert everything(reader) == data
    assert (seal.lines, seal.bytes, seal.sha256) == (3, len(data), hashlib.sha256(data).hexdigest())
    assert reader.lines(0, 9)[0].text == "�� half �"


def test_a_line_that_came_in_pieces_is_one_row(tmp_path: Path) -> None:
    reader, seal = written(tmp_path, b"half ", b"of a line", b" and its end\nnext\n")
    assert [line.data for line in reader.lines(0, 9)] == [b"half of a line and its end\n", b"next\n"]
    assert seal.lines == 2


def test_pieces_of_the_two_streams_do_not_mix_within_a_line(tmp_path: Path) -> None:
    reader, _ = written(tmp_path, b"out ", (Stream.ERR, b"err\n"), b"put\n")
    assert [(line.stream, line.data) for line in reader.lines(0, 9)] == [
        (Stream.ERR, b"err\n"),
        (Stream.OUT, b"out put\n"),
    ]


def test_the_last_line_needs_no_newline(tmp_path: Path) -> None:
    reader, seal = written(tmp_path, b"a\nb")
    assert [line.data for line in reader.lines(0, 9)] == [b"a\n", b"b"]
    assert seal.lines == 2


def test_an_empty_log_has_a_seal_too(tmp_path: Path) -> None:
    reader, seal = written(tmp_path)
    assert (reader.count(), seal.lines, seal.bytes) == (0, 0, 0)
    assert seal.sha256 == hashlib.sha256(b"").hexdigest()


def test_a_prompt_is_shown_when_its_end_does_not_come(tmp_path: Path) -> None:
    places = AttemptPlaces(tmp_path)
    writer = LogWriter(places, Masker(), Limits())
    writer.write(Stream.OUT, "50 % ☃".encode()[:-1], 0)
    writer.idle(PATIENCE_MS - 1)
    reader = LogReader(places)
    assert reader.count() == 0
    writer.idle(PATIENCE_MS)
    assert [(line.data, line.flags) for line in reader.lines(0, 9)] == [(b"50 % ", Flag.CONTINUES)]
    writer.write(Stream.OUT, "☃".encode()[-1:] + b" done\n", 500)
    assert writer.seal(600).lines == 1
    assert everything(reader) == "50 % ☃ done\n".encode()


def test_a_line_that_ended_as_a_piece_counts_as_one(tmp_path: Path) -> None:
    writer = LogWriter(AttemptPlaces(tmp_path), Masker(), Limits())
    writer.write(Stream.OUT, b"prompt> ", 0)
    writer.idle(1000)
    assert writer.seal(2000).lines == 1


def test_a_line_of_megabytes_is_rows_that_never_cut_a_character(tmp_path: Path) -> None:
    line = ("x" + "☃" * 100_000).encode() + b"\n"
    reader, seal = written(tmp_path, *(line[at : at + 60_001] for at in range(0, len(line), 60_001)), b"after\n")
    rows = reader.lines(0, 100)
    assert b"".join(row.data for row in rows) == line + b"after\n"
    assert all("�" not in row.text and len(row.data) <= LONGEST_ROW for row in rows)
    assert [row.flags for row in rows[:-2]] == [Flag.CONTINUES] * (len(rows) - 2)
    assert (seal.lines, seal.rows) == (2, len(rows))


def test_a_log_is_never_written_over(tmp_path: Path) -> None:
    written(tmp_path, b"first\n")
    with pytest.raises(FileExistsError):
        LogWriter(AttemptPlaces(tmp_path), Masker(), Limits())


@PER_TEST
@given(
    pieces=st.lists(
        st.tuples(st.sampled_from([Stream.OUT, Stream.ERR]), st.binary(max_size=40) | st.just(b"line\n")), max_size=30
    )
)
def test_each_stream_comes_back_whole_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[tuple[Stream, bytes]]
) -> None:
    reader, seal = written(tmp_path_factory.mktemp("log"), *pieces)
    rows = reader.lines(0, 10_000)
    for stream in (Stream.OUT, Stream.ERR):
        sent = b"".join(data for of, data in pieces if of is stream)
        assert b"".join(row.data for row in rows if row.stream is stream) == sent
    assert seal.lines == sum(
        len(sent.split(b"\n")) - (sent.endswith(b"\n") or not sent)
        for sent in (b"".join(d for s, d in pieces if s is stream) for stream in (Stream.OUT, Stream.ERR))
    )
