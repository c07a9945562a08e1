"""How often a token, or an address with bad tokens, may ask."""

from __future__ import annotations

import pytest
from django.core.cache import cache
from django.test import Client

from apps.accounts import api_base, limits
from apps.tools import api as tools_api
from tests.factories import make_team, make_token

pytestmark = pytest.mark.django_db
LIST = "/api/v1/workflows"
CALL = "/api/v1/tools/query_workflow_db"


@pytest.fixture(autouse=True)
def _nothing_counted():
    cache.clear()
    yield
    cache.clear()


@pytest.fixture(autouse=True)
def _one_window(monkeypatch):
    monkeypatch.setattr(limits.time, "time", lambda: 1_000_000.0)


def ask(secret, address="192.0.2.1"):
    return Client(REMOTE_ADDR=address).get(LIST, headers={"Authorization": f"Bearer {secret}"})


def test_a_token_that_asks_too_often_is_told_when_to_come_back(settings):
    settings.PULSE_API_RATE = 3
    cast = make_team()
    mine, theirs = make_token(cast.team, cast.viewer, "read"), make_token(cast.team, cast.editor, "read")
    assert [ask(mine).status_code for _ in range(4)] == [200, 200, 200, 429]
    answer = ask(mine)
    assert answer.json()["code"] == "rate_limited"
    assert 0 < int(answer["Retry-After"]) <= 60
    assert ask(theirs).status_code == 200


def test_an_address_that_guesses_tokens_is_shut_out_for_a_while(monkeypatch):
    monkeypatch.setattr(api_base, "BAD_TOKENS", {"most": 3, "seconds": 300})
    cast = make_team()
    good = make_token(cast.team, cast.viewer, "read")
    assert [ask("pat_wrong").status_code for _ in range(4)] == [401, 401, 401, 429]
    assert ask(good).status_code == 429
    assert ask(good, "192.0.2.2").status_code == 200


def test_an_address_that_guesses_tokens_of_sessions_is_shut_out_for_a_while(monkeypatch):
    monkeypatch.setattr(tools_api, "UNKNOWN_TOKENS", {"most": 3, "seconds": 300})

    def call(number, address="192.0.2.1"):
        headers = {"Authorization": f"Bearer {number}"}
        client = Client(REMOTE_ADDR=address)
        return client.post(CALL, "{}", content_type="application/json", headers=headers).status_code

    assert [call(number) for number in range(4)] == [401, 401, 401, 429]
    assert call(5, "192.0.2.2") == 401


def test_the_next_window_is_free_again(monkeypatch, settings):
    settings.PULSE_API_RATE = 1
    cast = make_team()
    secret = make_token(cast.team, cast.viewer, "read")
    assert [ask(secret).status_code, ask(secret).status_code] == [200, 429]
    monkeypatch.setattr(limits.time, "time", lambda: 1_000_060.0)
    assert ask(secret).status_code == 200
