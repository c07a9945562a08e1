"""Everything can be reached and done by keyboard, and one sees where one is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import Served
from tests.browser.look import PASSWORD

pytestmark = pytest.mark.browser
HAS_RING = """(() => {
  const focused = document.activeElement, style = getComputedStyle(focused);
  return (style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 1.5) || focused.type === "search";
})()"""


@pytest.fixture
def page(browser: Browser, signed_in: dict[str, Any]) -> Iterator[Page]:
    context = browser.new_context(storage_state=signed_in)  # type: ignore[arg-type]
    yield context.new_page()
    context.close()


def tab_to(page: Page, text: str, most: int = 60) -> None:
    """Press Tab until the focus is on something with this text."""
    for _ in range(most):
        page.keyboard.press("Tab")
        if text in page.evaluate(
            "(document.activeElement.textContent + (document.activeElement.ariaLabel || '')).trim()"
        ):
            return
    pytest.fail(f"{text!r} was not reached by {most} presses of Tab")


def test_the_first_stop_skips_to_the_content(served: Served, page: Page) -> None:
    page.goto(served.address)
    page.keyboard.press("Tab")
    expect(page.get_by_text("Skip to the content")).to_be_focused()
    expect(page.get_by_text("Skip to the content")).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()


def test_focus_is_seen(served: Served, page: Page) -> None:
    page.goto(f"{served.address}/runs/{served.demo['runs']['good']}/")
    for _ in range(25):
        page.keyboard.press("Tab")
        seen = page.evaluate(HAS_RING)
        assert seen, page.evaluate("document.activeElement.outerHTML.slice(0, 200)")


def test_the_menu_opens_and_closes_and_the_theme_is_remembered(served: Served, page: Page) -> None:
    page.goto(served.address)
    tab_to(page, "Your account and settings")
    page.keyboard.press("Enter")
    tab_to(page, "Dark theme", most=2)
    page.keyboard.press("Enter")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.keyboard.press("Escape")
    expect(page.locator("header.side details.who")).not_to_have_attribute("open", "")
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    tab_to(page, "Your account and settings")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Dark theme", pressed=True)).to_be_visible()
    tab_to(page, "The system's theme", most=4)
    page.keyboard.press("Enter")
    page.reload()
    expect(page.locator("html")).not_to_have_attribute("data-theme", "dark")


def test_a_run_is_started_by_keyboard_alone(served: Served, page: Page) -> None:
    page.goto(f"{served.address}/t/payments/workflows/noisy/")
    page.locator("[name=group]").focus()
    tab_to(page, "Run", most=5)
    page.keyboard.press("Enter")
    page.wait_for_url("**/runs/*/")
    expect(page.locator("#run-head")).to_contain_text("payments-owner")


def test_signing_in_needs_no_mouse(served: Served, browser: Browser) -> None:
    page = browser.new_page()
    page.goto(f"{served.address}/accounts/login/?next=/runs/")
    page.locator("[name=login]").focus()
    page.keyboard.type("payments-viewer")
    page.keyboard.press("Tab")
    page.keyboard.type(PASSWORD)
    page.keyboard.press("Enter")
    page.wait_for_url("**/runs/")
    page.close()


def test_the_address_of_a_trigger_is_copied(served: Served, page: Page) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(f"{served.address}/t/payments/workflows/pr-review/triggers/")
    address = page.locator("code.once").first.inner_text()
    page.locator("[data-copy]").first.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == address
