"""Tools and sessions over HTTP: the same dispatcher, the same codes."""

from __future__ import annotations

import json

import pytest
from django.test import Client as Browser

from apps.accounts import actions as people
from apps.accounts.roles import Role
from apps.accounts.scopes import Scope
from apps.tools import ledger
from apps.tools.models import OwnershipDiagnostic, Receipt, ToolCall, ToolSession
from engine.ids import uuid7
from tests.tools import world

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.databases]
INSERT = {"sql": "INSERT INTO notes (who) VALUES ('me')"}


@pytest.fixture
def workflow():
    return world.make_workflow()


@pytest.fixture
def opened(workflow):
    return world.open_client(workflow)


def post(token, tool, body, *, key=None, named=None, raw=None):
    headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
    if key is not None:
        headers["Idempotency-Key"] = key
    if named is not None:
        headers["X-Pulse-Session"] = named
    return Browser().post(
        f"/api/v1/tools/{tool}",
        raw if raw is not None else json.dumps(body),
        content_type="application/json",
        headers=headers,
    )


def token_of(workflow, role=Role.EDITOR, scopes=(Scope.READ, Scope.RUN, Scope.BUILD)) -> str:
    user = world.make_user(role, workflow.team)
    return people.make_token(workflow.team, user, name="t", scopes=list(scopes), by=user).secret


def api(method, path, token, body=None):
    send = getattr(Browser(), method)
    more = {"data": json.dumps(body), "content_type": "application/json"} if body is not None else {}
    return send(f"/api/v1{path}", headers={"Authorization": f"Bearer {token}"}, **more)


def test_a_call_answers_with_the_envelope_and_has_its_row(opened):
    answer = post(opened.token, "mutate_workflow_db", INSERT)
    assert answer.status_code == 200
    body = answer.json()
    assert (body["success"], body["result"]["changes"], body["error"]) == (True, 1, None)
    row = ToolCall.objects.get()
    assert (row.outcome, row.session_id, row.authority_id) == ("applied", opened.session.pk, opened.session.pk)
    assert Receipt.objects.get().state == "applied"


def test_arguments_may_stand_in_an_envelope_with_a_named_session(opened):
    body = {"arguments": {"sql": "SELECT 1 AS one"}, "session": str(opened.session.pk)}
    assert post(opened.token, "query_workflow_db", body).json()["result"]["rows"] == [{"one": 1}]


@pytest.mark.parametrize("where", ["header", "body"])
def test_another_session_named_in_header_or_body_is_not_owner(workflow, opened, where):
    other = str(world.open_client(workflow).session.pk)
    if where == "header":
        answer = post(opened.token, "query_workflow_db", {"sql": "SELECT 1"}, named=other)
    else:
        answer = post(opened.token, "query_workflow_db", {"arguments": {"sql": "SELECT 1"}, "session": other})
    assert answer.status_code == 403
    assert answer.json()["error"]["code"] == "not_owner"
    assert other in OwnershipDiagnostic.objects.get().tool_session


def test_the_same_key_is_done_once_and_gets_the_stored_answer(opened):
    key = str(uuid7())
    first = post(opened.token, "mutate_workflow_db", INSERT, key=key).json()
    assert post(opened.token, "mutate_workflow_db", INSERT, key=key).json() == first
    conflict = post(opened.token, "mutate_workflow_db", {"sql": "DELETE FROM notes"}, key=key)
    assert (conflict.status_code, conflict.json()["error"]["code"]) == (409, "call_conflict")
    counted = post(opened.token, "query_workflow_db", {"sql": "SELECT count(*) AS c FROM notes"}).json()
    assert counted["result"]["rows"] == [{"c": 1}]


@pytest.mark.parametrize(
    ("tool", "body", "status", "code"),
    [
        ("no_such_tool", {}, 404, "tool_not_found"),
        ("query_workflow_db", {"sql": 5}, 422, "arguments_rejected"),
        ("query_workflow_db", {"sql": "SELECT * FROM nowhere"}, 422, "sql_error"),
        ("mutate_workflow_db", {"sql": "DROP TABLE notes"}, 422, "sql_error"),
    ],
)
def test_each_code_has_its_status(opened, tool, body, status, code):
    answer = post(opened.token, tool, body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


@pytest.mark.parametrize("raw", ['{"sql": NaN}', '{"sql": "a", "sql": "b"}', "[1]", "nonsense", "[" * 5000])
def test_a_body_that_is_no_strict_json_object_is_malformed(opened, raw):
    answer = post(opened.token, "query_workflow_db", None, raw=raw)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "malformed")


