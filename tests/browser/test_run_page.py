"""What a failed run's page is read for: its traceback keeps its lines, and whatever colours a log has can be read."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import Served, watched

pytestmark = pytest.mark.browser

READABLE = 4.5

# In the page: the ink and the ground of a text of every pair of classes, as the browser worked them out.
COLOURS = """(pairs) => pairs.map((classes) => {
  const text = document.createElement("span");
  text.className = classes;
  document.querySelector("[data-log]").append(text);
  const { color, backgroundColor } = getComputedStyle(text);
  text.remove();
  return [color, backgroundColor].map((one) => one.match(/[0-9.]+/g).map(Number));
})"""


@pytest.fixture(params=["light", "dark"])
def page(request: pytest.FixtureRequest, served: Served, browser: Browser, signed_in: dict[str, Any]) -> Any:
    context = browser.new_context(color_scheme=request.param, storage_state=signed_in)  # type: ignore[arg-type]
    seen = watched(context).page
    seen.goto(f"{served.address}/runs/{served.demo['runs']['failed']}/")
    yield seen
    context.close()


def test_a_traceback_keeps_its_lines_in_every_width(page: Page) -> None:
    cause, act = page.locator(".cause"), page.locator(".wrong").get_by_role("link", name="Log")
    for width in (360, 1024):
        page.set_viewport_size({"width": width, "height": 800})
        lines = cause.evaluate("(e) => e.textContent.trim().split('\\n').length")
        box, under = cause.bounding_box(), act.bounding_box()
        assert box
        assert under
        row = cause.evaluate("(e) => parseFloat(getComputedStyle(e).lineHeight)")
        assert lines == round((cause.evaluate("(e) => e.scrollHeight") - 24) / row), f"a line wraps at {width}"
        assert under["y"] >= box["y"] + box["height"], f"the buttons take its room at {width}"
    expect(cause).to_contain_text("~~~^^^")


def test_each_ink_of_a_log_can_be_read_on_its_ground(page: Page) -> None:
    inks = [f"fg-{ink}" for ink in range(16)]
    grounds = [f"bg-{ground}" for ground in range(16)]
    pairs = [*inks, *grounds, *(f"fg-0 {ground}" for ground in grounds), *(f"{ink} bg-7" for ink in inks), "is-inverse"]
    log = page.locator("[data-log]").evaluate(
        "(e) => getComputedStyle(e).backgroundColor.match(/[0-9.]+/g).map(Number)"
    )
    weak = {
        pair: found
        for pair, (ink, ground) in zip(pairs, page.evaluate(COLOURS, pairs), strict=True)
        if (found := contrast(ink, ground if "bg-" in pair or "inverse" in pair else log)) < READABLE
    }
    assert weak == {}


def contrast(one: list[float], other: list[float]) -> float:
    """By WCAG 2."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: list[float]) -> float:
    parts = (part / 255 for part in colour[:3])
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
