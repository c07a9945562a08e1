"""A page says what is known: why a run stands still, what failed and what to do, who is on both sides of a refusal."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import timedelta

from django.test import Client
from django.utils import timezone

from apps.accounts.models import Audit, User
from apps.runs import evidence, silence
from apps.runs.models import Attempt, Run, Worker
from apps.runs.timing import SILENT_S
from apps.tools.models import OwnershipDiagnostic, Receipt, ToolCall, ToolSession
from apps.workflows import documents
from apps.workflows.models import Workflow
from engine.ids import uuid7
from tests import factories
from tests.browser.demo import Demo

AsUser = Callable[[User], Client]


def page(as_user: AsUser, demo: Demo, address: str) -> str:
    return as_user(demo.cast.viewer).get(address).text


def test_a_failed_step_opens_itself_with_outcome_cause_and_next_action(demo: Demo, as_user: AsUser) -> None:
    text = page(as_user, demo, f"/runs/{demo.runs['failed']}/")
    assert 'data-current-step="review"' in text
    for said in ("script_error", "exit 1", "KeyError: &#x27;changed_files_list&#x27;", "Next:", "Rerun from here"):
        assert said in text, said


def test_a_run_that_waits_for_a_slot_says_who_holds_it(demo: Demo, as_user: AsUser) -> None:
    text = page(as_user, demo, f"/runs/{demo.runs['held']}/")
    assert "2 of 2 places of market-checks are taken." in text
    assert f'Held by <a class="mono" href="/runs/{demo.runs["busy"]}/">' in text
    assert "The end of one of these runs." in text


def test_a_running_run_whose_worker_is_not_heard_of_is_told_in_the_same_words_everywhere(
    demo: Demo, as_user: AsUser
) -> None:
    run = Run.objects.get(pk=demo.runs["running"])
    run.lease_worker = worker = Worker.objects.filter(role="worker").first()
    assert worker is not None
    run.save()
    flow = f"/t/{run.team.slug}/workflows/{run.workflow.slug}/"
    places = ("/", "/runs/", "/runs/?status=running", "/workflows/", flow, f"/runs/{run.pk}/", f"/api/v1/runs/{run.pk}")
    token = factories.make_token(run.team, demo.cast.viewer, "read")
    headers = {"Authorization": f"Bearer {token}"}

    def told(address: str) -> str:
        return as_user(demo.cast.viewer).get(address, headers=headers if "/api/" in address else {}).text

    Worker.objects.update(heartbeat_at=timezone.now())
    assert not [address for address in places if "last heard of" in told(address)]
    last = timezone.now() - timedelta(seconds=SILENT_S + 20)
    Worker.objects.update(heartbeat_at=last)
    run.refresh_from_db()
    words = silence.words(run)
    assert f"{last:%Y-%m-%d %H:%M:%S}" in words
    assert [address for address in places if words not in told(address)] == []
    assert [row["reason"] for row in json.loads(told("/api/v1/runs?status=running"))["items"]].count(words) >= 1
    page = told(f"/runs/{run.pk}/")
    assert "data-since" not in page, "no clock of it counts on"
    assert "1 not heard of" in told("/")


def test_a_run_that_ended_before_any_step_says_why(demo: Demo, as_user: AsUser) -> None:
    Run.objects.filter(pk=demo.runs["held"]).update(status="failed", reason="The owner left the team.")
    assert "The owner left the team." in page(as_user, demo, f"/runs/{demo.runs['held']}/")


def test_a_person_who_must_decide_sees_what_the_step_changed(demo: Demo, as_user: AsUser) -> None:
    address = f"/runs/{demo.runs['lost']}/"
    assert "No change through a tool is on record" in page(as_user, demo, address)
    session = ToolSession.objects.get(pk=demo.session)
    facts = {
        "session": session,
        "workflow_id": session.workflow_id,
        "run_id": demo.runs["lost"],
        "step_id": "check-market",
    }
    Receipt.objects.create(id=uuid7(), tool="mutate_workflow_db", state="unknown", made_at=timezone.now(), **facts)
    text = page(as_user, demo, address)
    assert "What its attempts changed, or may have changed:" in text
    assert "unknown · " in text


def test_a_rejected_call_names_both_runs(demo: Demo, as_user: AsUser) -> None:
    for address in ("/", "/sessions/", f"/runs/{demo.runs['running']}/", f"/runs/{demo.runs['busy']}/"):
        text = page(as_user, demo, address)
        assert "rejected: not owner" in text, address
        assert f"/runs/{demo.runs['running']}/" in text, address
        assert f"/runs/{demo.runs['busy']}/" in text, address


def test_all_rejected_calls_of_a_run_are_counted_where_the_newest_are_shown(demo: Demo, as_user: AsUser) -> None:
    run = demo.runs["running"]
    row = OwnershipDiagnostic.objects.filter(caller_run_id=run)[0]
    more = [OwnershipDiagnostic(**{**_facts(row), "id": uuid7()}) for _ in range(evidence.REJECTIONS_SHOWN)]
    OwnershipDiagnostic.objects.bulk_create(more)
    text = page(as_user, demo, f"/runs/{run}/")
    assert f">{len(more) + 1} rejected<" in text
    assert f"The newest {len(more)} of {len(more) + 1} rejected calls are here." in text


def _facts(row: OwnershipDiagnostic) -> dict[str, object]:
    return {field.attname: getattr(row, field.attname) for field in OwnershipDiagnostic._meta.concrete_fields}


def test_the_dashboard_claims_no_more_of_calls_than_is_on_record(demo: Demo, as_user: AsUser) -> None:
    assert "1 call of the last day was rejected." in page(as_user, demo, "/")
    OwnershipDiagnostic.objects.all().delete()
    number = ToolCall.objects.count()
    assert f"All {number} calls of the last day came from the run that owns them." in page(as_user, demo, "/")
    ToolCall.objects.all().delete()
    assert "No tool call in the last day." in page(as_user, demo, "/")


def test_the_contract_is_shown_and_compared(demo: Demo, as_user: AsUser) -> None:
    address = f"/runs/{demo.runs['good']}/steps/review/1/contract/"
    text = page(as_user, demo, address)
    assert "attempt.run_id" not in text  # an id is evidence, not a difference
    attempt = Attempt.objects.get(step_run__run=demo.runs["good"], step_run__step_id="review")
    assert attempt.contract is not None
    attempt.contract["env"]["VAR_WHO"] = "someone else"
    attempt.save()
    text = page(as_user, demo, address)
    assert "env.VAR_WHO" in text
    assert "someone else" in text


def test_a_change_of_the_code_is_in_the_history_and_beside_the_plan_of_a_run(demo: Demo, as_user: AsUser) -> None:
    code = {"code/review/main.py": "print(2)\n", "code/classify/main.py": "", "code/x.py": ""}
    factories.make_workflow(demo.cast.team, demo.cast.editor, documents.with_sections(demo.workflow), code)
    change = Audit.objects.get(action="code.changed", object_id=str(demo.workflow.pk))
    text = page(as_user, demo, "/t/payments/workflows/pr-review/history/")
    assert f"{change.data['before'][:12]} → {change.data['after'][:12]}" in text
    attempts = Attempt.objects.filter(step_run__run=demo.runs["good"])
    attempts.update(code_digest="c0de" * 16)
    said = '<dt>Code</dt><dd class="mono">c0dec0dec0de'
    assert f"{said}</dd>" in page(as_user, demo, f"/runs/{demo.runs['good']}/")
    attempts.filter(step_run__step_id="review").update(code_digest=change.data["after"])
    text = page(as_user, demo, f"/runs/{demo.runs['good']}/")
    assert f'{change.data["after"][:12]}<span class="faint"> and 1 more' in text


def test_both_attempts_of_a_retried_step_can_be_opened(demo: Demo, as_user: AsUser) -> None:
    text = page(as_user, demo, f"/runs/{demo.runs['retried']}/")
    assert "attempt=1" in text
    assert "attempt=2" in text


def test_the_dashboard_counts_and_each_number_leads_to_its_rows(demo: Demo, as_user: AsUser) -> None:
    text = page(as_user, demo, "/")
    for link in (
        "?status=running",
        "?status=standing",
        "?status=needs_attention",
        "?status=failed",
        "?verdict=refused",
    ):
        assert link in text, link
    assert "different releases: 0.0.9, 0.1.0" in text
    assert "The host lets nobody make user namespaces." in text
    rows = page(as_user, demo, "/runs/?status=needs_attention")
    assert rows.count("chip is-needs_attention") == 1


def test_faults_lead_to_exactly_their_runs(demo: Demo, as_user: AsUser) -> None:
    text = page(as_user, demo, "/runs/?workflow=payments/pr-review&step=review&outcome=script_error&period=24h")
    assert str(demo.runs["failed"]) in text
    assert str(demo.runs["good"]) not in text


def test_a_team_without_anything_is_told_what_to_do(db: None, as_user: AsUser) -> None:
    client = as_user(factories.make_team().viewer)
    Worker.objects.all().delete()
    for address, said in {
        "/": "Nothing has run yet",
        "/workflows/": "No workflows yet",
        "/runs/": "No runs yet",
        "/deliveries/": "No deliveries here",
        "/sessions/": "No session is open",
    }.items():
        assert said in client.get(address).text, address


def test_lists_go_on_from_where_they_stopped(demo: Demo, as_user: AsUser) -> None:
    before = Run.objects.order_by("-queued_at")[2]
    text = page(as_user, demo, f"/runs/?before={before.pk}")
    newer = Run.objects.order_by("-queued_at")[1]
    older = Run.objects.order_by("-queued_at")[3]
    assert (str(newer.pk) in text, str(before.pk) in text, str(older.pk) in text) == (False, False, True)


def test_starts_are_filtered_by_the_ways_in_that_there_are(demo: Demo, as_user: AsUser) -> None:
    text = page(as_user, demo, "/runs/")
    offered = text.split('name="via"')[1].split("</select>")[0]
    assert re.findall("<option>([a-z]+)</option>", offered) == ["manual", "github", "bearer", "api"]


def test_no_settings_are_said_to_be_none(demo: Demo, as_user: AsUser) -> None:
    Workflow.objects.filter(pk=demo.workflow.pk).update(settings={})
    text = page(as_user, demo, "/t/payments/workflows/pr-review/settings/")
    assert "the defaults hold" in text
    assert "{}" not in text


def test_the_menu_leads_to_the_api(demo: Demo, as_user: AsUser) -> None:
    client = as_user(demo.cast.viewer)
    assert 'href="/api/v1/docs"' in client.get("/").text
    assert client.get("/api/v1/docs").status_code == 200


def test_senseless_filters_are_left_out(demo: Demo, as_user: AsUser) -> None:
    for query in ("?status=none", "?before=x", "?workflow=x", "?period=9y"):
        assert as_user(demo.cast.viewer).get(f"/runs/{query}").status_code == 200, query
        assert as_user(demo.cast.viewer).get(f"/deliveries/{query}").status_code == 200, query


def test_an_address_that_leads_nowhere_says_so(demo: Demo, as_user: AsUser) -> None:
    client, run = as_user(demo.cast.viewer), demo.runs["good"]
    for address in (
        f"/runs/{run}/?step=none",
        f"/runs/{run}/?tab=none",
        f"/runs/{run}/steps/review/9/contract/",
        "/t/payments/workflows/none/",
    ):
        response = client.get(address)
        assert response.status_code == 404, address
        assert "Nothing here" in response.text, address
