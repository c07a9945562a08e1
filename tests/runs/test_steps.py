"""Steps of a run one after the other: outputs handed on, branches, retries, failures."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from django.db import connections
from django.test import Client

from apps.runs import actions, fragments, tasks
from apps.runs.listening import Listening
from apps.runs.models import Attempt, Run
from apps.runs.supervisor import sweeper
from apps.tools import workflow_db
from apps.tools.workflow_db.guard import Mode
from apps.workflows import places
from apps.workflows.models import Workflow
from engine.runner import Stop
from engine.sandbox.limits import Limits
from tests import factories
from tests.factories import Cast
from tests.runs.starts import fresh, kinds, start

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.sandbox]

WRITES = """
import json, os, pathlib, sys
out = pathlib.Path(os.environ["STEP_OUTPUT_DIR"])
for name, text in json.loads({text!r}).items():
    (out / name).write_text(text)
"""
FAILS_ONCE = """
import pathlib, sys
mark = pathlib.Path("seen")
if not mark.exists():
    mark.touch()
    sys.exit("not yet")
"""
ROUTES = [{"route_id": "yes", "next_step_id": "left"}, {"route_id": "no", "next_step_id": "right"}]


def writes(text: str) -> str:
    return WRITES.replace("{text!r}", repr(text))


def make(cast: Cast, steps: list[dict[str, Any]], files: dict[str, str], **keys: Any) -> Workflow:
    return factories.make_workflow(cast.team, cast.owner, factories.document(steps=steps, **keys), files)


def carried(run: Run) -> Run:
    tasks.advance_run(str(run.pk))
    return fresh(run)


def statuses(run: Run) -> dict[str, str]:
    return dict(run.steps.values_list("step_id", "status"))


def branching(cast: Cast, selection: str) -> Workflow:
    steps = [
        factories.step("gate", context_output=["route_selection.json"]),
        {
            "id": "way",
            "kind": "branch",
            "question": "Which?",
            "context_dependencies": ["gate/route_selection.json"],
            "routes": ROUTES,
        },
        factories.step("left", next_step_id="end"),
        factories.step("right"),
    ]
    return make(cast, steps, {"code/gate/main.py": writes('{"route_selection.json": ' + selection + "}")})


def test_a_branch_takes_the_route_that_a_file_names_and_says_so(cast: Cast) -> None:
    run = carried(start(branching(cast, '"{\\"select_route\\": \\"no\\"}"')))
    assert (run.status, run.reason) == ("succeeded", "")
    assert statuses(run) == {"gate": "succeeded", "way": "succeeded", "left": "skipped", "right": "succeeded"}
    assert run.steps.get(step_id="way").decision == {"route_id": "no", "source": "file", "next_step_id": "right"}


def test_a_callers_selection_comes_before_the_file(cast: Cast) -> None:
    run = carried(start(branching(cast, '"{\\"select_route\\": \\"no\\"}"'), route_selections={"way": "yes"}))
    assert statuses(run)["left"] == "succeeded"
    assert run.steps.get(step_id="way").decision["source"] == "caller"


@pytest.mark.parametrize("selection", ['"{\\"select_route\\": \\"sideways\\"}"', '"no json"', '"\\ud83d"'])
def test_an_invalid_selection_fails_the_step_and_takes_no_route(cast: Cast, selection: str) -> None:
    run = carried(start(branching(cast, selection)))
    assert run.status == "failed"
    assert statuses(run)["left"] == statuses(run)["right"] == "skipped"


def test_a_step_gets_the_files_it_declares_and_nothing_is_shared_otherwise(cast: Cast) -> None:
    reads = "import sys; print(open(sys.argv[1]).read())"
    steps = [
        factories.step("one", context_output=["a.txt"]),
        factories.step("two", context_dependencies=["one/a.txt"]),
    ]
    workflow = make(cast, steps, {"code/one/main.py": writes('{"a.txt": "handed on"}'), "code/two/main.py": reads})
    run = carried(start(workflow))
    assert run.status == "succeeded"
    log = places.places_of(workflow).attempt(str(run.pk), "two", 1).log
    assert b"handed on" in log.read_bytes()
    attempt = Attempt.objects.get(step_run__step_id="one")
    assert [(one["path"], one["bytes"]) for one in attempt.outputs] == [("a.txt", 9)]


def test_a_failed_step_fails_its_run_with_its_own_words(cast: Cast) -> None:
    workflow = make(cast, [factories.step("one"), factories.step("two")], {"code/one/main.py": "raise SystemExit(1)"})
    run = carried(start(workflow))
    assert run.status == "failed"
    assert statuses(run) == {"one": "failed", "two": "skipped"}
    attempt = Attempt.objects.get()
    assert (attempt.outcome, attempt.exit_code) == ("script_error", 1)
    assert kinds(run)[-1] == "run.failed"


def test_retry_waits_without_a_worker_and_keeps_every_attempt(cast: Cast) -> None:
    steps = [factories.step("one", retry={"max_attempts": 3, "backoff_s": 0.5})]
    run = carried(start(make(cast, steps, {"code/one/main.py": FAILS_ONCE})))
    assert (run.status, run.reason_code, run.lease_pid) == ("waiting", "backoff", None)
    assert run.wake_at is not None
    Run.objects.filter(pk=run.pk).update(wake_at=run.started_at)
    sweeper.sweep()
    run = carried(run)
    assert run.status == "succeeded"
    assert list(Attempt.objects.order_by("number").values_list("number", "outcome")) == [
        (1, "script_error"),
        (2, "succeeded"),
    ]


def test_the_status_of_a_run_comes_from_the_last_attempt(cast: Cast) -> None:
    steps = [factories.step("one", retry={"max_attempts": 2, "backoff_s": 0})]
    run = carried(start(make(cast, steps, {"code/one/main.py": "raise SystemExit(1)"})))
    assert run.status == "failed"
    assert Attempt.objects.count() == 2


def test_an_applied_mutation_of_a_step_that_is_not_idempotent_stops_its_retry(cast: Cast) -> None:
    code = "import pulse\npulse.tools.mutate_workflow_db(sql='INSERT INTO seen VALUES (1)')\nraise SystemExit(1)\n"
    step = factories.step(
        "one", tools=["mutate_workflow_db"], access={"db": "read-write"}, retry={"max_attempts": 3, "backoff_s": 0}
    )
    files = {"code/one/main.py": code, "db/migrations/0001.sql": "CREATE TABLE seen (n INTEGER);"}
    run = carried(start(make(cast, [step], files)))
    assert (run.status, run.reason_code) == ("needs_attention", "mutations_applied")
    assert Attempt.objects.count() == 1
    event = run.events.get(kind="step.needs_attention")
    assert len(event.data["receipts"]) == 1


def test_imported_calls_are_told_by_one_event_a_batch(cast: Cast) -> None:
    code = "import pulse\nfor n in range(30): pulse.tools.query_workflow_db(sql='SELECT 1')\n"
    step = factories.step("one", tools=["query_workflow_db"], access={"db": "read"})
    run = carried(start(make(cast, [step], {"code/one/main.py": code})))
    assert run.status == "succeeded"
    told = list(run.events.filter(kind="tool.called").order_by("seq"))
    assert 1 <= len(told) <= 3, "a second of calls is one event, not one a call"
    assert sum(event.data["calls"] for event in told) == 30
    assert (told[-1].data["last"], told[-1].data["tools"]) == (30, ["query_workflow_db"])
    assert told[-1].ids["attempt_id"] == str(Attempt.objects.get().pk)
    assert fragments.stale_after(["tool.called"]) == ["calls"]
    assert "query_workflow_db" in fragments.render("calls", run)


def test_parameters_of_a_step_behind_a_branch_are_checked_before_python_starts(cast: Cast) -> None:
    parameters = {"market": {"type": "string", "description": "Which.", "required": True}}
    steps = [
        {"id": "way", "kind": "branch", "question": "?", "routes": ROUTES, "default_route_id": "yes"},
        factories.step("left", script_parameters=parameters, next_step_id="end"),
        factories.step("right"),
    ]
    run = carried(start(make(cast, steps, {})))
    assert run.status == "failed"
    attempt = Attempt.objects.get()
    assert (attempt.outcome, attempt.pid) == ("parameters_rejected", None)
    assert "market" in attempt.detail


def test_a_step_without_an_entry_point_fails_before_anything_runs(cast: Cast) -> None:
    workflow = make(cast, [factories.step("one")], {})
    (places.places_of(workflow).code / "one" / "main.py").unlink()
    run = carried(start(workflow))
    assert (run.status, Attempt.objects.get().outcome) == ("failed", "preflight_failed")


def test_a_fault_of_ours_is_told_and_does_not_hold_the_run(workflow: Workflow, monkeypatch: pytest.MonkeyPatch) -> None:
    from apps.runs import attempts

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(attempts, "_ask", broken)
    run = start(workflow)
    for _ in range(4):
        carried(run)
    run = fresh(run)
    assert (run.status, run.lease_pid) == ("needs_attention", None)
    assert "fault of Pulse" in run.reason


def test_a_cancel_while_a_step_is_prepared_lets_none_of_its_code_run(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = start(make(cast, [factories.step("one")], {"code/one/main.py": "print('ran')"}))
    arm = Listening.arm

    def cancelled_meanwhile(listening: Listening, socket: Path) -> Stop | None:
        actions.cancel_run(fresh(run), by="Ann")
        return arm(listening, socket)

    monkeypatch.setattr(Listening, "arm", cancelled_meanwhile)
    run = carried(run)
    attempt = Attempt.objects.get(step_run__run=run)
    assert (run.status, statuses(run)["one"], attempt.outcome) == ("cancelled", "cancelled", "cancelled")
    assert (attempt.pid, attempt.exit_code) == (None, None)
    assert "Ann" in attempt.detail


def test_a_cancel_does_not_wait_for_a_writer_of_the_workflows_database(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = start(make(cast, [factories.step("one")], {"code/one/main.py": "print('ran')"}))
    Run.objects.update(fence=3)  # as after a take-over: an earlier holder may still be writing
    database = places.places_of(run.workflow).database
    workflow_db.database.make(database)
    other = workflow_db.database.Connection(database, mode=Mode.WRITE)

    def cancel() -> None:
        while not Attempt.objects.exists():
            time.sleep(0.05)
        actions.cancel_run(fresh(run), by="Ann")
        connections.close_all()

    cancelling = threading.Thread(target=cancel)
    with other.writing():
        cancelling.start()
        run = carried(run)
    cancelling.join()
    other.close()
    assert (run.status, Attempt.objects.get(step_run__run=run).outcome) == ("cancelled", "cancelled")


def test_a_saved_change_of_the_plan_reaches_the_steps_that_have_not_started(cast: Cast) -> None:
    from apps.workflows import actions as workflows

    workflow = make(cast, [factories.step("one"), factories.step("two")], {})
    run = start(workflow)
    plan = {"steps": [factories.step("one"), factories.step("three")]}
    (places.places_of(workflow).code / "three").mkdir()
    (places.places_of(workflow).code / "three" / "main.py").write_text("print('three')")
    workflows.save_plan(workflow, plan, by=cast.editor)
    run = carried(run)
    assert run.status == "succeeded", run.reason
    assert statuses(run) == {"one": "succeeded", "three": "succeeded"}
    assert Attempt.objects.first().plan_revision == 2


POOL = """
import multiprocessing
with multiprocessing.Pool(2) as pool:
    print(sum(pool.map(abs, range(-5, 5))))
