"""The demo workflows, imported from docs/examples and run for real: by GitHub, by a token and by hand."""

from __future__ import annotations

import hashlib
import json
import sqlite3

import pytest

from apps.runs import actions as runs
from apps.runs import outputs, tasks
from apps.runs.models import Attempt, Run, StepRun
from apps.webhooks import actions, demo
from apps.webhooks.models import Trigger
from apps.workflows import actions as workflows
from apps.workflows import places
from engine.document import parse_workflow
from engine.sandbox.files import Beneath
from tests.factories import make_team
from tests.webhooks.senders import Bearer, GitHub, payload

EXAMPLES = demo.examples()
DATABASE = [pytest.mark.django_db(transaction=True), pytest.mark.sandbox]


def marked(function):
    for mark in DATABASE:
        function = mark(function)
    return function


def example(slug):
    cast = make_team()
    return workflows.import_workflow(cast.team, cast.owner, EXAMPLES / slug)


def sender_of(workflow, kind):
    trigger = Trigger.objects.get(workflow=workflow, kind=kind)
    made = actions.rotate(trigger, by=workflow.owner)
    return GitHub(made.trigger, made.secret) if kind == "github" else Bearer(made.trigger, made.secret)


def run_to_its_end(run_id):
    tasks.advance_run(str(run_id))
    return Run.objects.get(pk=run_id)


def delivered(answer):
    assert answer.status_code == 202, answer.content
    return run_to_its_end(answer.json()["run_id"])


def by_hand(workflow, **facts):
    run = runs.start_run(workflow=workflow, entry_path="manual", initiated_by="a test", **facts)
    return run_to_its_end(run.pk)


def steps(run):
    return dict(StepRun.objects.filter(run=run).values_list("step_id", "status"))


def output(run, step_id, name):
    with Beneath(outputs.of_step(StepRun.objects.get(run=run, step_id=step_id)).out) as folder:
        return folder.read(name, 1_000_000).decode()


def decisions(workflow):
    with sqlite3.connect(places.places_of(workflow).database) as database:
        database.row_factory = sqlite3.Row
        return [dict(row) for row in database.execute("SELECT * FROM pr_gate_decisions")]


def why(run):
    return run.reason, list(Attempt.objects.filter(step_run__run=run).values_list("outcome", "detail"))


