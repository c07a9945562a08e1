"""BEHAVIOUR 6.3: who may call what, each refusal with its code, in the order that is published, and its diagnostic."""

from __future__ import annotations

import logging
from collections import Counter
from contextlib import contextmanager

import pytest
from django.db import transaction

from apps.accounts import actions as people
from apps.accounts.roles import Role
from apps.tools import actions, diagnostics, identity
from apps.tools.diagnostics import Sides
from apps.tools.errors import Code
from apps.tools.models import OwnershipDiagnostic, ToolCall, ToolSession
from apps.workflows import actions as workflows
from apps.workflows.places import places_of
from tests.tools import world

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.databases]


@pytest.fixture
def workflow():
    return world.make_workflow()


def code_of(answer) -> str:
    assert answer["success"] is False
    return answer["error"]["code"]


@contextmanager
def connected(socket_of, token):
    """A client that presents `token` on the socket of the session `socket_of`."""
    with world.listening(socket_of) as (_, path):
        client = world.Client(path, token)
        try:
            yield client
        finally:
            client.close()


def test_a_child_acts_with_its_runs_identity(workflow):
    run = world.open_run(workflow)
    step = world.open_step(run)
    with world.client_of(step) as client:
        assert client.query("SELECT 1 AS one")["success"]
    row = ToolCall.objects.get()
    assert (row.session_id, row.authority_id, row.run_id) == (step.session.pk, run.pk, run.run_id)
    assert (row.step_id, row.attempt_id, row.verdict) == ("gate", step.session.attempt_id, "allowed")


def test_a_forged_token_is_session_unknown(workflow):
    step = world.open_step(world.open_run(workflow))
    with connected(step, "pst_forged") as client:
        answer = client.query("SELECT 1")
    assert code_of(answer) == "session_unknown"
    assert answer["error"]["message"] == "query_workflow_db caller does not own this tool session"


def test_a_token_whose_session_has_ended_is_session_ended(workflow):
    step = world.open_step(world.open_run(workflow))
    with world.client_of(step) as client:
        assert client.query("SELECT 1")["success"]
        world.end(step.session)
        assert code_of(client.query("SELECT 1")) == "session_ended"


def test_after_the_run_was_cancelled_a_step_is_refused(workflow):
    run = world.open_run(workflow)
    step = world.open_step(run)
    with world.client_of(step) as client:
        with transaction.atomic():
            actions.end_sessions_of_run(run.run_id, "cancelled")
        assert code_of(client.query("SELECT 1")) == "session_ended"


def test_the_token_of_another_attempt_is_not_owner_on_this_socket(workflow):
    run = world.open_run(workflow)
    first, second = world.open_step(run, step_id="a"), world.open_step(run, step_id="b")
    with connected(second, first.token) as client:
        assert code_of(client.mutate("INSERT INTO notes (who) VALUES ('thief')")) == "not_owner"
        client.close()
    row = OwnershipDiagnostic.objects.get()
    assert str(first.session.pk) in row.caller
    assert str(second.session.pk) in row.tool_session
    assert ToolCall.objects.get().session_id == second.session.pk


def test_a_run_of_another_workflow_is_not_owner_and_both_runs_are_named(workflow):
    mine, other = world.open_run(workflow), world.open_run(world.make_workflow())
    foreign, owner = world.open_step(mine), world.open_step(other)
    with connected(owner, foreign.token) as client:
        assert code_of(client.query("SELECT 1")) == "not_owner"
    row = OwnershipDiagnostic.objects.get()
    assert (row.caller_run_id, row.owner_run_id) == (mine.run_id, other.run_id)
    assert (row.workflow_id, row.owner_workflow_id) == (mine.workflow_id, other.workflow_id)


def test_a_named_session_may_be_ones_own_or_the_authority(workflow):
    run = world.open_run(workflow)
    step = world.open_step(run)
    with world.client_of(step) as client:
        for named in (step.session.pk, run.pk):
            assert client.call("query_workflow_db", {"sql": "SELECT 1"}, session=str(named))["success"]


def test_a_named_sibling_chat_or_other_run_is_not_owner(workflow):
    run = world.open_run(workflow)
    step, sibling = world.open_step(run, step_id="a"), world.open_step(run, step_id="b")
    chat, other = world.open_client(workflow, kind="chat"), world.open_run(workflow)
    with world.client_of(step) as client:
        for named in (sibling.session, chat.session, other):
            answer = client.call("query_workflow_db", {"sql": "SELECT 1"}, session=str(named.pk))
            assert code_of(answer) == "not_owner"
            assert str(named.pk) in OwnershipDiagnostic.objects.order_by("-at")[0].tool_session


@pytest.mark.parametrize("lookalike", ["session-group-default-1", "session-group-default-1-gate", "", "none"])
def test_names_prove_nothing(workflow, lookalike):
    step = world.open_step(world.open_run(workflow))
    with world.client_of(step) as client:
        answer = client.call("query_workflow_db", {"sql": "SELECT 1"}, session=lookalike)
    assert code_of(answer) == "not_owner"
    assert OwnershipDiagnostic.objects.get().tool_session == (lookalike or "(empty)")


