"""Who opens a growing log gets what was before, then what comes, then the seal; no line is lost or doubled."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from apps.runs.live import logs
from apps.runs.models import Attempt, Run
from engine.logs import Flag
from tests.factories import Cast
from tests.live.conftest import in_thread
from tests.live.logs import growing

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.databases]


def texts(messages: list[dict[str, Any]]) -> dict[int, str]:
    """Row number to text, of the frames that carry lines; where frames overlap they must agree."""
    found: dict[int, str] = {}
    for message in messages:
        if message["type"] == "lines":
            for at, line in enumerate(message["lines"], message["first"]):
                assert found.setdefault(at, line[3]) == line[3]
    return found


def length(messages: list[dict[str, Any]]) -> int:
    return max((message["count"] for message in messages if "count" in message), default=0)


async def test_opened_late_it_gets_history_first_and_then_what_comes(cast: Cast, run: Run, open_page: Any) -> None:
    log = await in_thread(growing, run)
    await in_thread(log.lines, 150)
    page = await open_page(cast.viewer)
    await page.subscribe(log.topic)
    seen = await page.until_caught_up(150)
    for first in range(151, 301, 10):
        log.lines(10, first)
        await asyncio.sleep(0.005)
    seen += await page.until(lambda message: message.get("count", 0) >= 300)
    assert texts(seen) == {row: f"line {row + 1}" for row in range(300)}


async def test_pages_that_join_while_it_grows_miss_no_line(cast: Cast, run: Run, open_page: Any) -> None:
    log = await in_thread(growing, run)
    pages = [await open_page(cast.viewer) for _ in range(4)]

    async def print_lines() -> None:
        for first in range(1, 1001, 5):
            log.lines(5, first)
            await asyncio.sleep(0.002)

    printing = asyncio.create_task(print_lines())
    for page in pages:
        page.start = log.writer.rows if log.writer else 0
        await page.subscribe(log.topic, page.start)
        await asyncio.sleep(0.03)
    await printing
    for page in pages:
        seen = await page.until(lambda message: message.get("count", 0) >= 1000)
        # A frame may begin before the page's mark: rows carry their numbers, so the page knows those that it has.
        assert set(texts(seen)) >= set(range(page.start, 1000))


async def test_the_seal_arrives_when_the_attempt_ends(cast: Cast, run: Run, open_page: Any) -> None:
    log = await in_thread(growing, run)
    log.lines(3)
    page = await open_page(cast.viewer)
    await page.subscribe(log.topic, 3)
    await page.until_caught_up(3)
    log.write(b"the last words")
    seal = await in_thread(log.end)
    seen = await page.until(lambda message: message["type"] == "sealed")
    assert seen[-1]["seal"]["sha256"] == seal["sha256"]
    assert seen[-1]["count"] == 4
    assert texts(seen) == {3: "the last words"}


async def test_who_comes_after_the_end_gets_the_seal_with_the_replay(cast: Cast, run: Run, open_page: Any) -> None:
    log = await in_thread(growing, run)
    log.lines(2)
    seal = await in_thread(log.end)
    page = await open_page(cast.viewer)
    await page.subscribe(log.topic)
    seen = await page.until_caught_up(2)
    assert [message["type"] for message in seen] == ["lines", "sealed", "caught_up"]
    assert seen[1]["seal"] == seal


async def test_of_a_burst_only_the_count_is_told(cast: Cast, run: Run, open_page: Any) -> None:
    log = await in_thread(growing, run)
    log.lines(1)
    page = await open_page(cast.viewer)
    await page.subscribe(log.topic, 1)
    await page.until_caught_up(1)
    log.lines(50_000, 2)
    seen = await page.until(lambda message: message.get("count", 0) >= 50_001)
    assert texts(seen) == {}
    assert sum(len(str(message)) for message in seen) < 5_000


async def test_a_fast_log_tells_its_count_a_few_times_a_second(cast: Cast, run: Run, open_page: Any) -> None:
    log = await in_thread(growing, run)
    log.lines(1)
    page = await open_page(cast.viewer)
    await page.subscribe(log.topic, 1)
    await page.until_caught_up(1)
    for first in range(2, 50_002, 1_000):  # 50,000 lines a second
        log.lines(1_000, first)
        await asyncio.sleep(0.02)
    seen = await page.until(lambda message: message.get("count", 0) >= 50_001)
    assert len(seen) < 25


async def test_long_lines_do_not_travel_in_heaps(cast: Cast, run: Run, open_page: Any) -> None:
    log = await in_thread(growing, run)
    page = await open_page(cast.viewer)
    await page.subscribe(log.topic)
    await page.until_caught_up(0)
    log.write((b"x" * 3_900 + b"\n") * 100)
    seen = await page.until(lambda message: message.get("count", 0) >= 100)
    assert max(len(message.get("lines", [])) for message in seen) < 100


async def test_a_log_that_is_not_there_yet_is_followed_from_its_first_byte(
    cast: Cast, run: Run, open_page: Any
) -> None:
    log = await in_thread(growing, run)
    page = await open_page(cast.viewer)
    await page.subscribe(log.topic)
    await page.until_caught_up(0)
    log.lines(1)
    assert texts([await page.next()]) == {0: "line 1"}


async def test_of_a_log_that_was_cut_the_gap_is_told(cast: Cast, run: Run, open_page: Any) -> None:
    log = await in_thread(growing, run, 1)
    log.lines(200_000)
    await in_thread(log.end)
    page = await open_page(cast.viewer)
    await page.subscribe(log.topic, 199_990)
    seen = await page.until_caught_up(200_000)
    first, end = seen[0]["gap"]
    assert 0 < first < end < 199_990
    assert texts(seen) == {row: f"line {row + 1}" for row in range(199_990, 200_000)}
    assert Flag.CUT not in {line[2] for line in seen[0]["lines"]}


async def test_an_attempt_that_is_not_there_is_refused_and_the_socket_stays(
    cast: Cast, run: Run, open_page: Any
) -> None:
    page = await open_page(cast.viewer)
    for topic in (f"log:{run.pk}/hello/1", f"log:{run.pk}/\0/1", f"log:{run.pk}/hello/{10**30}"):
        await page.subscribe(topic)
        assert (await page.next())["type"] == "refused"
    await page.subscribe(f"run:{run.pk}")
    assert (await page.until_caught_up(0))[-1]["topic"] == f"run:{run.pk}"


async def test_one_log_whose_attempt_vanishes_does_not_hold_up_the_others(cast: Cast, run: Run, open_page: Any) -> None:
    log = await in_thread(growing, run)
    page = await open_page(cast.viewer)
    await page.subscribe(log.topic)
    await page.until_caught_up(0)
    log.lines(1)
    assert texts([await page.next()]) == {0: "line 1"}  # it is followed from here on
    await in_thread(lambda: Attempt.objects.update(number=2))
    await page.subscribe(log.topic.removesuffix("1") + "2")
    await page.until_caught_up(0)
    log.lines(1, 2)
    assert texts([await page.next()]) == {1: "line 2"}


async def test_when_nobody_watches_no_log_is_held_open(cast: Cast, run: Run, open_page: Any) -> None:
    log = await in_thread(growing, run)
    log.lines(1)
    page = await open_page(cast.viewer)
    await page.subscribe(log.topic)
    await page.until_caught_up(1)
    await page.close()
    for _ in range(200):
        assert logs._follower is not None
        if not logs._follower._followed:
            return
        await asyncio.sleep(0.02)
    pytest.fail("the log is still followed")
