"""Who may open a socket, and when one that is open is closed."""

# mypy: disable-error-code="no-untyped-call"
# (Channels carries no types.)
from __future__ import annotations

from typing import Any

import pytest
from autobahn.exception import Disconnected
from channels.testing import WebsocketCommunicator
from django.conf import settings
from django.contrib.auth.models import AnonymousUser
from django.test import AsyncClient

from apps.accounts.models import Membership, User
from apps.runs.live import consumer, outbox
from apps.runs.live.hub import HUB
from apps.runs.models import Run
from tests.factories import Cast
from tests.live.conftest import Page, commit, in_thread

pytestmark = [pytest.mark.django_db(transaction=True)]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is looked at every half minute is looked at all the time."""
    monkeypatch.setattr(consumer, "PING_S", 0.05)
    monkeypatch.setattr(consumer, "RECHECK_S", 0.0)


@pytest.mark.parametrize(
    "origin",
    [None, b"null", b"http://evil.example", b"http://127.0.0.1:1", b"http://127.0.0.1.evil.example:8000", b"https://127.0.0.1:8000"],
)  # fmt: skip
async def test_another_origin_or_none_is_refused(transactional_db: None, origin: bytes | None) -> None:
    connected, _ = await _knock(origin)
    assert not connected


async def test_our_own_origin_is_let_in_and_told_that_nobody_is_signed_in(transactional_db: None) -> None:
    connected, socket = await _knock(settings.PULSE_BASE_URL.encode())
    assert connected
    closing = await socket.receive_output(10)
    assert (closing["type"], closing["code"]) == ("websocket.close", 4401)
    await socket.disconnect()


@pytest.mark.usefixtures("quick")
async def test_a_browser_that_signs_out_is_told_by_4401(cast: Cast) -> None:
    """The whole way: the cookie of a sign-in, the product's own application."""
    browser = AsyncClient()
    await browser.aforce_login(cast.viewer)
    cookie = f"{settings.SESSION_COOKIE_NAME}={browser.cookies[settings.SESSION_COOKIE_NAME].value}"
    connected, page = await _knock(settings.PULSE_BASE_URL.encode(), cookie)
    assert connected
    for _ in range(3):
        assert "ping" in await page.receive_from(10)
        await page.send_to(text_data='{"type": "ack", "n": 1}')
    await browser.alogout()
    while (message := await page.receive_output(10))["type"] != "websocket.close":
        assert "ping" in message["text"]
    assert message["code"] == 4401
    await page.disconnect()


async def test_a_socket_at_an_unknown_address_is_closed_with_4404(transactional_db: None) -> None:
    for path in ("/ws/nope", "/ws/live/", "/elsewhere"):
        connected, socket = await _knock(settings.PULSE_BASE_URL.encode(), path=path)
        assert connected
        closing = await socket.receive_output(10)
        assert (closing["type"], closing["code"]) == ("websocket.close", 4404)
        await socket.disconnect()


async def _knock(origin: bytes | None, cookie: str = "", path: str = "/ws/live") -> tuple[bool, WebsocketCommunicator]:
    from config.asgi import application

    headers = [(b"host", b"127.0.0.1:8000"), (b"cookie", cookie.encode())]
    headers += [(b"origin", origin)] if origin is not None else []
    socket = WebsocketCommunicator(application, path, headers)
    connected, _ = await socket.connect(10)
    return connected, socket


async def test_what_comes_from_nobody_is_not_read(transactional_db: None) -> None:
    page = Page(AnonymousUser(), None)
    await page.open()
    await page.subscribe("team:any")
    assert await page.closed_with() == 4401
    await page.close()


@pytest.mark.usefixtures("quick")
async def test_signing_out_closes_the_socket(cast: Cast, open_page: Any) -> None:
    page = await open_page(cast.viewer)
    await in_thread(page.socket.scope["session"].flush)
    assert await page.closed_with() == 4401


@pytest.mark.usefixtures("quick")
async def test_a_new_password_closes_the_socket(cast: Cast, open_page: Any) -> None:
    page = await open_page(cast.viewer)

    def change() -> None:
        cast.viewer.set_password("another-horse-battery")
        cast.viewer.save()

    await in_thread(change)
    assert await page.closed_with() == 4401


@pytest.mark.usefixtures("quick")
async def test_an_account_that_is_closed_closes_the_socket(cast: Cast, open_page: Any) -> None:
    page = await open_page(cast.viewer)
    await in_thread(lambda: User.objects.filter(pk=cast.viewer.pk).update(is_active=False))
    assert await page.closed_with() == 4401


