"""Django's admin and the API's documentation under the same policy as our own pages."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser

from tests.browser.conftest import Served, watched
from tests.browser.look import sign_in

pytestmark = pytest.mark.browser

PLACES = (
    "/admin/",
    "/admin/accounts/user/",
    "/admin/accounts/user/1/change/",
    "/admin/webhooks/delivery/",
    "/admin/runs/worker/",
    "/api/v1/docs",
)


def test_admin_and_api_documentation_keep_to_the_policy(served: Served, browser: Browser) -> None:
    context = browser.new_context()
    seen = watched(context)
    sign_in(seen.page, served.address, "admin")
    for place in PLACES:
        response = seen.page.goto(served.address + place)
        seen.page.wait_for_load_state("networkidle")
        assert response is not None
        assert response.status == 200, place
        assert seen.complaints == [], place
    context.close()
