"""The database goes away and comes back: what was committed meanwhile still reaches the page."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from apps.runs.kinds import Kind
from apps.runs.live import consumer
from apps.runs.models import Run
from tests.factories import Cast
from tests.live.conftest import commit, in_thread
from tests.live.test_replay import numbers

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.databases]


@pytest.fixture
def restart() -> Callable[[], None]:
    """Cuts the connections of all others to the database, as a restart of its server does."""
    if connection.vendor != "postgresql":
        pytest.skip("SQLite has no server that could go away")
    connection.ensure_connection()
    the_suites_own = connection.connection.info.backend_pid

    def cut() -> None:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid NOT IN (pg_backend_pid(), %s)",
                [the_suites_own],
            )

    return cut


async def test_the_tailer_recovers_and_loses_nothing(cast: Cast, run: Run, open_page: Any, restart: Any) -> None:
    page = await open_page(cast.viewer)
    await page.subscribe(f"run:{run.pk}")
    await page.until_caught_up(0)
    await commit(run, Kind.TOOL_CALLED)
    await page.until_caught_up(1)
    await in_thread(restart)
    seen = []
    for number in range(2, 12):
        await commit(run, Kind.TOOL_CALLED)
        if number > 8:
            await asyncio.sleep(0.3)
    seen += await page.until_caught_up(11)
    assert sorted(set(numbers(seen))) == list(range(2, 12))


async def test_pages_that_come_afterwards_are_served(cast: Cast, run: Run, open_page: Any, restart: Any) -> None:
    first = await open_page(cast.viewer)
    for _ in range(consumer.READER_THREADS):
        await first.subscribe(f"run:{run.pk}")
        await first.until_caught_up(0)
    await in_thread(restart)
    for _ in range(consumer.READER_THREADS * 2):
        await first.subscribe(f"run:{run.pk}")
        await first.until_caught_up(0)
    await commit(run, Kind.TOOL_CALLED)
    assert numbers(await first.until_caught_up(1)) == [1]
