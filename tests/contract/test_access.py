"""Every address asks who is there: walked over the whole URLconf, so that a new one cannot forget it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

# Open to everybody on purpose, each with its reason.
OPEN = {
    "healthz": "liveness for load balancers",
    "readyz": "readiness for load balancers",
    "hooks/": "authenticates by signature or token of its own (tests/webhooks)",
    "accounts/": "signing in",
    "api/v1/": "bearer tokens of its own (tests/accounts)",
    "admin/": "the admin's own sign-in",
    "static/": "assets",
    "favicon.ico": "an asset",
    "metrics": "for this machine, or with a token of its own (tests/config)",
}
VALUES = {"uuid": "01900000-0000-7000-8000-000000000000", "slug": "none", "str": "none", "int": "1", "path": "none"}


def routes(patterns: list[URLPattern | URLResolver], before: str = "") -> Iterator[str]:
    for pattern in patterns:
        here = before + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from routes(pattern.url_patterns, here)
        else:
            yield here


def concrete(route: str) -> str:
    import re

    return "/" + re.sub(r"<(?:(\w+):)?\w+>", lambda found: VALUES.get(found[1] or "str", "none"), route).lstrip("^")


PRIVATE = sorted({route for route in routes(get_resolver().url_patterns) if not route.startswith(tuple(OPEN))})


@pytest.mark.django_db
@pytest.mark.parametrize("route", PRIVATE)
@pytest.mark.parametrize("method", ["get", "post"])
def test_a_stranger_is_sent_to_sign_in(client: Client, route: str, method: str) -> None:
    response = getattr(client, method)(concrete(route))
    asked = response.status_code == 302 and response["Location"].startswith("/accounts/login/")
    assert asked or response.status_code in {401, 403, 405}, f"{route} answered {response.status_code} to nobody"
