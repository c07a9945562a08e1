"""Pictures of every page, both themes, both widths: `python -m tests.browser.look ADDRESS FOLDER DEMO.json [NAME ...]`.

DEMO.json holds the ids that tests.browser.demo.seed returned. Console messages and CSP reports are printed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

PASSWORD = "correct-horse-battery"
WIDTHS = {"wide": 1440, "phone": 360}


def addresses(demo: dict[str, Any]) -> dict[str, str]:
    """Every page there is, by a short name."""
    runs, flow = demo["runs"], "/t/payments/workflows"
    return {
        "home": "/",
        "workflows": "/workflows/",
        "workflow": f"{flow}/pr-review/",
        "market": f"{flow}/market-checks/",
        **{
            tab: f"{flow}/pr-review/{tab}/" for tab in ("plan", "code", "triggers", "deliveries", "history", "settings")
        },
        "variables": f"{flow}/market-checks/variables/",
        "runs": "/runs/",
        **{f"run-{name}": f"/runs/{run}/" for name, run in runs.items()},
        **{f"run-{tab}": f"/runs/{runs['good']}/?step=review&tab={tab}" for tab in ("result", "timeline", "graph")},
        "compare": f"/runs/{runs['good']}/steps/review/1/contract/",
        "sessions": "/sessions/",
        "session": f"/sessions/{demo['session']}/",
        "deliveries-all": "/deliveries/",
        "delivery": f"/deliveries/{demo['delivery']}/",
        "password": "/accounts/password/change/",
        "mfa": "/accounts/2fa/",
        "nothing": "/nothing/",
    }


def sign_in(page: Page, address: str, user: str) -> None:
    page.goto(f"{address}/accounts/login/")
    page.fill("[name=login]", user)
    page.fill("[name=password]", PASSWORD)
    page.click("main button:not([type=button])")
    page.wait_for_load_state()


def look(browser: Browser, address: str, folder: Path, wanted: dict[str, str]) -> None:
    for theme in ("light", "dark"):
        for width_name, width in WIDTHS.items():
            context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme)
            page = context.new_page()
            page.on(
                "console",
                lambda message: message.type in {"error", "warning"} and print(message.location, message.text),
            )
            if width_name == "wide":
                page.goto(f"{address}/accounts/login/")
                page.screenshot(path=folder / f"sign-in-{theme}.png")
            sign_in(page, address, "payments-owner")
            for name, path in wanted.items():
                page.goto(address + path)
                page.wait_for_timeout(600)
                page.screenshot(path=folder / f"{name}-{width_name}-{theme}.png", full_page=True)
            context.close()


def main() -> None:
    address, folder, demo, *names = sys.argv[1:]
    every = addresses(json.loads(Path(demo).read_text()))
    Path(folder).mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        look(browser, address, Path(folder), {name: every[name] for name in names or every})
        browser.close()


if __name__ == "__main__":
    main()
