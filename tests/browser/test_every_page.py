"""Every page in a real browser: nothing wider than a phone, no complaint of axe, nothing that the policy refuses."""

from __future__ import annotations

import json
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser

from tests.browser.conftest import Served, watched
from tests.browser.look import addresses

pytestmark = pytest.mark.browser

THEMES = {"light": 360, "dark": 1440}
ALIKE = {
    "run-busy",
    "run-loud",
    "run-ended",
    "run-retried",
    "session",
}  # other rows of a page that is looked at already
EXPECTED = {"nothing": ["404"]}


@pytest.mark.parametrize("theme", THEMES)
def test_pages_fit_speak_and_keep_to_the_policy(
    served: Served, browser: Browser, signed_in: dict[str, Any], theme: str
) -> None:
    size = {"width": THEMES[theme], "height": 800}
    context = browser.new_context(viewport=size, color_scheme=theme, storage_state=signed_in)  # type: ignore[arg-type]
    axe, wrong = Axe(), {}
    seen = watched(context)
    for name, path in addresses(served.demo).items():
        if name in ALIKE:
            continue
        seen.complaints.clear()
        seen.page.goto(served.address + path)
        found = [
            f"{rule['id']}: {[node['html'][:160] for node in rule['nodes'][:3]]}"
            for rule in axe.run(seen.page).response["violations"]
        ]
        width = seen.page.evaluate("document.documentElement.scrollWidth")
        if width > size["width"]:
            found.append(f"is {width} px wide")
        found += [said for said in seen.complaints if not any(code in said for code in EXPECTED.get(name, []))]
        if found:
            wrong[name] = found
    context.close()
    assert not wrong, json.dumps(wrong, indent=1)


@pytest.mark.parametrize("theme", THEMES)
def test_the_door_fits_speaks_and_keeps_to_the_policy(served: Served, browser: Browser, theme: str) -> None:
    context = browser.new_context(viewport={"width": THEMES[theme], "height": 800}, color_scheme=theme)  # type: ignore[arg-type]
    seen = watched(context)
    seen.page.goto(f"{served.address}/accounts/login/")
    violations = Axe().run(seen.page).response["violations"]
    assert [rule["id"] for rule in violations] == []
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= THEMES[theme]
    assert seen.complaints == []
    context.close()
