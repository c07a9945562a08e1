"""What moves on a page without a reload, and that it also moves without a socket."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.browser.conftest import Served, watched

pytestmark = pytest.mark.browser


@pytest.fixture
def context(browser: Browser, signed_in: dict[str, Any]) -> Iterator[BrowserContext]:
    made = browser.new_context(storage_state=signed_in)  # type: ignore[arg-type]
    yield made
    made.close()


def start(context: BrowserContext, served: Served) -> Page:
    """A run that waits: nobody works for this server."""
    page = context.new_page()
    page.goto(f"{served.address}/t/payments/workflows/noisy/")
    page.locator("form.card-body button.primary").click()
    page.wait_for_url("**/runs/*/")
    return page


def test_a_press_of_cancel_reaches_the_page_that_another_tab_has_open(served: Served, context: BrowserContext) -> None:
    page = start(context, served)
    other = context.new_page()
    other.goto(page.url)
    expect(other.locator("#run-head .chip")).to_contain_text("queued")
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Cancel").click()
    expect(other.locator("#run-head .chip")).to_contain_text("cancelled", timeout=15_000)
    expect(other.get_by_role("button", name="Rerun all")).to_be_visible()


def test_without_a_socket_the_page_asks_by_itself(served: Served, context: BrowserContext) -> None:
    page = start(context, served)
    other = context.new_page()
    other.route("**/live.js", lambda route: route.abort())
    other.clock.install()
    other.goto(page.url)
    expect(other.get_by_text("refreshing")).to_be_visible()
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator("#run-head .chip")).to_contain_text("cancelled", timeout=15_000)
    other.clock.fast_forward(6_000)  # it asks every 5 s
    expect(other.locator("#run-head .chip")).to_contain_text("cancelled", timeout=15_000)


def test_without_any_script_a_reload_shows_the_truth(
    served: Served, browser: Browser, signed_in: dict[str, Any]
) -> None:
    context = browser.new_context(storage_state=signed_in, java_script_enabled=False)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(f"{served.address}/runs/{served.demo['runs']['failed']}/")
    expect(page.locator("#run-notice")).to_contain_text("KeyError")
    expect(page.locator("pre.log-tail")).to_contain_text("reading the pull request")
    context.close()


def test_what_the_reader_opened_stays_open_when_it_is_refreshed(served: Served, context: BrowserContext) -> None:
    seen = watched(context)
    seen.page.goto(f"{served.address}/runs/{served.demo['runs']['running']}/")
    seen.page.locator("#run-contract > summary").click()
    with seen.page.expect_response("**/fragments/contract/**"):
        seen.page.evaluate("htmx.trigger('#run-contract', 'stale')")
    expect(seen.page.locator("#run-contract")).to_have_attribute("open", "")
    expect(seen.page.locator("a[data-step=review]")).to_have_attribute("aria-current", "true")
    assert seen.complaints == []


def test_a_list_of_runs_takes_a_new_one_by_itself(served: Served, context: BrowserContext) -> None:
    seen = watched(context)
    seen.page.goto(f"{served.address}/runs/")
    expect(seen.page.locator("body")).to_have_attribute("data-live", "live", timeout=15_000)
    made = start(context, served)
    address = made.url.removeprefix(served.address)
    expect(seen.page.locator(f'#rows a[href="{address}"]')).to_be_visible(timeout=20_000)
    assert seen.complaints == []


def test_the_log_has_the_room_until_the_drawer_is_opened(
    served: Served, browser: Browser, signed_in: dict[str, Any]
) -> None:
    context = browser.new_context(storage_state=signed_in, viewport={"width": 1440, "height": 900})  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(f"{served.address}/runs/{served.demo['runs']['good']}/")
    width = "selector => document.querySelector(selector).getBoundingClientRect().width"
    assert page.evaluate(width, ".run-centre") > 740
    assert page.locator(".log-bar").evaluate("bar => bar.clientHeight") < 64, "the toolbar is one row"
    expect(page.locator("[data-log-times] span")).to_be_visible()
    page.locator("#run-contract > summary").click()
    assert page.evaluate(width, ".run-right") > 280
    context.close()