"""


ODD_TEXTS = r"""
import os, sys
shared = b"/pulse/code/shared"
os.makedirs(shared + b"/\xfe", exist_ok=True)
for name in (b"/\xff.py", b"/\xff.pth", b"/\xfe/main.py", b"/\xed\xa0\x80.bin"):
    open(shared + name, "wb").close()
sys.stdout.buffer.write(b"CONCERN: a\0b \xed\xa0\x80\n")
"""


@pytest.mark.databases
def test_names_and_texts_that_no_database_keeps_end_no_run_and_break_no_page(cast: Cast) -> None:
    code = {"code/one/main.py": ODD_TEXTS, "code/shared/helper.py": ""}
    workflow = make(cast, [factories.step("one")], code)
    runs = [carried(start(workflow)), carried(start(workflow))]
    assert [run.status for run in runs] == ["succeeded", "succeeded"]
    viewer = Client()
    viewer.force_login(cast.viewer)
    of_workflow = f"/t/{cast.team.slug}/workflows/{workflow.slug}/"
    pages = [f"/runs/{run.pk}/?step=one&tab={tab}" for run in runs for tab in ("log", "timeline", "graph", "result")]
    pages += [f"/runs/{run.pk}/fragments/{name}/?step=one" for run in runs for name in ("head", "contract", "result")]
    pages += [f"{of_workflow}code/", f"{of_workflow}code/?file=shared/%EF%BF%BD.py", of_workflow]
    assert {page: status for page in pages if (status := viewer.get(page).status_code) != 200} == {}
    assert "a\u2400b" in Attempt.objects.get(step_run__run=runs[0]).claims["concerns"][0]


@pytest.mark.databases
def test_names_of_outputs_that_no_database_keeps_hold_no_run_up(cast: Cast) -> None:
    code = "import os\nopen(os.environb[b'STEP_OUTPUT_DIR'] + b'/\\xff\\xed\\xa0\\x80.json', 'w').write('{}')"
    run = carried(start(make(cast, [factories.step("one")], {"code/one/main.py": code})))
    assert run.status == "succeeded"
    assert [one["path"] for one in Attempt.objects.get(step_run__run=run).outputs] == ["\ufffd" * 4 + ".json"]


def test_a_step_may_ask_for_what_the_operator_allows(cast: Cast, settings: Any) -> None:
    settings.PULSE_LIMITS = Limits(timeout_s=3600, tool_calls=5)
    step = factories.step("one", limits={"timeout_s": 3000, "tool_calls": 9})
    run = carried(start(make(cast, [step], {"code/one/main.py": "print('ran')"})))
    attempt = Attempt.objects.get(step_run__run=run)
    assert run.status == "succeeded"
    assert (attempt.policy["limits"]["timeout_s"], attempt.policy["limits"]["tool_calls"]) == (3000, 5)
    assert [one["name"] for one in attempt.findings if one["reason"] == "limit_lowered"] == ["limits.tool_calls"]


def test_a_script_may_use_a_pool_of_processes(cast: Cast) -> None:
    workflow = make(cast, [factories.step("one")], {"code/one/main.py": POOL})
    run = carried(start(workflow))
    assert run.status == "succeeded", Attempt.objects.get().detail
    assert places.places_of(workflow).attempt(str(run.pk), "one", 1).log.read_bytes() == b"25\n"


def test_a_sandbox_that_cannot_be_built_fails_the_step_with_its_reason(
    workflow: Workflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace
    from pathlib import Path

    from apps.runs import attempts

    tools = attempts.host_tools()
    nowhere = replace(tools.bwrap, path=Path("/nowhere/bwrap"))
    monkeypatch.setattr(attempts, "_host", replace(tools, bwrap=nowhere))
    run = carried(start(workflow))
    attempt = Attempt.objects.get()
    assert (run.status, attempt.outcome, attempt.pid) == ("failed", "harness_rejected", None)
    assert attempt.detail
