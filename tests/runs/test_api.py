"""Runs over the API."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from django.test import Client

from apps.runs import tasks
from apps.runs.models import Run
from apps.tools.models import ToolSession
from apps.workflows.models import Workflow
from tests import factories
from tests.factories import Cast
from tests.runs.starts import fresh, running, start
from tests.tools import world

pytestmark = [pytest.mark.django_db(transaction=True)]


class Caller:
    """One who calls the API with a token."""

    def __init__(self, cast: Cast, name: str, *scopes: str) -> None:
        token = factories.make_token(cast.team, getattr(cast, name), *scopes)
        self.client = Client(headers={"Authorization": f"Bearer {token}"})

    def get(self, path: str) -> tuple[int, Any]:
        answer = self.client.get(f"/api/v1{path}")
        return answer.status_code, answer.json()

    def post(self, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
        answer = self.client.post(
            f"/api/v1{path}", json.dumps(body or {}), content_type="application/json", headers=headers
        )
        return answer.status_code, answer.json()


@pytest.fixture
def operator(cast: Cast) -> Caller:
    return Caller(cast, "operator", "read", "run")


@pytest.fixture
def viewer(cast: Cast) -> Caller:
    return Caller(cast, "viewer", "read")


@pytest.fixture
def outsider(cast: Cast) -> Caller:
    team = cast.outsider.teams.get()
    token = factories.make_token(team, cast.outsider, "read", "run")
    caller = object.__new__(Caller)
    caller.client = Client(headers={"Authorization": f"Bearer {token}"})
    return caller


def test_a_started_run_is_accepted_and_can_be_read(operator: Caller, workflow: Workflow, cast: Cast) -> None:
    status, accepted = operator.post(f"/workflows/{workflow.slug}/runs")
    assert status == 202
    run = Run.objects.get(pk=accepted["run_id"])
    assert (run.entry_path, run.initiator) == ("api", cast.operator)
    assert accepted["status_url"].endswith(f"/api/v1/runs/{run.pk}")
    status, shown = operator.get(f"/runs/{run.pk}")
    assert (status, shown["id"], shown["status"]) == (200, str(run.pk), "queued")
    assert shown["reason_code"] == "no_worker"
    assert [step["step_id"] for step in shown["steps"]] == ["hello"]
    assert shown["trigger"]["entry_path"] == "api"


def test_the_same_idempotency_key_names_the_same_run(operator: Caller, workflow: Workflow) -> None:
    path = f"/workflows/{workflow.slug}/runs"
    status, first = operator.post(path, {}, **{"Idempotency-Key": "once"})
    assert status == 202
    status, second = operator.post(path, {}, **{"Idempotency-Key": "once"})
    assert (status, second["run_id"]) == (200, first["run_id"])
    status, refused = operator.post(path, {"group": "default"}, **{"Idempotency-Key": "once"})
    assert (status, refused["code"]) == (409, "idempotency_conflict")
    assert Run.objects.count() == 1
    assert operator.post(path)[1]["run_id"] != first["run_id"]


def test_refusals_have_the_one_shape_and_name_the_place(operator: Caller, workflow: Workflow) -> None:
    status, refused = operator.post(f"/workflows/{workflow.slug}/runs", {"variables": {"NOPE": 1}})
    assert (status, refused["code"]) == (400, "inputs_rejected")
    assert refused["fields"][0]["path"] == "variables.NOPE"
    status, refused = operator.post(f"/workflows/{workflow.slug}/runs", {"unknown": 1})
    assert status == 422
    assert not Run.objects.exists()


@pytest.mark.sandbox
def test_events_log_and_contract_of_a_run_are_served(operator: Caller, workflow: Workflow) -> None:
    run = start(workflow)
    tasks.advance_run(str(run.pk))
    status, events = operator.get(f"/runs/{run.pk}/events?after=2")
    assert [event["seq"] for event in events["items"]] == list(range(3, fresh(run).last_seq + 1))
    assert set(events["items"][0]) == {"stream", "seq", "kind", "at", "ids", "data"}
    status, piece = operator.get(f"/runs/{run.pk}/steps/hello/log")
    assert (status, base64.b64decode(piece["data_base64"]), piece["sealed"]) == (200, b"hello\n", True)
    status, rest = operator.get(f"/runs/{run.pk}/steps/hello/log?offset=2&limit=3")
    assert (base64.b64decode(rest["data_base64"]), rest["next_offset"], rest["total_bytes"]) == (b"llo", 5, 6)
    status, contract = operator.get(f"/runs/{run.pk}/steps/hello/contract")
    assert status == 200
    assert contract["fingerprint"] == contract["contract"]["fingerprint"]
    assert operator.get(f"/runs/{run.pk}/steps/nowhere/log")[0] == 404
    status, listed = operator.get("/runs?status=succeeded")
    assert [row["id"] for row in listed["items"]] == [str(run.pk)]


def test_a_refused_call_is_served_to_the_runs_on_both_sides(viewer: Caller, workflow: Workflow) -> None:
    mine, other = (ToolSession.objects.get(run_id=start(workflow).pk) for _ in range(2))
    victim, stranger = world.open_step(mine), world.open_step(other)
    with world.listening(victim) as (_, path):
        client = world.Client(path, stranger.token)
        client.call("query_workflow_db", {"sql": "SELECT 1"})
        client.close()
    for run in (mine.run_id, other.run_id):
        status, shown = viewer.get(f"/runs/{run}/ownership")
        (refused,) = shown["items"]
        assert (status, refused["reason"], len(shown["sessions"])) == (200, "not_owner", 2)
        assert (refused["caller_run_id"], refused["owner_run_id"]) == (str(other.run_id), str(mine.run_id))
        assert str(stranger.session.pk) in refused["caller"]
        assert str(victim.session.pk) in refused["tool_session"]
    status, calls = viewer.get(f"/runs/{mine.run_id}/tool-calls")
    assert [(row["session"], row["authority"], row["verdict"]) for row in calls["items"]] == [
        (str(victim.session.pk), str(mine.pk), "not_owner")
    ]


def test_cancel_and_rerun(operator: Caller, workflow: Workflow) -> None:
    run = start(workflow)
    assert operator.post(f"/runs/{run.pk}/rerun")[1]["code"] == "run_not_ended"
    status, cancelled = operator.post(f"/runs/{run.pk}/cancel")
    assert (status, cancelled["status"]) == (202, "cancelled")
    assert operator.post(f"/runs/{run.pk}/cancel")[0] == 409
    status, again = operator.post(f"/runs/{run.pk}/rerun", {})
    assert status == 202
    assert Run.objects.get(pk=again["run_id"]).rerun_of == run


def test_a_running_run_is_asked_and_says_cancelling(operator: Caller, workflow: Workflow) -> None:
    run, _ = running(workflow)
    status, asked = operator.post(f"/runs/{run.pk}/cancel")
    assert (status, asked["status"]) == (202, "running")
    assert operator.get(f"/runs/{run.pk}")[1]["cancelling"] is True


@pytest.mark.parametrize("path", ["cancel", "rerun", "settle"])
def test_a_viewer_may_look_and_not_touch(viewer: Caller, workflow: Workflow, path: str) -> None:
    run = start(workflow)
    assert viewer.get(f"/runs/{run.pk}")[0] == 200
    body = {"step_id": "hello", "choice": "run_again"} if path == "settle" else {}
    assert viewer.post(f"/runs/{run.pk}/{path}", body)[0] == 403
    assert viewer.post(f"/workflows/{workflow.slug}/runs")[0] == 403
    assert fresh(run).status == "queued"


@pytest.mark.parametrize(
    "path", ["", "/events", "/steps/hello/log", "/steps/hello/contract", "/tool-calls", "/ownership"]
)
def test_another_teams_run_is_not_there(outsider: Caller, workflow: Workflow, path: str) -> None:
    run = start(workflow)
    status, there = outsider.get(f"/runs/{run.pk}{path}")
    other, nowhere = outsider.get(f"/runs/018f0000-0000-7000-8000-000000000000{path}")
    assert status == other == 404
    assert {**there, "request_id": ""} == {**nowhere, "request_id": ""}
    assert outsider.post(f"/runs/{run.pk}/cancel")[0] == 404


@pytest.mark.sandbox
def test_one_step_can_be_executed_by_itself(operator: Caller, workflow: Workflow) -> None:
    status, accepted = operator.post(f"/workflows/{workflow.slug}/steps/hello/execute", {"script_parameters": {}})
    assert status == 202
    run = Run.objects.get(pk=accepted["run_id"])
    tasks.advance_run(str(run.pk))
    assert (fresh(run).scope, fresh(run).status) == ("step", "succeeded")
    assert operator.post(f"/workflows/{workflow.slug}/steps/nowhere/execute")[0] == 400
