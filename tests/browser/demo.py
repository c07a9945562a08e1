"""A rich state for looking at pages: every status, long names, faults, refusals. Rows of the past are written as they would lie there."""

# ruff: noqa: E501 - rows as they would lie there, one a line
from __future__ import annotations

import hashlib
import json
import random
import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.utils import timezone

from apps.accounts.models import User
from apps.runs.models import Attempt, Run, RunEvent, StepRun, Worker
from apps.tools.models import OwnershipDiagnostic, ToolCall, ToolSession
from apps.webhooks.models import Delivery, Trigger
from apps.workflows import actions as workflows
from apps.workflows.models import PlanRevision, Workflow
from apps.workflows.places import make_way, places_of
from engine.ids import uuid7
from engine.logs import LogWriter, Masker, Stream
from engine.sandbox.limits import Limits
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


def _run(cast: Cast, workflow: Workflow, status: str, ago_s: float, took_s: float | None = None, **keys: Any) -> Run:
    queued = timezone.now() - timedelta(seconds=ago_s)
    started = None if status == "queued" else queued + timedelta(seconds=0.4)
    ended = queued + timedelta(seconds=0.4 + took_s) if took_s is not None else None
    run = Run.objects.create(
        id=uuid7(), team=cast.team, workflow=workflow, status=status, owner=cast.owner, initiator=None,
        entry_path=keys.pop("entry_path", "github"), trigger_name=keys.pop("trigger_name", "pull-requests"),
        group=keys.pop("group", "default"), initiated_by=keys.pop("initiated_by", "GitHub: Codertocat"),
        plan_revision=workflow.revision, queued_at=queued, started_at=started, finished_at=ended, **keys,
    )  # fmt: skip
    RunEvent.objects.create(run=run, team_id=cast.team.pk, seq=1, kind="run.queued", at=queued)
    Run.objects.filter(pk=run.pk).update(last_seq=1)
    run.last_seq = 1
    return run


def _step(run: Run, position: int, step_id: str, title: str, status: str, **keys: Any) -> StepRun:
    return StepRun.objects.create(
        run=run,
        step_id=step_id,
        title=title,
        position=position,
        status=status,
        kind=keys.pop("kind", "scripted"),
        **keys,
    )


def _attempt(
    step: StepRun, number: int, at: datetime, wait_s: float, took_s: float | None, outcome: str, **keys: Any
) -> Attempt:
    started = at + timedelta(seconds=wait_s)
    log = keys.pop("log", [])
    files = keys.pop("files", {})
    fingerprint = hashlib.sha256(f"{step.step_id}{step.run.group}".encode()).hexdigest()
    attempt = Attempt.objects.create(
        step_run=step, number=number, plan_revision=step.run.plan_revision, outcome=outcome, queued_at=at,
        started_at=started, finished_at=started + timedelta(seconds=took_s) if took_s is not None else None,
        fingerprint=fingerprint, inputs_digest=hashlib.sha256(str(step.run.pk).encode()).hexdigest(),
        code_digest=hashlib.sha256(step.step_id.encode()).hexdigest(), contract=_contract(step, fingerprint),
        outputs=[{"path": p, "bytes": len(t.encode()), "sha256": hashlib.sha256(t.encode()).hexdigest()} for p, t in files.items()],
        **keys,
    )  # fmt: skip
    _write(step, attempt, log, files)
    return attempt


def _write(step: StepRun, attempt: Attempt, log: list[str], files: dict[str, str]) -> None:
    places = places_of(step.run.workflow).attempt(str(step.run_id), step.step_id, attempt.number)
    make_way(places.root)
    places.out.mkdir(mode=0o770, exist_ok=True)
    for name, text in files.items():
        (places.out / name).parent.mkdir(parents=True, exist_ok=True)
        (places.out / name).write_text(text)
    writer = LogWriter(places, Masker(), Limits())
    for place, line in enumerate(log):
        stream = Stream.ERR if line.startswith(("Traceback", "  File", "KeyError")) else Stream.OUT
        writer.write(stream, f"{line}\n".encode(), place * 40)
    if attempt.finished_at:
        seal = writer.seal(len(log) * 40)
        Attempt.objects.filter(pk=attempt.pk).update(seal=seal.record())


def _contract(step: StepRun, fingerprint: str) -> dict[str, Any]:
    return {
        "version": 1, "plan_revision": step.run.plan_revision, "group": step.run.group, "fingerprint": fingerprint,
        "entry": f"/pulse/code/{step.step_id}/main.py", "cwd": f"/pulse/code/{step.step_id}",
        "interpreter": {"version": "3.11.2", "sha256": "9c1e2f…"},
        "env": {"VAR_GROUP_NAME": step.run.group, "STEP_ID": step.step_id, "RUN_ID": "<run:RUN_ID>", "SECRET_GITHUB_TOKEN": "<secret:1f7a>"},
        "dropped": [{"name": "AWS_PROFILE", "rule": "nothing of the platform's own environment is inherited"}],
        "limits": {"timeout_s": 60, "memory_mb": 1024, "processes": 128},
        "network": {"hosts": []}, "argv": [], "step": {"id": step.step_id, "kind": step.kind, "tools": ["mutate_workflow_db"]},
        "attempt": {"run_id": str(step.run_id), "number": 1, "entry_path": step.run.entry_path},
    }  # fmt: skip