@pytest.mark.parametrize("slug", demo.WORKFLOWS)
def test_each_example_is_a_valid_document(slug):
    raw = json.loads((EXAMPLES / slug / "workflow.json").read_text())
    assert parse_workflow(raw).slug == slug


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*/code/*/main.py")), ids=lambda path: path.parent.name)
def test_each_entry_point_says_what_the_documentation_contract_asks(path):
    text = path.read_text().split('"""')[1]
    for part in ("Purpose:", "Required configuration:", "Inputs:", "Outputs:", "Side effects:", "How it is run:"):
        assert part in text


def test_the_products_copy_of_the_body_is_the_one_that_was_published():
    assert (EXAMPLES / demo.BODY).read_bytes() == payload()


@marked
@pytest.mark.databases
def test_a_pull_request_that_was_opened_is_reviewed_and_the_decision_recorded():
    workflow = example("pr-review")
    run = delivered(sender_of(workflow, "github").post())
    assert run.status == "succeeded", why(run)
    assert steps(run) == {
        "pr-eligibility-gate": "succeeded",
        "route": "succeeded",
        "review": "succeeded",
        "skip": "skipped",
    }
    row = decisions(workflow)[0]
    assert {key: row[key] for key in ("run_id", "owner", "repo", "pull_number", "head_sha", "decision")} == {
        "run_id": str(run.pk),
        "owner": "Codertocat",
        "repo": "Hello-World",
        "pull_number": 2,
        "head_sha": "ec26c3e57ca3a959ca5aad62de7213c562f8c821",
        "decision": "review",
    }
    review = json.loads(output(run, "review", "review.json"))
    assert (review["changed_files"], review["lines"], review["size"]) == (1, 2, "small")
    assert "# Codertocat/Hello-World#2" in output(run, "review", "report.md")


@marked
def test_a_pull_request_that_was_closed_is_skipped_and_says_why():
    workflow = example("pr-review")
    run = delivered(sender_of(workflow, "github").post(payload("github__pull_request_closed.json")))
    assert (run.status, steps(run)["review"], steps(run)["skip"]) == ("succeeded", "skipped", "succeeded"), why(run)
    assert decisions(workflow)[0]["decision"] == "skip"
    assert "closed" in json.loads(output(run, "skip", "skipped.json"))["reason"]


@marked
def test_a_draft_is_skipped():
    body = json.loads(payload())
    body["pull_request"]["draft"] = True
    run = delivered(sender_of(example("pr-review"), "github").post(json.dumps(body).encode()))
    assert steps(run)["skip"] == "succeeded", why(run)


@marked
def test_a_token_reviews_the_pull_request_that_its_payload_names():
    workflow = example("pr-review")
    named = {"owner": "me", "repo": "mine", "pull_number": 7, "head_sha": "f" * 40}
    run = delivered(sender_of(workflow, "bearer").post(named))
    assert run.status == "succeeded", why(run)
    assert (decisions(workflow)[0]["owner"], decisions(workflow)[0]["pull_number"]) == ("me", 7)
    assert json.loads(output(run, "review", "review.json"))["size"] == "unknown"


@marked
def test_by_hand_the_sample_is_reviewed():
    workflow = example("pr-review")
    run = by_hand(workflow)
    assert run.status == "succeeded", why(run)
    assert decisions(workflow)[0]["repo"] == "Hello-World"


@marked
@pytest.mark.parametrize("missing", ["owner", "repo", "pull_number", "head_sha"])
def test_a_delivery_that_lacks_a_value_fails_with_its_reason_and_never_skips(missing):
    workflow = example("pr-review")
    named = {"owner": "me", "repo": "mine", "pull_number": 7, "head_sha": "f" * 40}
    del named[missing]
    run = delivered(sender_of(workflow, "bearer").post(named))
    assert_gate_failed(workflow, run, f"no {missing}")


@marked
def test_a_delivery_that_can_not_be_read_fails_with_its_reason_and_never_skips():
    workflow = example("pr-review")
    answer = sender_of(workflow, "github").post()
    places.places_of(workflow).delivery(answer.json()["run_id"]).write_text("{")
    assert_gate_failed(workflow, delivered(answer), "TriggerUnreadable")


def assert_gate_failed(workflow, run, reason):
    assert run.status == "failed"
    assert {status for step, status in steps(run).items() if step != "pr-eligibility-gate"} <= {"pending", "skipped"}
    assert decisions(workflow) == []
    attempt = Attempt.objects.get(step_run__run=run)
    log = places.places_of(workflow).attempt(str(run.pk), "pr-eligibility-gate", 1).log.read_bytes()
    assert attempt.outcome == "script_error"
    assert reason.encode() in log


@marked
def test_two_deliveries_decide_each_for_themselves():
    workflow = example("pr-review")
    sender = sender_of(workflow, "github")
    opened, closed = sender.post(), sender.post(payload("github__pull_request_closed.json"))
    later, earlier = delivered(closed), delivered(opened)
    assert (steps(earlier)["review"], steps(later)["review"]) == ("succeeded", "skipped")
    assert {row["run_id"]: row["decision"] for row in decisions(workflow)} == {
        str(earlier.pk): "review",
        str(later.pk): "skip",
    }


@marked
def test_a_market_is_checked_with_the_groups_own_tolerance():
    workflow = example("market-checks")
    for group, tolerance in (("americas", 2.5), ("europe", 2.0), ("asia", 3.5)):
        run = by_hand(workflow, group=group, parameters={"check-market": {"market": "bonds"}})
        checks = json.loads(output(run, "check-market", "checks.json"))
        assert (checks["group"], checks["tolerance_percent"], checks["checked"]) == (group, tolerance, 20)


@marked
def test_a_market_hook_maps_region_and_kind():
    run = delivered(sender_of(example("market-checks"), "bearer").post({"exchange": {"region": "APAC", "kind": "fx"}}))
    checks = json.loads(output(run, "check-market", "checks.json"))
    assert (checks["group"], checks["market"], checks["checked"]) == ("asia", "currencies", 50)


@pytest.mark.django_db
def test_a_market_hook_refuses_what_it_can_not_map():
    sender = sender_of(example("market-checks"), "bearer")
    assert sender.post({"exchange": {"region": "MOON", "kind": "fx"}}).status_code == 400
    assert not Run.objects.exists()


@marked
def test_noise_fails_and_its_log_has_every_line_and_byte():
    workflow = example("noisy")
    run = by_hand(workflow)
    attempt = Attempt.objects.get(step_run__run=run)
    assert (run.status, attempt.outcome) == ("failed", "script_error")
    whole = places.places_of(workflow).attempt(str(run.pk), "make-noise", 1)
    with Beneath(whole.out) as folder:
        told = json.loads(folder.read("count.json", 10_000))
    log = whole.log.read_bytes()
    assert told["lines"] == 100_000
    assert hashlib.sha256(log[: told["bytes"]]).hexdigest() == told["sha256"]
    with pytest.raises(UnicodeDecodeError):
        log.decode()
    assert b"this failure is on purpose" in log[told["bytes"] :]
    assert attempt.seal["lines"] == told["lines"] + log[told["bytes"] :].count(b"\n")
