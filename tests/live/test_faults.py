"""What cannot be shown of one run keeps the pages of the others from nothing."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from apps.runs.kinds import Kind
from apps.runs.live import tailer
from apps.runs.models import Run
from apps.workflows.places import make_way, places_of
from tests.factories import Cast
from tests.live.conftest import in_thread, make_run, tell
from tests.live.logs import growing

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.databases]


async def test_a_run_that_cannot_be_published_holds_up_no_other_and_is_tried_again(
    cast: Cast, run: Run, open_page: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = await in_thread(make_run, cast)
    broken, healthy = await open_page(cast.viewer), await open_page(cast.viewer)
    await broken.subscribe(f"run:{run.pk}")
    await broken.until_caught_up(0)
    await healthy.subscribe(f"run:{other.pk}")
    await healthy.until_caught_up(0)
    publish, fails = tailer.publish_run, [True]

    def publish_or_fail(hub: Any, topic: Any, mark: int) -> None:
        if fails and topic.run_id == run.pk:
            raise RuntimeError("cannot be rendered")
        publish(hub, topic, mark)

    monkeypatch.setattr(tailer, "publish_run", publish_or_fail)
    await in_thread(tell, run, Kind.TOOL_CALLED)
    for number in range(1, 6):
        await in_thread(tell, other, Kind.TOOL_CALLED)
        await healthy.until_caught_up(number)
    fails.clear()
    await broken.until_caught_up(1)


async def test_a_log_that_cannot_be_read_holds_up_no_other(cast: Cast, run: Run, open_page: Any) -> None:
    other = await in_thread(make_run, cast)
    broken, healthy = await in_thread(growing, run), await in_thread(growing, other)
    pages = [await open_page(cast.viewer), await open_page(cast.viewer)]
    for page, log in zip(pages, (broken, healthy), strict=True):
        await page.subscribe(log.topic)
        await page.until_caught_up(0)
    places = places_of(run.workflow).attempt(str(run.pk), "hello", 1)
    await in_thread(make_way, places.root)
    places.log.write_bytes(b"x" * 100)
    places.log_index.mkdir()
    try:
        for number in range(1, 4):
            await in_thread(healthy.lines, 1, number)
            await pages[1].until(lambda message, number=number: message.get("count", 0) >= number)
    finally:
        shutil.rmtree(places.log_index)