def _runs(cast: Cast, flows: dict[str, Workflow]) -> dict[str, Run]:
    review, market, noisy = flows["pr-review"], flows["market-checks"], flows["noisy"]
    good = _run(cast, review, "succeeded", 340, 6.1)
    _gate(good)
    step = _step(good, 2, "review", "Review the change", "succeeded")
    report = "# Review of #2\n\nA **small** change: 3 files, 42 lines.\n\n| file | lines |\n| --- | --- |\n| `README.md` | 12 |\n| `src/app.py` | 30 |\n"
    _attempt(
        step, 1, good.queued_at + timedelta(seconds=2.2), 0.3, 3.9, "succeeded",
        log=["reading the pull request", "\x1b[32m3 files\x1b[0m changed", "report written"],
        files={"review.json": json.dumps({"files": 3, "lines": 42, "large": False}), "report.md": report},
        validation={"status": "passed", "checks": [{"name": "exists", "path": "review.json", "status": "passed", "message": ""}, {"name": "value_type", "path": "review.json $.files", "status": "passed", "message": ""}]},
        claims={"concerns": ["The pull request has no description."]},
    )  # fmt: skip
    _step(good, 3, "skip", "Skip the change", "skipped", reason="the route review was taken")
    running = _run(cast, review, "running", 14)
    _gate(running)
    step = _step(running, 2, "review", "Review the change", "running")
    _attempt(
        step,
        1,
        running.queued_at + timedelta(seconds=2.4),
        0.3,
        None,
        "",
        log=["reading the pull request", "fetching files 1 to 30"],
    )
    _step(running, 3, "skip", "Skip the change", "pending")
    failed = _run(
        cast, review, "failed", 1900, 5.0, reason="review: KeyError: 'changed_files_list'", reason_code="script_error"
    )
    _gate(failed)
    step = _step(failed, 2, "review", "Review the change", "failed", reason="The script ended with exit code 1.")
    _attempt(
        step, 1, failed.queued_at + timedelta(seconds=2.2), 0.2, 2.6, "script_error", exit_code=1, detail=TRACEBACK,
        log=["reading the pull request", *TRACEBACK.splitlines()], claims={"exception": {"class": "KeyError", "message": "'changed_files_list'"}},
    )  # fmt: skip
    _step(failed, 3, "skip", "Skip the change", "skipped")
    lost = _market(
        cast,
        market,
        "needs_attention",
        700,
        "europe",
        reason="The worker was lost in the middle of this step; what it did is not known.",
    )
    step = _step(
        lost,
        0,
        "check-market",
        "Check quotes",
        "needs_attention",
        reason="The worker was lost in the middle of this step.",
    )
    _attempt(
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
    step = _step(busy, 0, "check-market", "Check quotes", "running")
    _attempt(step, 1, busy.queued_at, 0.4, None, "", log=["checking currencies"])
    held = _market(
        cast, market, "queued", 61, "americas", reason="2 of 2 places of market-checks are taken.", reason_code="slot"
    )
    _step(held, 0, "check-market", "Check quotes", "pending")
    retried = _market(
        cast, market, "failed", 5200, "europe", took=30.0, reason="check-market: checks.json does not hold"
    )
    step = _step(retried, 0, "check-market", "Check quotes", "failed")
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
        _attempt(
            step, number, retried.queued_at + timedelta(seconds=start), 0.4, 9.0, "validation_failed", exit_code=0, validation=bad,
            detail="checks.json $.checked: must be an integer; a text was found", log=["checked 20 quotes"], files={"checks.json": '{"checked": "20", "suspicious": []}'},
        )  # fmt: skip
    loud = _run(
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
    step = _step(loud, 0, "print-much", "Print much", "failed")
    lines = [f"\x1b[3{n % 8}mline {n}\x1b[0m of the noisy step, which says a lot and means little" for n in range(4000)]
    _attempt(step, 1, loud.queued_at, 0.3, 11.0, "script_error", exit_code=1, detail="RuntimeError: the end", log=lines)
    ended = _run(
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
    step = _step(ended, 0, "print-much", "Print much", "cancelled")
    _attempt(step, 1, ended.queued_at, 0.3, 43.0, "cancelled", log=["line 0"])
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
    gate = _step(run, 0, "pr-eligibility-gate", "Is it to be reviewed?", "succeeded")
    _attempt(
        gate,
        1,
        run.queued_at,
        0.4,
        1.6,
        "succeeded",
        log=["pull request 2 of Codertocat/Hello-World", "decision: review"],
        files={"route_selection.json": '{"select_route": "review"}'},
    )
    _step(
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
    return _run(
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
        run = _run(cast, chance.choice(list(flows.values())), status, ago, chance.uniform(2, 40))
        if status == "failed":
            step = _step(run, 0, "review", "Review the change", "failed")
            _attempt(step, 1, run.queued_at, 0.3, 2, chance.choice(["script_error", "timed_out"]), exit_code=1)


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
