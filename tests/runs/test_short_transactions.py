"""Whoever writes to the platform's database writes rows: no file, no other database, no check of what a team wrote."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from django.db import connection, transaction
from django.test import Client

from apps.accounts.errors import Refused
from apps.runs import actions as runs
from apps.runs import tasks
from apps.runs.models import Run
from apps.tools import workflow_db
from apps.webhooks import actions as hooks
from apps.webhooks.models import Delivery, Trigger
from apps.workflows import actions, documents, exporting, places, saving
from apps.workflows.errors import SavedMeanwhile
from apps.workflows.models import Workflow
from engine import document
from tests import factories
from tests.factories import Cast
from tests.runs.starts import fresh, start
from tests.webhooks.senders import make_hook

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.databases, pytest.mark.sandbox]

WATCHED = ("open", "os.", "shutil.", "sqlite3.")
listening: list[bool] = []
heard: list[str] = []


def _hear(event: str, given: tuple[object, ...]) -> None:
    """Python tells of every file that is opened, moved or removed; a hook cannot be taken off, only be deaf."""
    if not listening or not event.startswith(WATCHED) or not connection.in_atomic_block:
        return
    named = " ".join(str(one) for one in given if isinstance(one, str | bytes | os.PathLike))
    if event == "sqlite3.connect" or "/workspaces/" in named:
        heard.append(f"{event} {named}")


sys.addaudithook(_hear)


@contextmanager
def hearing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patched:
        heard.clear()
        for name in ("parse_workflow", "parse_plan"):
            patched.setattr(document, name, _outside(getattr(document, name)))
        listening.append(True)
        try:
            yield
        finally:
            listening.clear()


@contextmanager
def nothing_but_rows(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Within transactions nothing of a workspace is touched and no document is parsed."""
    with hearing(monkeypatch):
        yield
    assert heard == []


def _outside(parse: Callable[..., object]) -> Callable[..., object]:
    def told(*given: object, **named: object) -> object:
        if connection.in_atomic_block:
            heard.append(f"{parse.__name__} in a transaction")
        return parse(*given, **named)

    return told


FIRST = """
import os, pathlib, pulse
pulse.call("mutate_workflow_db", sql="INSERT INTO a VALUES (2)")
(pathlib.Path(os.environ["STEP_OUTPUT_DIR"]) / "made.txt").write_text("x")
"""
STEPS = [
    factories.step(
        "one", context_output=["made.txt"], tools=["mutate_workflow_db"], access={"db": "read-write"}, title="{{PLACE}}"
    ),
    factories.step("two", context_dependencies=["one/made.txt"]),
]
RAW = {"steps": STEPS, "variables": [{"name": "PLACE", "value": "here"}]}
FILES = {
    "code/one/main.py": FIRST,
    "code/two/main.py": "raise SystemExit(1)",
    "db/migrations/m0001.sql": "CREATE TABLE a (x); INSERT INTO a VALUES (1);",
}


@pytest.fixture
def whole(cast: Cast) -> Workflow:
    return factories.make_workflow(cast.team, cast.owner, factories.document("whole", **RAW), FILES)


def test_what_is_listened_for_is_heard(whole: Workflow, monkeypatch: pytest.MonkeyPatch) -> None:
    with hearing(monkeypatch), transaction.atomic():
        (places.places_of(whole).code / "one" / "main.py").read_bytes()
        workflow_db.describe(whole)
        document.parse_plan({"steps": STEPS})
    said = " ".join(heard)
    for name in ("open /", "sqlite3.connect", "parse_plan"):
        assert name in said, heard


def test_imports_and_exports(cast: Cast, whole: Workflow, monkeypatch: pytest.MonkeyPatch) -> None:
    with nothing_but_rows(monkeypatch):
        factories.make_workflow(cast.team, cast.owner, factories.document("another", **RAW), FILES)
        triggers = [{"kind": "github", "name": "hook", "events": ["push"]}]
        for listed in (triggers, []):
            factories.make_workflow(cast.team, cast.owner, factories.document("whole", **RAW, triggers=listed), FILES)
        more = {**FILES, "db/migrations/m0002.sql": "DROP TABLE a;", "learnings/_global/a.md": "a"}
        factories.make_workflow(cast.team, cast.owner, factories.document("whole", title="New", **RAW), more)
        wrong = {**more, "db/migrations/m0003.sql": "nonsense;"}
        with pytest.raises(Refused):
            factories.make_workflow(cast.team, cast.owner, factories.document("whole", title="Wrong", **RAW), wrong)
        exporting.export_workflow(whole, io.BytesIO(), by=cast.owner)
        actions.delete_workflow(whole, by=cast.owner)
    assert not places.places_of(whole).root.exists()


