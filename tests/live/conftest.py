"""A page's socket, without a browser: the real consumer, tailer and hub over the real database."""

# mypy: disable-error-code="no-untyped-call"
# (Channels carries no types.)
from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from channels.testing import WebsocketCommunicator
from django.contrib.auth import HASH_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore
from django.db import connections, transaction
from django.utils import timezone

from apps.runs import events
from apps.runs.kinds import Kind
from apps.runs.live.consumer import READER_THREADS, READERS, LiveConsumer
from apps.runs.live.hub import HUB
from apps.runs.models import Run
from tests import factories


class Page:
    """What live.js does, in Python: subscribes, acknowledges, keeps what came."""

    def __init__(self, user: Any, session: Any) -> None:
        self.socket = WebsocketCommunicator(LiveConsumer.as_asgi(), "/ws/live")
        self.socket.scope.update(user=user, session=session)
        self.taken = 0
        self.acknowledges = True

    async def open(self) -> None:
        connected, _ = await self.socket.connect()
        assert connected

    async def subscribe(self, topic: str, after: int = 0) -> None:
        await self.say(type="subscribe", topic=topic, after=after)

    async def say(self, **message: Any) -> None:
        await self.socket.send_to(text_data=json.dumps(message))

    async def until_silent(self, seconds: float) -> list[dict[str, Any]]:
        """Every message but pings, until none comes for so long."""
        seen = []
        while not await self.socket.receive_nothing(seconds):
            message = await self.next(pings=True)
            if message["type"] != "ping":
                seen.append(message)
        return seen

    async def next(self, timeout: float = 15, *, pings: bool = False) -> dict[str, Any]:
        """The next message; on a slow machine a ping may come between any two."""
        while True:
            message: dict[str, Any] = json.loads(await self.socket.receive_from(timeout))
            self.taken += 1
            if self.acknowledges:
                await self.acknowledge()
            if pings or message["type"] != "ping":
                return message

    async def acknowledge(self) -> None:
        await self.say(type="ack", n=self.taken)

    async def until(self, wanted: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
        """Every message up to and with the first that is wanted."""
        seen = [await self.next()]
        while not wanted(seen[-1]):
            seen.append(await self.next())
        return seen

    async def closed_with(self) -> int:
        """The code that the server closes it with."""
        while (message := await self.socket.receive_output(15))["type"] != "websocket.close":
            pass
        return int(message["code"])

    async def until_caught_up(self, seq: int) -> list[dict[str, Any]]:
        return await self.until(lambda message: message["type"] == "caught_up" and message["seq"] >= seq)

    async def close(self) -> None:
        if not self.socket.future.done():
            await self.socket.disconnect()


@pytest.fixture
def cast(transactional_db: None) -> factories.Cast:
    return factories.make_team()


@pytest.fixture
def run(cast: factories.Cast) -> Run:
    return make_run(cast)


def make_run(cast: factories.Cast) -> Run:
    workflow = factories.make_workflow(cast.team, cast.owner)
    return Run.objects.create(
        team=cast.team,
        workflow=workflow,
        entry_path="manual",
        group="default",
        owner=cast.owner,
        initiated_by="a test",
        plan_revision=1,
        queued_at=timezone.now(),
    )


def tell(run: Run, *kinds: Kind) -> int:
    """Commits events of a run, each in a transaction of its own; returns the last number."""
    for kind in kinds or (Kind.STEP_STARTED,):
        with transaction.atomic():
            events.record(run, kind)
    return int(Run.objects.get(pk=run.pk).last_seq)


def tell_at_once(run: Run, kind: Kind, count: int) -> None:
    with transaction.atomic():
        events.record_all(run, [events.News(kind)] * count)


async def commit(run: Run, *kinds: Kind) -> int:
    return int(await in_thread(tell, run, *kinds))


async def in_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    """Runs it in a thread of another process, as it were: with a connection of its own, closed at the end."""

    def act() -> Any:
        try:
            return function(*arguments)
        finally:
            connections.close_all()

    return await sync_to_async(act, thread_sensitive=False)()


def _session(user: Any) -> Any:
    session = SessionStore()
    session[SESSION_KEY], session[HASH_SESSION_KEY] = str(user.pk), user.get_session_auth_hash()
    session.create()
    return session


@pytest.fixture
async def open_page() -> AsyncIterator[Callable[[Any], Any]]:
    pages: list[Page] = []

    async def open_one(user: Any) -> Page:
        page = Page(user, await in_thread(_session, user))
        await page.open()
        pages.append(page)
        return page

    yield open_one
    for page in pages:
        await page.close()
    await _close_readers()


async def _close_readers() -> None:
    """Reader threads keep their connections, as they should; a test database wants to be left."""
    together = threading.Barrier(READER_THREADS)

    def leave() -> None:
        together.wait(10)
        connections.close_all()

    loop = asyncio.get_running_loop()
    await asyncio.gather(*[loop.run_in_executor(READERS, leave) for _ in range(READER_THREADS)])
    while HUB.watched():
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
