"""The log reader's own requests."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import AsyncClient, Client

from apps.runs.models import Run
from engine.logs import Stream
from tests.factories import Cast, make_team
from tests.live.conftest import in_thread, make_run
from tests.live.logs import Growing, growing

ADDRESSES = ("lines", "search?q=line", "line?number=0", "download")


@pytest.fixture
def cast(db: None) -> Cast:
    return make_team()


@pytest.fixture
def log(cast: Cast) -> Growing:
    return growing(make_run(cast))


@pytest.fixture
def viewer(cast: Cast) -> Client:
    client = Client()
    client.force_login(cast.viewer)
    return client


def get(client: Client, log: Growing, rest: str) -> Any:
    return client.get(log.address + rest).json()


def test_lines_are_given_by_number_with_the_length_of_the_log(log: Growing, viewer: Client) -> None:
    log.lines(1_000)
    got = get(viewer, log, "lines?first=500&count=2")
    assert (got["first"], got["count"], got["gap"]) == (500, 1_000, None)
    assert [line[3] for line in got["lines"]] == ["line 501", "line 502"]


def test_no_more_lines_come_than_there_are_or_than_the_bound(log: Growing, viewer: Client) -> None:
    log.lines(3_000)
    assert get(viewer, log, "lines?first=2999&count=500")["lines"][0][3] == "line 3000"
    assert len(get(viewer, log, "lines?first=2999&count=500")["lines"]) == 1
    assert get(viewer, log, "lines?first=9000&count=500")["lines"] == []
    assert len(get(viewer, log, "lines?first=0&count=99999")["lines"]) == 2_000
    assert get(viewer, log, "lines?first=-1&count=abc")["first"] == 0


def test_streams_and_broken_bytes_are_shown(log: Growing, viewer: Client) -> None:
    log.write(b"caf\xc3 \xff\xfe\0\n")
    log.write(b"bad\n", Stream.ERR)
    lines = get(viewer, log, "lines")["lines"]
    assert lines[0][3] == "caf\ufffd \ufffd\ufffd\0"
    assert [line[0] for line in lines] == [Stream.OUT, Stream.ERR]


def test_rows_that_were_cut_are_nothing_but_the_gap_names_them(cast: Cast, viewer: Client) -> None:
    log = growing(make_run(cast), 1)
    log.lines(200_000)
    log.end()
    first, end = get(viewer, log, "lines")["gap"]
    got = get(viewer, log, f"lines?first={first - 1}&count=3")["lines"]
    assert got[0][3] == f"line {first}"
    assert "lines were cut here" in got[1][3]
    assert got[2] is None
    assert get(viewer, log, f"lines?first={end}&count=1")["lines"][0][3] == f"line {end + 1}"


def test_a_search_tells_how_many_and_where(log: Growing, viewer: Client) -> None:
    log.lines(100)
    log.write(b"LINE 9\n")
    assert get(viewer, log, "search?q=line%209") == {
        "matches": 12,
        "lines": [8, *range(89, 99), 100],
        "complete": True,
    }
    assert get(viewer, log, "search?q=") == {"matches": 0, "lines": [], "complete": True}


def test_a_search_of_a_large_log_misses_nothing(log: Growing, viewer: Client) -> None:
    log.lines(100_000)
    got = get(viewer, log, "search?q=0000")
    assert got["lines"] == [number - 1 for number in range(1, 100_001) if "0000" in str(number)]


def test_a_line_too_long_to_be_shown_is_marked_and_given_whole(log: Growing, viewer: Client) -> None:
    long = b"".join(b"%09d," % number for number in range(500_000))  # 5 MB: many rows
    log.write(b"before\n")
    log.write(long[:3_000_000])
    log.write(b"meanwhile\n", Stream.ERR)
    log.write(long[3_000_000:] + b"\nafter\n")
    shown = get(viewer, log, "lines?first=1&count=1")["lines"][0]
    assert shown[4] is True
    assert len(shown[3]) == 4_000
    for row in (1, 40, log.writer.rows - 2 if log.writer else 0):
        answer = viewer.get(log.address + f"line?number={row}")
        assert answer.content == long + b"\n"
    assert answer["Content-Type"] == "text/plain; charset=utf-8"
    assert answer["Content-Disposition"].startswith("attachment")
    assert viewer.get(log.address + "line?number=100000").status_code == 404


@pytest.mark.parametrize("rest", ADDRESSES)
def test_strangers_and_wrong_numbers_get_the_same_404(cast: Cast, log: Growing, rest: str) -> None:
    log.lines(1)
    stranger = Client()
    stranger.force_login(cast.outsider)
    assert stranger.get(log.address + rest).status_code == 404
    member = Client()
    member.force_login(cast.viewer)
    wrong = log.address.replace("attempts/1/", "attempts/2/")
    assert member.get(wrong + rest).status_code == 404
    assert member.get(log.address.replace("/hello/", "/%00/") + rest).status_code == 404


@pytest.mark.parametrize("rest", ADDRESSES)
def test_without_signing_in_one_is_sent_to_the_door(log: Growing, rest: str) -> None:
    assert Client().get(log.address + rest).status_code == 302


@pytest.mark.parametrize("rest", ADDRESSES)
def test_a_log_that_retention_removed_is_gone(log: Growing, viewer: Client, rest: str) -> None:
    Run.objects.update(artifacts_expired=True)
    answer = viewer.get(log.address + rest)
    assert answer.status_code == 410
    assert answer.json()["code"] == "artifacts_expired"


def test_the_page_says_that_retention_removed_it(log: Growing, viewer: Client) -> None:
    Run.objects.update(artifacts_expired=True)
    assert "removed by retention" in viewer.get(f"/runs/{log.run.pk}/").content.decode()


@pytest.mark.django_db(transaction=True)
async def test_the_download_is_the_log_byte_for_byte(transactional_db: None) -> None:
    cast = await in_thread(make_team)
    log = await in_thread(lambda: growing(make_run(cast)))
    data = b"one\n\x1b[31mtwo\x1b[0m \xff\n" * 100_000
    log.write(data)
    client = AsyncClient()
    await client.aforce_login(cast.viewer)
    answer: Any = await client.get(log.address + "download")
    assert answer["Content-Type"] == "text/plain; charset=utf-8"
    assert answer["Content-Disposition"] == 'attachment; filename="hello-1.log"'
    pieces = [piece async for piece in answer.streaming_content]
    assert len(pieces) > 1
    assert b"".join(pieces) == data


def test_without_script_the_last_lines_are_text(log: Growing, viewer: Client) -> None:
    log.lines(1_000)
    log.write(b"\x1b]8;;javascript:alert(1)\x07link\x1b]8;;\x07 <b>\x1b[31mred\x1b[0m \xe2\x80\xaeevil\n")
    page = viewer.get(f"/runs/{log.run.pk}/").content.decode()
    assert "link &lt;b&gt;red \ufffdevil" in page
    assert "javascript:" not in page
    assert "line 802" in page
    assert "line 800\n" not in page