def test_saves(cast: Cast, whole: Workflow, monkeypatch: pytest.MonkeyPatch) -> None:
    by = cast.owner
    with nothing_but_rows(monkeypatch):
        actions.save_plan(whole, {"steps": [*STEPS, factories.step("three")]}, by=by)
        actions.set_variable(whole, name="PLACE", value="there", by=by)
        actions.set_variable(whole, name="MORE", value=1, by=by)
        actions.set_group(whole, name="default", values={"MORE": 2}, by=by)
        actions.delete_variable(whole, name="MORE", by=by)
        actions.delete_group(whole, name="default", by=by)
        actions.set_settings(whole, {"max_concurrent_runs": 2}, by=by)
        actions.describe(whole, title="New", objective="", by=by)
        actions.set_secret(cast.team, name="TOKEN", value="a-long-enough-value", by=by)
        actions.allow_secrets(whole, ["TOKEN"], by=by)
        given = {"kind": "github", "name": "hook", "events": ["push"]}
        trigger = hooks.make_trigger(workflow=whole, document=given, by=by).trigger
        hooks.set_enabled(trigger, enabled=False, by=by)
        hooks.set_enabled(trigger, enabled=True, by=by)
        hooks.delete_trigger(trigger, by=by)


def test_runs_from_their_start_to_a_rerun(cast: Cast, whole: Workflow, monkeypatch: pytest.MonkeyPatch) -> None:
    token = factories.make_token(cast.team, cast.owner, "run", "read")
    client = Client(headers={"Authorization": f"Bearer {token}", "Idempotency-Key": "one"})
    with nothing_but_rows(monkeypatch):
        started = client.post("/api/v1/workflows/whole/runs", "{}", content_type="application/json").json()
        run = Run.objects.get(pk=started["run_id"])
        tasks.advance_run(str(run.pk))
        assert [*fresh(run).steps.values_list("status", flat=True)] == ["succeeded", "failed"]
        again = runs.rerun(fresh(run), by=cast.owner, from_step="two")
        tasks.advance_run(str(again.pk))
        runs.cancel_run(start(whole), by="somebody")
    assert fresh(again).status == "failed"


def test_deliveries(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    sender = make_hook(cast)
    with nothing_but_rows(monkeypatch):
        answers = [sender.post(delivery=name).status_code for name in ("one", "one", "two")]
        hooks.redeliver(Delivery.objects.filter(status=202).earliest("received_at"), by=cast.owner)
    assert answers == [202, 200, 202]
    assert Run.objects.count() == 3


def test_a_save_is_checked_anew_when_another_came_between(
    cast: Cast, whole: Workflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, others = documents.check, iter(["A", "B"])

    def check(*given: object, **named: object) -> object:
        checked = real(*given, **named)  # type: ignore[arg-type]
        name = next(others, None)
        if name:
            actions.set_variable(Workflow.objects.get(pk=whole.pk), name=name, value="meanwhile", by=cast.owner)
        return checked

    monkeypatch.setattr(documents, "check", check)
    actions.set_variable(whole, name="MINE", value="mine", by=cast.owner)
    assert set(whole.variables.values_list("name", flat=True)) == {"PLACE", "A", "B", "MINE"}


def test_a_trigger_that_is_saved_between_counts_too(
    cast: Cast, whole: Workflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, given = documents.check, {"kind": "github", "name": "hook", "events": ["push"], "group": "one"}
    actions.set_group(whole, name="one", values={}, by=cast.owner)

    def check(*args: object, **named: object) -> object:
        checked = real(*args, **named)  # type: ignore[arg-type]
        monkeypatch.setattr(documents, "check", real)
        hooks.make_trigger(workflow=Workflow.objects.get(pk=whole.pk), document=given, by=cast.owner)
        return checked

    monkeypatch.setattr(documents, "check", check)
    with pytest.raises(Refused, match="group"):  # which it would leave without its group
        actions.delete_group(whole, name="one", by=cast.owner)
    assert Trigger.objects.get().group == "one"


def test_a_save_that_is_always_late_says_so(cast: Cast, whole: Workflow, monkeypatch: pytest.MonkeyPatch) -> None:
    real = documents.check

    def check(*given: object, **named: object) -> object:
        whole_now = Workflow.objects.get(pk=whole.pk)
        whole_now.save(update_fields=["updated_at"])
        return real(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(documents, "check", check)
    with pytest.raises(SavedMeanwhile, match="Nothing was changed"):
        actions.describe(whole, title="Mine", objective="", by=cast.owner)
    assert Workflow.objects.get(pk=whole.pk).title != "Mine"
    assert saving.TRIES > 1
