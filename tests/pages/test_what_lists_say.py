"""Lists of deliveries and sessions: what their filters find, and what they say when there is nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.test import Client

from apps.accounts.models import User
from apps.tools.models import ToolSession
from apps.webhooks.models import Delivery
from tests import factories
from tests.browser.demo import Demo

AsUser = Callable[[User], Client]


def test_deliveries_that_came_more_than_once_are_found_by_their_pill(demo: Demo, as_user: AsUser) -> None:
    client = as_user(demo.cast.viewer)
    text = client.get("/deliveries/?verdict=duplicate").text
    assert text.count("<tr hx-disable>") == Delivery.objects.filter(copies__gt=0).count() == 1
    assert "+3 duplicates" in text
    Delivery.objects.update(copies=0)
    text = client.get("/deliveries/?verdict=duplicate").text
    assert "No delivery fits" in text
    assert "Make a trigger" not in text


def test_a_session_says_whose_it_is(demo: Demo, as_user: AsUser) -> None:
    session = ToolSession.objects.select_related("workflow", "acting_user").get(pk=demo.session)
    text = as_user(demo.cast.viewer).get(f"/sessions/{demo.session}/").text
    facts = text.split("Whose it is")[1].split("</dl>")[0]
    for said in (f"/runs/{session.run_id}/", session.workflow.title, session.acting_user.username, session.db_access):
        assert said in facts, said
    assert "<dt>Opened</dt>" in facts
    assert "<dt>Ended</dt>" in facts


@pytest.mark.parametrize(
    "address", ["/", "/workflows/", "/runs/", "/runs/?status=failed", "/deliveries/", "/sessions/"]
)
def test_who_is_in_no_team_is_told_so_and_nothing_of_what_there_is(demo: Demo, as_user: AsUser, address: str) -> None:
    for staff, way in ((True, "/admin/accounts/membership/add/"), (False, "Ask an owner")):
        text = as_user(factories.make_user(staff=staff)).get(address).text
        assert "You are in no team" in text
        assert way in text
        for said in (
            "Nothing has run",
            "Nothing is running",
            "No tool call",
            "None in the last day",
            "No runs",
            "No run fits",
        ):
            assert said not in text, said
