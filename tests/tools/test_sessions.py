"""Opening, suspending and ending sessions, inside the caller's transaction."""

from __future__ import annotations

import hashlib

import pytest
from django.db import transaction

from apps.accounts.roles import Role
from apps.tools import actions, catalogue, closing
from apps.tools.errors import Code, SessionRefused
from apps.tools.models import LedgerSeal, ToolSession
from apps.workflows.places import places_of
from engine.document import release
from engine.ids import uuid7
from tests.tools import world

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.databases]


def refused_with(code: str, **facts):
    with pytest.raises(SessionRefused) as caught, transaction.atomic():
        actions.open_session(**facts)
    assert caught.value.code == code
    assert "No session was opened" in caught.value.detail or "No second one" in caught.value.detail


def test_a_token_is_shown_once_and_only_its_sha256_is_kept():
    opened = world.open_client(world.make_workflow(migration=""))
    assert opened.token is not None
    assert opened.token.startswith("pst_")
    assert len(opened.token) == len("pst_") + 43
    row = ToolSession.objects.values().get(pk=opened.session.pk)
    assert row["token_sha256"] == hashlib.sha256(opened.token.encode()).hexdigest()
    assert opened.token not in str(row)


def test_a_session_is_opened_with_the_callers_transaction_or_not_at_all():
    workflow = world.make_workflow(migration="")
    with transaction.atomic():
        actions.open_session(kind="api", name="x", workflow=workflow, acting_user=workflow.owner, tools=[])
        transaction.set_rollback(True)
    assert not ToolSession.objects.exists()


def test_an_unknown_tool_opens_nothing():
    workflow = world.make_workflow(migration="")
    refused_with(
        Code.TOOL_NOT_FOUND, kind="api", name="x", workflow=workflow, acting_user=workflow.owner, tools=["nonsense"]
    )


def test_a_step_needs_its_live_run_as_parent():
    workflow = world.make_workflow(migration="")
    facts = {"kind": "step", "name": "x", "workflow": workflow, "acting_user": workflow.owner, "tools": []}
    refused_with(Code.NOT_REGISTERED, **facts, attempt_id=uuid7())
    run = world.open_run(workflow)
    world.end(run)
    refused_with(Code.PARENT_ENDED, **facts, parent=run, run_id=run.run_id, attempt_id=uuid7())


def test_a_parent_of_another_workflow_is_no_parent():
    run = world.open_run(world.make_workflow(migration=""))
    other = world.make_workflow(migration="")
    refused_with(
        Code.NOT_REGISTERED,
        kind="step",
        name=run.name,
        workflow=other,
        acting_user=other.owner,
        tools=[],
        parent=run,
        attempt_id=uuid7(),
    )


def test_a_step_is_no_parent_of_another_step():
    step = world.open_step(world.open_run(world.make_workflow(migration=""))).session
    refused_with(
        Code.NOT_REGISTERED,
        kind="agent",
        name="x",
        workflow=step.workflow,
        acting_user=step.acting_user,
        tools=[],
        parent=step,
    )


def test_a_run_and_an_attempt_have_one_session_each():
    workflow = world.make_workflow(migration="")
    run = world.open_run(workflow)
    step = world.open_step(run).session
    with pytest.raises(SessionRefused) as caught:
        world.open_run(workflow, run.run_id)
    assert caught.value.code == Code.AMBIGUOUS
    facts = {"name": "x", "workflow": workflow, "acting_user": workflow.owner, "tools": []}
    refused_with(Code.AMBIGUOUS, kind="step", parent=run, run_id=run.run_id, attempt_id=step.attempt_id, **facts)


@pytest.mark.parametrize("role", [Role.VIEWER, None])
def test_who_may_not_run_opens_no_session(role):
    workflow = world.make_workflow(migration="")
    user = world.make_user(role, workflow.team)
    refused_with(
        Code.PERMISSIONS_CHANGED, kind="api", name="x", workflow=workflow, acting_user=user, tools=["read_receipt"]
    )


def test_an_operator_reads_but_opens_no_session_that_writes():
    workflow = world.make_workflow(migration="")
    operator = world.make_user(Role.OPERATOR, workflow.team)
    world.open_client(workflow, operator, tools=("query_workflow_db",), db_access="read")
    refused_with(
        Code.PERMISSIONS_CHANGED,
        kind="api",
        name="x",
        workflow=workflow,
        acting_user=operator,
        tools=["mutate_workflow_db"],
        db_access="read-write",
    )


def test_who_may_mutate_may_read_back_what_became_of_it():
    run = world.open_run(world.make_workflow(migration=""))
    assert world.open_step(run, tools=("mutate_workflow_db",)).session.tools == ["mutate_workflow_db", "read_receipt"]
    assert world.open_step(run, tools=("query_workflow_db",)).session.tools == ["query_workflow_db"]


def test_the_end_of_an_authority_is_the_end_of_its_children():
    run = world.open_run(world.make_workflow(migration=""))
    step = world.open_step(run).session
    assert world.end(run, "cancelled")
    step.refresh_from_db()
    assert (step.state, step.end_reason) == ("ended", "parent_ended")


def test_all_sessions_of_a_run_end_with_it_and_no_others():
    workflow = world.make_workflow(migration="")
    run, other = world.open_run(workflow), world.open_run(workflow)
    step, chat = world.open_step(run).session, world.open_client(workflow, kind="chat").session
    with transaction.atomic():
        assert actions.end_sessions_of_run(run.run_id, "succeeded") == 2
    states = dict(ToolSession.objects.values_list("pk", "state"))
    assert states == {run.pk: "ended", step.pk: "ended", other.pk: "live", chat.pk: "live"}


def test_an_end_is_final_and_told_once():
    session = world.open_client(world.make_workflow(migration="")).session
    assert world.end(session, "first")
    assert not world.end(session, "second")
    session.refresh_from_db()
    assert session.end_reason == "first"


def test_an_end_whose_finishing_fails_has_ended_and_is_finished_later():
    session = world.open_client(world.make_workflow(migration="")).session
    journals = places_of(session.workflow).root / "journals"
    journals.parent.mkdir(parents=True, exist_ok=True)
    journals.write_text("no folder")
    assert world.end(session)
    assert not LedgerSeal.objects.exists()
    journals.unlink()
    assert closing.finish_ended() == 1
    assert LedgerSeal.objects.get().session_id == session.pk


def test_a_run_session_is_suspended_and_resumed():
    run = world.open_run(world.make_workflow(migration=""))
    with transaction.atomic():
        assert actions.suspend_run_session(run.run_id)
        assert not actions.suspend_run_session(run.run_id)
        run.refresh_from_db()
        assert run.state == "suspended"
        assert actions.resume_run_session(run.run_id)
    run.refresh_from_db()
    assert run.state == "live"


def test_the_catalogue_has_what_the_document_says_that_this_release_has():
    assert set(catalogue.names()) == release.TOOLS
    assert catalogue.known("query_workflow_db")
    assert not catalogue.known("execute_step")