def test_a_token_or_a_secret_given_as_a_session_is_kept_nowhere(workflow, caplog):
    workflows.set_secret(workflow.team, name="WORD", value="open-sesame-open", by=workflow.owner)
    step, chat = world.open_step(world.open_run(workflow)), world.open_client(workflow, kind="chat")
    with world.client_of(step) as client:
        for named in (step.token, chat.token, "open-sesame-open", "b3BlbnNlc2FtZW9wZW5zZXNhbWU", "0" * 32, "a\0b"):
            assert code_of(client.call("query_workflow_db", {"sql": "SELECT 1"}, session=named)) == "not_owner"
            row = OwnershipDiagnostic.objects.order_by("-at")[0]
            assert row.tool_session.startswith("unknown-")
            assert named not in str(row)
            assert named not in caplog.text


def test_a_name_that_fits_two_live_sessions_is_ambiguous_and_never_guessed(workflow):
    run, _ = world.open_run(workflow), world.open_run(workflow)
    with world.client_of(world.open_step(run)) as client:
        answer = client.call("query_workflow_db", {"sql": "SELECT 1"}, session="session-group-default-1")
        assert code_of(answer) == "ambiguous"
        beginning = str(run.pk)[:8]  # of one millisecond: fits the other run's id as well
        assert code_of(client.call("query_workflow_db", {"sql": "SELECT 1"}, session=beginning)) == "ambiguous"


def test_a_lookalike_row_that_was_never_registered_as_a_child_is_refused(workflow):
    run = world.open_run(workflow)
    step = world.open_step(run)
    ToolSession.objects.filter(pk=step.session.pk).update(parent=None)
    with world.client_of(step) as client:
        assert code_of(client.query("SELECT 1")) == "not_registered"


def test_a_parent_that_is_not_this_runs_own_is_refused(workflow):
    step = world.open_step(world.open_run(workflow))
    ToolSession.objects.filter(pk=step.session.pk).update(parent=world.open_run(world.make_workflow()))
    with world.client_of(step) as client:
        assert code_of(client.query("SELECT 1")) == "not_registered"


def test_a_suspended_run_refuses_its_steps_until_it_is_resumed(workflow):
    run = world.open_run(workflow)
    with world.client_of(world.open_step(run)) as client:
        with transaction.atomic():
            actions.suspend_run_session(run.run_id)
        assert code_of(client.query("SELECT 1")) == "parent_ended"
        with transaction.atomic():
            actions.resume_run_session(run.run_id)
        assert client.query("SELECT 1")["success"]


def test_an_owner_who_lost_the_role_is_permissions_changed_at_the_next_call(workflow):
    owner = world.make_user(Role.EDITOR, workflow.team)
    workflow.owner = owner
    workflow.save()
    with world.client_of(world.open_step(world.open_run(workflow))) as client:
        assert client.query("SELECT 1")["success"]
        people.set_role(workflow.team, owner, Role.OPERATOR, by=None)
        assert code_of(client.query("SELECT 1")) == "permissions_changed"
        people.set_role(workflow.team, owner, Role.EDITOR, by=None)
        assert client.query("SELECT 1")["success"]
        people.set_active(owner, active=False, by=None)
        assert code_of(client.query("SELECT 1")) == "permissions_changed"


def test_a_member_who_left_is_permissions_changed(workflow):
    user = world.make_user(Role.EDITOR, workflow.team)
    with world.client_of(world.open_client(workflow, user)) as client:
        assert client.mutate("INSERT INTO notes (who) VALUES ('me')")["success"]
        people.remove_member(workflow.team, user, by=None)
        assert code_of(client.query("SELECT 1")) == "permissions_changed"


def test_a_tool_that_exists_nowhere_is_not_found_and_one_that_exists_is_not_granted(workflow):
    step = world.open_step(world.open_run(workflow), tools=("query_workflow_db",))
    with world.client_of(step) as client:
        assert code_of(client.call("no_such_tool")) == "tool_not_found"
        assert code_of(client.call("mutate_workflow_db", {"sql": "DELETE FROM notes"})) == "tool_not_granted"
    assert not OwnershipDiagnostic.objects.exists()


def test_a_step_holds_the_tools_of_its_own_list_and_not_its_parents(workflow):
    chat = world.open_client(workflow, kind="chat", tools=("query_workflow_db",), db_access="read")
    with transaction.atomic():
        child = actions.open_session(
            kind="agent",
            name="child",
            workflow=workflow,
            acting_user=workflow.owner,
            parent=chat.session,
            tools=["mutate_workflow_db"],
            db_access="read-write",
        )
    with world.client_of(child) as client:
        assert client.mutate("INSERT INTO notes (who) VALUES ('child')")["success"]
        assert code_of(client.query("SELECT 1")) == "tool_not_granted"
    assert ToolCall.objects.get(tool="mutate_workflow_db").authority_id == chat.session.pk


