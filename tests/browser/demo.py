"""A rich state for looking at pages: every status, long names, faults, refusals. Rows of the past are written as they would lie there."""

# ruff: noqa: E501 - rows as they would lie there, one a line
from __future__ import annotations

import hashlib
import json
import random
import uuid
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.utils import timezone

from apps.accounts.models import User
from apps.runs.models import Run, Worker
from apps.tools.models import OwnershipDiagnostic, ToolCall, ToolSession
from apps.webhooks.models import Delivery, Trigger
from apps.workflows import actions as workflows
from apps.workflows.models import PlanRevision, Workflow
from engine.ids import uuid7
from tests.browser.rows import make_attempt, make_run, make_step
from tests.factories import Cast, make_team, make_user

EXAMPLES = Path(settings.BASE_DIR) / "docs" / "examples"
TRACEBACK = """Traceback (most recent call last):
  File "/pulse/code/review/main.py", line 31, in <module>
    main()
  File "/pulse/code/review/main.py", line 24, in main
    files = payload["pull_request"]["changed_files_list"]
            ~~~~~~~~~~~~~~~~~~~~~~~~^^^^^^^^^^^^^^^^^^^^^^
KeyError: 'changed_files_list'"""


@dataclass(frozen=True)
class Demo:
    """The ids a look at the pages needs."""

    cast: Cast
    runs: dict[str, uuid.UUID]
    delivery: uuid.UUID
    session: uuid.UUID
    workflow: Workflow


def seed(past: int = 160) -> Demo:
    """Make it all, with `past` runs that lie behind. `<slug>-owner` and the rest of the cast sign in with the factories' password."""
    cast = make_team("payments")
    make_user("admin", staff=True)
    cast.team.name = "Payments platform"
    cast.team.save()
    flows = {slug: _import(cast, slug) for slug in ("pr-review", "market-checks", "noisy")}
    _plans(cast.owner, flows["pr-review"])
    runs = _runs(cast, flows)
    _past(cast, flows, past)
    _workers()
    session = _sessions(cast, flows, runs)
    delivery = _deliveries(cast, flows, runs)
    return Demo(cast, {name: run.pk for name, run in runs.items()}, delivery, session, flows["pr-review"])


def add_past(demo: Demo, count: int) -> None:
    """More runs that lie behind."""
    _past(demo.cast, {flow.slug: flow for flow in demo.cast.team.workflows.all()}, count)


def _import(cast: Cast, slug: str) -> Workflow:
    return workflows.import_workflow(cast.team, cast.editor, EXAMPLES / slug)


def _plans(by: User, workflow: Workflow) -> None:
    plan = json.loads(json.dumps(PlanRevision.objects.get(workflow=workflow, number=workflow.revision).plan))
    plan["steps"][0]["limits"] = {"timeout_s": 120}
    workflows.save_plan(workflow, plan, by=by)
    workflow.refresh_from_db()