@pytest.mark.usefixtures("quick")
async def test_who_leaves_the_team_gets_nothing_more_of_it(cast: Cast, run: Run, open_page: Any) -> None:
    page = await open_page(cast.viewer)
    for topic in (f"run:{run.pk}", f"team:{cast.team.slug}"):
        await page.subscribe(topic)
        await page.until_caught_up(0)
    await in_thread(lambda: Membership.objects.filter(user=cast.viewer).delete())
    refused = [await page.until(lambda message: message["type"] == "refused") for _ in range(2)]
    assert {seen[-1]["topic"] for seen in refused} == {f"run:{run.pk}", f"team:{cast.team.slug}"}
    await commit(run)
    assert {(await page.next(pings=True))["type"] for _ in range(5)} == {"ping"}


@pytest.mark.usefixtures("quick")
async def test_a_page_that_leaves_while_it_is_told_something_is_no_fault(
    cast: Cast, open_page: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = await open_page(cast.viewer)

    async def gone(*_: Any, **__: Any) -> None:
        raise Disconnected("Attempt to send on a closed protocol")

    monkeypatch.setattr(consumer.LiveConsumer, "send", gone)
    await page.subscribe(f"team:{cast.team.slug}")
    assert await page.until_silent(0.5) == []
    assert caplog.text == ""


async def test_a_page_that_stays_is_pinged(cast: Cast, open_page: Any) -> None:
    page = await open_page(cast.viewer)
    assert [(await page.next(pings=True))["type"] for _ in range(3)] == ["ping"] * 3


@pytest.mark.usefixtures("quick")
async def test_a_page_that_says_nothing_is_let_go(cast: Cast, open_page: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer, "SILENT_S", 0.2)
    page = await open_page(cast.viewer)
    assert await page.closed_with() == consumer.TOO_MUCH


@pytest.mark.parametrize("text", ["{", "[]", "7", "{}", "[" * 4000, '{"type": "subscribe"' + " " * 5000 + "}"])
async def test_what_no_page_of_ours_sends_closes_the_socket(cast: Cast, open_page: Any, text: str) -> None:
    page = await open_page(cast.viewer)
    await page.socket.send_to(text_data=text)
    assert await page.closed_with() == consumer.TOO_MUCH


async def test_a_page_that_asks_without_pause_is_let_go(cast: Cast, open_page: Any) -> None:
    page = await open_page(cast.viewer)
    for _ in range(3 * int(consumer.BURST)):
        await page.say(type="unsubscribe", topic="x")
    assert await page.closed_with() == consumer.TOO_MUCH


async def test_a_page_that_acknowledges_nothing_new_without_pause_is_let_go(cast: Cast, open_page: Any) -> None:
    page = await open_page(cast.viewer)
    for _ in range(3 * int(consumer.BURST)):
        await page.say(type="ack", n=0)
    assert await page.closed_with() == consumer.TOO_MUCH


async def test_refusals_that_a_page_does_not_take_close_the_socket(
    cast: Cast, open_page: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "WINDOW", 0)  # as when the page acknowledges nothing
    page = await open_page(cast.viewer)
    for _ in range(consumer.REFUSALS + 1):
        await page.subscribe("x" * 4000)
    assert await page.closed_with() == consumer.TOO_MUCH


async def test_of_a_name_that_is_no_topic_little_is_said_again(cast: Cast, open_page: Any) -> None:
    page = await open_page(cast.viewer)
    await page.subscribe("x" * 4000)
    assert (await page.next())["topic"] == "x" * 200


async def test_a_socket_watches_a_bounded_number_of_topics(cast: Cast, run: Run, open_page: Any) -> None:
    page = await open_page(cast.viewer)
    names = [f"run:{run.pk}", f"team:{cast.team.slug}"]
    for name in names * 10:  # the same topics over and over are no more topics
        await page.subscribe(name)
        await page.until(lambda message, name=name: message["type"] == "caught_up" and message["topic"] == name)
    assert len(HUB.watched()) == 2


async def test_a_fault_of_ours_closes_the_socket_and_leaves_nothing_behind(
    cast: Cast, run: Run, open_page: Any
) -> None:
    page = await open_page(cast.viewer)
    await page.subscribe(f"run:{run.pk}")
    await page.until_caught_up(0)
    await page.socket.send_input({"type": "websocket.nonsense"})  # the application ends with an error
    with pytest.raises(AttributeError):
        await page.socket.wait(10)
    assert not HUB.watched()
