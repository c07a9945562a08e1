from __future__ import annotations

import pytest
from django.test import Client

from tests.factories import document, make_team, make_token, make_workflow

pytestmark = pytest.mark.django_db
LIST = "/api/v1/workflows"


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


def test_a_live_token_is_let_in():
    cast = make_team()
    answer = Client().get(LIST, headers=bearer(make_token(cast.team, cast.viewer, "read")))
    assert answer.status_code == 200
    assert answer.json() == {"items": [], "next_cursor": None}


@pytest.mark.parametrize(
    "headers",
    [{}, bearer("pat_wrong"), {"Authorization": "Basic eDp5"}, {"Authorization": "Bearer"}],
    ids=["none", "wrong", "another scheme", "empty"],
)
def test_without_a_live_token_it_answers_401_in_the_shape_of_every_error(headers):
    answer = Client().get(LIST, headers=headers)
    body = answer.json()
    assert answer.status_code == 401
    assert answer["Content-Type"] == "application/problem+json"
    assert answer["WWW-Authenticate"].startswith("Bearer")
    assert set(body) == {"type", "title", "status", "code", "detail", "fields", "request_id"}
    assert body["code"] == "token_required"
    assert body["request_id"] == answer["X-Request-Id"]


def test_two_credentials_are_none():
    cast = make_team()
    good = make_token(cast.team, cast.viewer, "read")
    answer = Client().get(LIST, headers={"Authorization": f"Bearer {good},Bearer {good}"})
    assert answer.status_code == 401


def test_a_token_in_the_address_is_not_taken():
    cast = make_team()
    good = make_token(cast.team, cast.viewer, "read")
    assert Client().get(f"{LIST}?token={good}&access_token={good}").status_code == 401


def test_a_signed_in_browser_is_not_taken_for_a_token():
    cast = make_team()
    client = Client()
    client.force_login(cast.owner)
    assert client.get(LIST).status_code == 401


def test_a_missing_scope_is_named():
    cast = make_team()
    answer = Client().get(LIST, headers=bearer(make_token(cast.team, cast.owner, "run")))
    assert answer.status_code == 403
    assert answer.json()["code"] == "scope_missing"
    assert "read" in answer.json()["detail"]


def test_pages_of_a_list_hold_each_row_once_while_rows_arrive():
    cast = make_team()
    headers = bearer(make_token(cast.team, cast.viewer, "read"))
    before = {make_workflow(cast.team, cast.editor).slug for _ in range(5)}
    first = Client().get(f"{LIST}?limit=2", headers=headers).json()
    make_workflow(cast.team, cast.editor)
    seen = [row["slug"] for row in first["items"]]
    cursor = first["next_cursor"]
    while cursor:
        page = Client().get(f"{LIST}?limit=2&cursor={cursor}", headers=headers).json()
        seen += [row["slug"] for row in page["items"]]
        cursor = page["next_cursor"]
    assert len(seen) == 5
    assert set(seen) == before


@pytest.mark.parametrize("query", ["limit=0", "limit=201", "cursor=%21", "cursor=Im5vLXV1aWQi", "limit=many"])
def test_it_refuses_limits_and_cursors_that_it_never_gave(query):
    cast = make_team()
    answer = Client().get(f"{LIST}?{query}", headers=bearer(make_token(cast.team, cast.viewer, "read")))
    assert answer.status_code in {400, 422}
    assert answer.json()["fields"]


def test_a_team_never_sees_another_teams_rows():
    cast, other = make_team(), make_team()
    make_workflow(other.team, other.editor, document("theirs"))
    headers = bearer(make_token(cast.team, cast.owner, "read", "build"))
    assert Client().get(LIST, headers=headers).json()["items"] == []
    assert Client().get(f"{LIST}/theirs", headers=headers).status_code == 404
    assert Client().get(f"{LIST}/theirs/export", headers=headers).status_code == 404