def _runs(cast: Cast, flows: dict[str, Workflow]) -> dict[str, Run]:
    review, market, noisy = flows["pr-review"], flows["market-checks"], flows["noisy"]
    good = make_run(cast, review, "succeeded", 340, 6.1)
    _gate(good)
    step = make_step(good, 2, "review", "Review the change", "succeeded")
    report = "# Review of #2\n\nA **small** change: 3 files, 42 lines.\n\n| file | lines |\n| --- | --- |\n| `README.md` | 12 |\n| `src/app.py` | 30 |\n"
    make_attempt(
        step, 1, good.queued_at + timedelta(seconds=2.2), 0.3, 3.9, "succeeded",
        log=["reading the pull request", "\x1b[32m3 files\x1b[0m changed", "report written"],
        files={"review.json": json.dumps({"files": 3, "lines": 42, "large": False}), "report.md": report},
        validation={"status": "passed", "checks": [{"name": "exists", "path": "review.json", "status": "passed", "message": ""}, {"name": "value_type", "path": "review.json $.files", "status": "passed", "message": ""}]},
        claims={"concerns": ["The pull request has no description."]},
    )  # fmt: skip
    make_step(good, 3, "skip", "Skip the change", "skipped", reason="the route review was taken")
    running = make_run(cast, review, "running", 14)
    _gate(running)
    step = make_step(running, 2, "review", "Review the change", "running")
    make_attempt(
        step,
        1,
        running.queued_at + timedelta(seconds=2.4),
        0.3,
        None,
        "",
        log=["reading the pull request", "fetching files 1 to 30"],
    )
    make_step(running, 3, "skip", "Skip the change", "pending")
    failed = make_run(
        cast, review, "failed", 1900, 5.0, reason="review: KeyError: 'changed_files_list'", reason_code="script_error"
    )
    _gate(failed)
    step = make_step(failed, 2, "review", "Review the change", "failed", reason="The script ended with exit code 1.")
    make_attempt(
        step, 1, failed.queued_at + timedelta(seconds=2.2), 0.2, 2.6, "script_error", exit_code=1, detail=TRACEBACK,
        log=["reading the pull request", *TRACEBACK.splitlines()], claims={"exception": {"class": "KeyError", "message": "'changed_files_list'"}},
    )  # fmt: skip
    make_step(failed, 3, "skip", "Skip the change", "skipped")
    lost = _market(
        cast,
        market,
        "needs_attention",
        700,
        "europe",
        reason="The worker was lost in the middle of this step; what it did is not known.",
    )
    step = make_step(
        lost,
        0,
        "check-market",
        "Check quotes",
        "needs_attention",
        reason="The worker was lost in the middle of this step.",
    )
    make_attempt(
        step,
        1,
        lost.queued_at,
        0.4,
        21.0,
        "worker_lost",
        reason="killed",
        detail="The worker on host-1 was last heard of at 10:12:41 UTC.",
        log=["checking shares 1 to 20"],
    )
    busy = _market(cast, market, "running", 95, "asia")
    step = make_step(busy, 0, "check-market", "Check quotes", "running")
    make_attempt(step, 1, busy.queued_at, 0.4, None, "", log=["checking currencies"])
    held = _market(
        cast, market, "queued", 61, "americas", reason="2 of 2 places of market-checks are taken.", reason_code="slot"
    )
    make_step(held, 0, "check-market", "Check quotes", "pending")
    retried = _market(
        cast, market, "failed", 5200, "europe", took=30.0, reason="check-market: checks.json does not hold"
    )
    step = make_step(retried, 0, "check-market", "Check quotes", "failed")
    bad = {
        "status": "failed",
        "checks": [
            {
                "name": "value_type",
                "path": "checks.json $.checked",
                "status": "failed",
                "message": "must be an integer; a text was found",
            },
            {"name": "must_exist", "path": "checks.json", "status": "passed", "message": ""},
        ],
    }
    for number, start in ((1, 0.0), (2, 13.0)):
        make_attempt(
            step, number, retried.queued_at + timedelta(seconds=start), 0.4, 9.0, "validation_failed", exit_code=0, validation=bad,
            detail="checks.json $.checked: must be an integer; a text was found", log=["checked 20 quotes"], files={"checks.json": '{"checked": "20", "suspicious": []}'},
        )  # fmt: skip
    loud = make_run(
        cast,
        noisy,
        "failed",
        400,
        12.0,
        entry_path="manual",
        trigger_name="",
        initiated_by="payments-operator",
        reason="RuntimeError: the end",
    )
    step = make_step(loud, 0, "print-much", "Print much", "failed")
    lines = [f"\x1b[3{n % 8}mline {n}\x1b[0m of the noisy step, which says a lot and means little" for n in range(4000)]
    make_attempt(
        step, 1, loud.queued_at, 0.3, 11.0, "script_error", exit_code=1, detail="RuntimeError: the end", log=lines
    )
    ended = make_run(
        cast,
        noisy,
        "cancelled",
        2600,
        44.0,
        entry_path="manual",
        trigger_name="",
        initiated_by="payments-operator",
        reason="payments-operator cancelled it",
        cancel_requested_at=timezone.now(),
        cancel_requested_by="payments-operator",
    )
    step = make_step(ended, 0, "print-much", "Print much", "cancelled")
    make_attempt(step, 1, ended.queued_at, 0.3, 43.0, "cancelled", log=["line 0"])
    return {
        "good": good,
        "running": running,
        "failed": failed,
        "lost": lost,
        "busy": busy,
        "held": held,
        "retried": retried,
        "loud": loud,
        "ended": ended,
    }


def _gate(run: Run) -> None:
    gate = make_step(run, 0, "pr-eligibility-gate", "Is it to be reviewed?", "succeeded")
    make_attempt(
        gate,
        1,
        run.queued_at,
        0.4,
        1.6,
        "succeeded",
        log=["pull request 2 of Codertocat/Hello-World", "decision: review"],
        files={"route_selection.json": '{"select_route": "review"}'},
    )
    make_step(
        run,
        1,
        "route",
        "Review or skip",
        "succeeded",
        kind="branch",
        decision={"route_id": "review", "source": "file", "next_step_id": "review"},
    )


def _market(
    cast: Cast, workflow: Workflow, status: str, ago: float, group: str, took: float | None = None, **keys: Any
) -> Run:
    return make_run(
        cast,
        workflow,
        status,
        ago,
        took,
        entry_path="bearer",
        trigger_name="market-closed",
        group=group,
        initiated_by="token market-closed",
        **keys,
    )


def _past(cast: Cast, flows: dict[str, Workflow], count: int) -> None:
    """A day of runs, most of them fine."""
    chance = random.Random(7)
    for _ in range(count):
        ago = chance.choice([chance.uniform(60, 3500), chance.uniform(3600, 86000)])
        status = chance.choices(["succeeded", "failed", "cancelled"], [14, 1, 0.5])[0]
        run = make_run(cast, chance.choice(list(flows.values())), status, ago, chance.uniform(2, 40))
        if status == "failed":
            step = make_step(run, 0, "review", "Review the change", "failed")
            make_attempt(step, 1, run.queued_at, 0.3, 2, chance.choice(["script_error", "timed_out"]), exit_code=1)


