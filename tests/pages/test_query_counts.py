"""How many queries a page takes: pinned, and the same however many rows there are."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from apps.accounts.models import User
from tests.browser.demo import Demo, add_past, seed

PINNED = {
    "/": 22,
    "/workflows/": 6,
    "/runs/": 6,
    "/deliveries/": 6,
    "/sessions/": 8,
    "/t/payments/workflows/pr-review/": 12,
    "/t/payments/workflows/pr-review/triggers/": 8,
    "a run": 12,
}


def count(client: Client, address: str) -> int:
    client.get(address)
    with CaptureQueriesContext(connection) as captured:
        client.get(address)
    return len(captured)


def counts(client: Client, demo: Demo) -> dict[str, int]:
    places = {name: name for name in PINNED} | {"a run": f"/runs/{demo.runs['good']}/"}
    return {name: count(client, address) for name, address in places.items()}


@pytest.mark.django_db
def test_pages_take_the_pinned_number_of_queries_however_many_rows_there_are(
    as_user: Callable[[User], Client],
) -> None:
    demo = seed(past=2)
    client = as_user(demo.cast.viewer)
    assert counts(client, demo) == PINNED
    add_past(demo, 80)
    assert counts(client, demo) == PINNED