@pytest.mark.parametrize(
    ("access", "reads", "writes"), [("none", False, False), ("read", True, False), ("read-write", True, True)]
)
def test_the_grant_of_the_database_says_what_its_tools_can_do(workflow, access, reads, writes):
    with world.client_of(world.open_step(world.open_run(workflow), db_access=access)) as client:
        read = client.query("SELECT 1")
        written = client.mutate("INSERT INTO notes (who) VALUES ('x')")
    assert (read["success"], written["success"]) == (reads, writes)
    if not writes:
        assert code_of(written) == "tool_not_granted"
        assert "access.db" in written["error"]["hint"]


def test_the_checks_come_in_the_published_order(workflow):
    """A call with every fault gets the first code; each fault taken away uncovers the next."""
    run, other = world.open_run(workflow), world.open_run(workflow)
    step, foreign = world.open_step(run), world.open_step(other)
    with connected(foreign, step.token) as client:
        world.end(step.session)
        assert code_of(client.call("no_such_tool", session="x")) == "session_ended"
    step = world.open_step(run)
    ToolSession.objects.filter(pk=run.pk).update(state="ended")
    with connected(foreign, step.token) as client:
        assert code_of(client.call("no_such_tool", session="x")) == "tool_not_found"
        assert code_of(client.call("query_workflow_db", {"sql": 5}, session="x")) == "not_owner"
    with connected(step, step.token) as client:
        assert code_of(client.call("query_workflow_db", {"sql": 5}, session="x")) == "not_owner"
        assert code_of(client.call("query_workflow_db", {"sql": 5})) == "parent_ended"


def test_an_ownership_refusal_is_logged_stored_and_announced_in_the_published_words(workflow, caplog, monkeypatch):
    run = world.open_run(workflow)
    step, sibling = world.open_step(run, step_id="a"), world.open_step(run, step_id="b")
    announced: list[OwnershipDiagnostic] = []
    monkeypatch.setattr(diagnostics, "on_rejected", [announced.append])
    with caplog.at_level(logging.WARNING, logger="apps.tools.diagnostics"), connected(sibling, step.token) as client:
        client.mutate("DELETE FROM notes")
    row = OwnershipDiagnostic.objects.get()
    assert [row] == announced
    expected = (
        f'[TOOL_OWNERSHIP] rejected mutate_workflow_db: caller="{row.caller}" tool_session="{row.tool_session}"'
        f' authority="{row.authority}" caller_parent="{row.caller_parent}" reason="not_owner"'
    )
    assert expected in caplog.messages
    assert str(run.pk) in row.authority
    assert str(run.pk) in row.caller_parent


def test_a_tool_name_cannot_forge_a_line_of_the_log(workflow, caplog):
    with connected(world.open_step(world.open_run(workflow)), "pst_no") as client:
        client.call('x" reason="fine"\n[TOOL_OWNERSHIP] rejected nothing')
    (line,) = [message for message in caplog.messages if "TOOL_OWNERSHIP" in message]
    assert "\n" not in line
    assert 'reason="fine"' not in line


def test_strangers_cannot_fill_the_table_of_diagnostics_nor_hide_what_happens_elsewhere(workflow, monkeypatch):
    monkeypatch.setattr(diagnostics, "STRANGERS_A_MINUTE", 3)
    named = identity.find(world.open_run(workflow).pk)
    elsewhere = identity.find(world.open_run(world.make_workflow(migration="")).pk)
    for meant in [None] * 6 + [named] * 6 + [elsewhere]:
        diagnostics.record("query_workflow_db", Code.SESSION_UNKNOWN, Sides(None, meant, None))
    rows = OwnershipDiagnostic.objects.values_list("owner_workflow", flat=True)
    assert Counter(rows) == {None: 3, workflow.pk: 3, elsewhere.workflow_id: 1}


def test_a_session_that_was_rolled_back_was_never_there(workflow):
    with transaction.atomic():
        opened = actions.open_session(kind="api", name="x", workflow=workflow, acting_user=workflow.owner, tools=[])
        transaction.set_rollback(True)
    with connected(world.open_step(world.open_run(workflow)), opened.token) as client:
        assert code_of(client.query("SELECT 1")) == "session_unknown"


@pytest.mark.parametrize("name", ["ghp_5ecretW0rdThatNobodyMaySee", "two\nlines \u202egnol", "x" * 5000])
def test_a_name_that_is_no_tools_is_neither_stored_nor_answered(workflow, name, caplog):
    step = world.open_step(world.open_run(workflow))
    with world.listening(step) as (_, path):
        client = world.Client(path, step.token)
        answer = client.call(name)
        stranger = world.Client(path, "pst_forged")
        foreign = stranger.call(name)
        client.close()
        stranger.close()
    world.end(step.session)
    stored = set(ToolCall.objects.values_list("tool", flat=True))
    (shown,) = stored
    assert shown.startswith("unknown-")
    assert len(shown) == 20
    assert shown in answer["error"]["message"]
    assert "query_workflow_db" in answer["error"]["hint"]
    assert OwnershipDiagnostic.objects.get().tool == shown
    journal = next((places_of(workflow).root / "journals").iterdir()).read_text()
    for text in (str(answer), str(foreign), caplog.text, journal):
        assert name[:20] not in text
        assert "gnol" not in text