def test_a_key_that_is_no_uuid_is_malformed(opened):
    assert post(opened.token, "query_workflow_db", {"sql": "SELECT 1"}, key="again").status_code == 400


def test_without_a_token_nothing_is_asked(opened):
    assert post(None, "query_workflow_db", {}).status_code == 401
    assert post(f"{opened.token}, {opened.token}", "query_workflow_db", {}).status_code == 401
    assert not OwnershipDiagnostic.objects.exists()


def test_a_forged_token_and_an_ended_session_are_401(opened):
    assert post("pst_forged", "query_workflow_db", {}).json()["error"]["code"] == "session_unknown"
    world.end(opened.session)
    answer = post(opened.token, "query_workflow_db", {"sql": "SELECT 1"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "session_ended")
    assert OwnershipDiagnostic.objects.count() == 2


def test_a_teams_api_token_is_no_session(workflow):
    assert post(token_of(workflow), "query_workflow_db", {"sql": "SELECT 1"}).status_code == 401


def test_too_many_calls_a_minute_are_429(opened, monkeypatch):
    monkeypatch.setattr("apps.tools.http_desk.CALLS_A_MINUTE", 2)
    statuses = [post(opened.token, "query_workflow_db", {"sql": "SELECT 1"}).status_code for _ in range(4)]
    assert statuses == [200, 200, 429, 429]


def test_a_call_of_3_mb_is_taken(opened):
    body = {"sql": "INSERT INTO notes (who) VALUES (?)", "params": ["x" * 3_000_000]}
    assert post(opened.token, "mutate_workflow_db", body).json()["result"]["changes"] == 1


def test_many_calls_of_one_session_make_one_chain(opened):
    for _ in range(20):
        assert post(opened.token, "query_workflow_db", {"sql": "SELECT 1"}).status_code == 200
    world.end(opened.session)
    verdict = ledger.verify(opened.session.pk)
    assert (verdict.ok, verdict.sealed, verdict.rows) == (True, True, 20)


def test_a_client_opens_a_session_uses_it_and_ends_it(workflow):
    token = token_of(workflow)
    made = api("post", "/sessions", token, {"kind": "api", "workflow": workflow.slug, "tools": ["mutate_workflow_db"]})
    assert made.status_code == 201
    body = made.json()
    assert body["token"].startswith("pst_")
    assert (body["tools"], body["db_access"]) == (["mutate_workflow_db", "read_receipt"], "read-write")
    assert post(body["token"], "mutate_workflow_db", INSERT).status_code == 200
    shown = api("get", f"/sessions/{body['id']}", token).json()
    assert "token" not in shown
    assert body["token"] not in api("get", "/sessions", token).content.decode()
    assert api("delete", f"/sessions/{body['id']}", token).status_code == 204
    assert post(body["token"], "mutate_workflow_db", INSERT).status_code == 401


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"kind": "run"}, 422),
        ({"kind": "step"}, 422),
        ({"tools": []}, 422),
        ({"tools": ["no_such_tool"]}, 409),
        ({"workflow": "nowhere"}, 404),
        ({"more": 1}, 422),
    ],
)
def test_what_no_client_may_open_is_refused(workflow, changes, status):
    body = {"kind": "chat", "workflow": workflow.slug, "tools": ["query_workflow_db"], **changes}
    assert api("post", "/sessions", token_of(workflow), body).status_code == status
    assert not ToolSession.objects.exists()


def test_who_may_only_run_opens_no_session_that_writes(workflow):
    token = token_of(workflow, Role.OPERATOR, (Scope.READ, Scope.RUN))
    body = {"kind": "api", "workflow": workflow.slug, "tools": ["mutate_workflow_db"]}
    assert api("post", "/sessions", token, body).status_code == 403
    assert api("post", "/sessions", token, body | {"tools": ["query_workflow_db"]}).status_code == 201


def test_another_teams_sessions_and_workflows_are_not_there(workflow, opened):
    stranger = token_of(world.make_workflow())
    assert api("get", f"/sessions/{opened.session.pk}", stranger).status_code == 404
    assert api("delete", f"/sessions/{opened.session.pk}", stranger).status_code == 404
    assert api("get", "/sessions", stranger).json()["items"] == []
    body = {"kind": "api", "workflow": workflow.slug, "tools": ["query_workflow_db"]}
    assert api("post", "/sessions", stranger, body).status_code == 404


def test_a_runs_session_is_not_a_clients_to_end(workflow):
    run = world.open_run(workflow)
    assert api("delete", f"/sessions/{run.pk}", token_of(workflow)).status_code == 409
    run.refresh_from_db()
    assert run.state == "live"
