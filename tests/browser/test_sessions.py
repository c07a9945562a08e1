"""The tree of sessions in a real browser: what was opened stays open, and fits a phone."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import Served

pytestmark = pytest.mark.browser


def test_the_calls_of_an_opened_session_outlive_a_refresh_and_fit_a_phone(
    served: Served, browser: Browser, signed_in: dict[str, Any]
) -> None:
    context = browser.new_context(viewport={"width": 360, "height": 800}, storage_state=signed_in)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(f"{served.address}/sessions/")
    page.locator(f"#session-{served.demo['session']} > summary").click()
    calls = page.locator(f"#calls-{served.demo['session']}")
    expect(calls.locator("tbody tr").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    with page.expect_response("**/sessions/*/"):  # the calls are fetched anew once the tree is
        page.evaluate("htmx.trigger('#sessions', 'stale')")
    expect(calls.locator("tbody tr").first).to_be_visible()
    expect(calls.get_by_text("Its newest calls")).to_have_count(0)
    context.close()