def _workers() -> None:
    now = timezone.now()
    for role, pid, slots, release, refusal in (
        ("web", 4101, 0, "0.1.0", ""), ("worker", 4102, 4, "0.1.0", ""), ("scheduler", 4103, 0, "0.1.0", ""),
        ("worker", 977, 4, "0.0.9", "The host lets nobody make user namespaces."),
    ):  # fmt: skip
        Worker.objects.create(
            role=role, host="host-1", pid=pid, release=release, slots=slots, refusal=refusal,
            started_at=now - timedelta(hours=5), heartbeat_at=now - timedelta(seconds=400 if pid == 977 else 1),
        )  # fmt: skip


def _sessions(cast: Cast, flows: dict[str, Workflow], runs: dict[str, Run]) -> uuid.UUID:
    now = timezone.now()
    first: uuid.UUID | None = None
    for name, step_id in (("running", "review"), ("busy", "check-market"), ("good", "pr-eligibility-gate")):
        run = runs[name]
        state = "ended" if name == "good" else "live"
        common = {
            "team": run.team,
            "workflow": run.workflow,
            "acting_user": cast.owner,
            "run_id": run.pk,
            "tools": ["mutate_workflow_db", "query_workflow_db"],
            "db_access": "read-write",
            "state": state,
            "opened_at": run.queued_at,
        }
        own = ToolSession.objects.create(
            kind="run", name=f"run {run.pk}", end_reason="run_succeeded" if state == "ended" else "", **common
        )
        child = ToolSession.objects.create(
            kind="step", name=f"{step_id} attempt 1", parent=own, step_id=step_id, attempt_id=uuid7(), **common
        )
        first = first or child.pk
        for seq in range(1, 13):
            refused = name == "running" and seq == 9
            ToolCall.objects.create(
                call_id=uuid7(), session=child, authority=own, workflow_id=run.workflow_id, run_id=run.pk, step_id=step_id, seq=seq,
                tool="mutate_workflow_db" if seq % 3 else "query_workflow_db", argument_digest="a" * 64, verdict="not_owner" if refused else "allowed",
                outcome="refused" if refused else "applied" if seq % 3 else "succeeded", started_at=now, duration_us=140 + seq * 37, hmac=f"{seq:064d}",
            )  # fmt: skip
    ToolSession.objects.create(
        team=cast.team,
        kind="api",
        name="deploy bot",
        workflow=flows["market-checks"],
        acting_user=cast.operator,
        tools=["query_workflow_db"],
        db_access="read",
        opened_at=now,
    )
    OwnershipDiagnostic.objects.create(
        workflow=flows["pr-review"], owner_workflow=flows["market-checks"], tool="mutate_workflow_db", reason="not_owner", at=now,
        caller=f"step review attempt 1 {first}", tool_session=f"run {runs['busy'].pk}", authority=f"run {runs['running'].pk}", caller_parent=f"run {runs['running'].pk}",
        caller_run_id=runs["running"].pk, owner_run_id=runs["busy"].pk,
    )  # fmt: skip
    assert first is not None
    return first


def _deliveries(cast: Cast, flows: dict[str, Workflow], runs: dict[str, Run]) -> uuid.UUID:
    body = json.dumps(
        {"action": "opened", "number": 2, "pull_request": {"title": "Update the README", "head": {"sha": "ec26c3e"}}}
    ).encode()
    trigger = Trigger.objects.filter(workflow=flows["pr-review"]).first()
    shown: uuid.UUID | None = None
    for status, verdict, run, verification, copies, reason in (
        (202, "accepted", runs["good"], "hmac_sha256", 3, ""), (202, "accepted", runs["running"], "hmac_sha256", 0, ""),
        (401, "bad_signature", None, "", 0, "The signature does not match the bytes. No run was made."),
        (200, "ignored", None, "hmac_sha256", 0, "The trigger does not listen to issues.opened."),
        (409, "delivery_conflict", None, "hmac_sha256", 0, "The same delivery id came with another body."),
    ):  # fmt: skip
        row = Delivery.objects.create(
            team=cast.team, trigger=trigger, workflow=flows["pr-review"], claimed_id=str(uuid.uuid4()), event="pull_request.opened", verdict=verdict, status=status,
            external_id=str(uuid.uuid4()) if run else None, reason=reason, verification=verification, headers={"X-GitHub-Event": "pull_request", "User-Agent": "GitHub-Hookshot/044aadd"},
            body=body, body_bytes=len(body), body_sha256=hashlib.sha256(body).hexdigest(), remote="140.82.115.9", run_id=run.pk if run else None, copies=copies,
            received_at=timezone.now() - timedelta(minutes=3),
        )  # fmt: skip
        if run:
            Run.objects.filter(pk=run.pk).update(delivery_id=row.pk)
        shown = shown or row.pk
    assert shown is not None
    return shown
