"""Who may open and do what: members by their role, outsiders nothing that they could tell apart from nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.http import HttpResponse
from django.test import Client

from apps.accounts import actions as accounts
from apps.accounts.models import User
from tests.browser.demo import Demo
from tests.pages import addresses
from tests.pages.downloads import sent

AsUser = Callable[[User], Client]


def get(client: Client, address: str) -> HttpResponse:
    response: HttpResponse = client.get(address)
    if response.streaming:
        assert sent(response)  # a download closes its file at its end
    return response


@pytest.mark.parametrize("role", ["viewer", "operator", "editor", "owner"])
def test_every_member_opens_every_page(demo: Demo, as_user: AsUser, role: str) -> None:
    client = as_user(getattr(demo.cast, role))
    for address in [*addresses.lists(demo), *addresses.objects(demo)]:
        assert get(client, address).status_code == 200, address


def test_an_outsider_finds_nothing_of_the_team(demo: Demo, as_user: AsUser) -> None:
    client = as_user(demo.cast.outsider)
    for address in addresses.objects(demo):
        assert get(client, address).status_code == 404, address
    for _, address, form in addresses.acts(demo):
        assert client.post(address, form).status_code == 404, address


def test_an_outsiders_lists_show_nothing_of_the_team(demo: Demo, as_user: AsUser) -> None:
    client = as_user(demo.cast.outsider)
    for address in addresses.lists(demo):
        text = client.get(address).text
        assert "Review a pull request" not in text, address
        assert "market-checks" not in text, address


def test_a_viewer_is_offered_nothing_and_refused_everything(demo: Demo, as_user: AsUser) -> None:
    client = as_user(demo.cast.viewer)
    assert 'data-may="read"' in client.get(f"/runs/{demo.runs['good']}/").text
    for _, address, form in addresses.acts(demo):
        response = client.post(address, form)
        assert response.status_code == 403, address
        assert "Nothing was done" in response.text


def test_an_operator_runs_and_does_not_edit(demo: Demo, as_user: AsUser) -> None:
    client = as_user(demo.cast.operator)
    for needs, address, form in addresses.acts(demo):
        status = client.post(address, form).status_code
        assert status == (403 if needs == "editor" else 302), address


def test_an_editor_does_it_all(demo: Demo, as_user: AsUser) -> None:
    client = as_user(demo.cast.editor)
    for _, address, form in addresses.acts(demo):
        assert client.post(address, form).status_code in {200, 302}, address


def test_acts_are_no_links(demo: Demo, as_user: AsUser) -> None:
    client = as_user(demo.cast.owner)
    for _, address, _ in addresses.acts(demo):
        assert client.get(address).status_code in {404, 405}, address


def test_a_role_taken_away_counts_from_the_next_request(demo: Demo, as_user: AsUser) -> None:
    client = as_user(demo.cast.viewer)
    accounts.remove_member(demo.cast.team, demo.cast.viewer, by=demo.cast.owner)
    assert client.get(f"/runs/{demo.runs['good']}/").status_code == 404


def test_pages_are_kept_in_no_cache(demo: Demo, as_user: AsUser) -> None:
    client = as_user(demo.cast.viewer)
    for address in [*addresses.lists(demo), *addresses.objects(demo)]:
        assert "no-store" in get(client, address)["Cache-Control"], address
