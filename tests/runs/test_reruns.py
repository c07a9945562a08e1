"""Runs again: the same inputs, earlier outputs with their source, and a link to the old run."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from apps.accounts.errors import Refused
from apps.runs import actions, inputs, outputs, tasks
from apps.runs.models import Attempt, Run
from apps.workflows import places
from apps.workflows.models import Workflow
from tests import factories
from tests.factories import Cast
from tests.runs.starts import fresh, start

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.sandbox]

FIRST = """
import os, pathlib, time
(pathlib.Path(os.environ["STEP_OUTPUT_DIR"]) / "made.txt").write_text(str(time.time_ns()))
"""
SECOND = """
import pathlib, sys
print("got", open(sys.argv[1]).read())
sys.exit(0 if pathlib.Path("mended").exists() else 1)
"""


@pytest.fixture
def broken(cast: Cast) -> tuple[Workflow, Run]:
    """A run whose second step failed on what the first one made."""
    steps = [
        factories.step("one", context_output=["made.txt"]),
        factories.step("two", context_dependencies=["one/made.txt"]),
    ]
    raw = factories.document(steps=steps, variables=[{"name": "PLACE", "value": "here"}])
    workflow = factories.make_workflow(
        cast.team, cast.owner, raw, {"code/one/main.py": FIRST, "code/two/main.py": SECOND}
    )
    run = start(workflow, variables={"PLACE": "there"})
    tasks.advance_run(str(run.pk))
    assert fresh(run).status == "failed"
    return workflow, fresh(run)


def made(workflow: Workflow, run: Run, number: int) -> bytes:
    return (places.places_of(workflow).attempt(str(run.pk), "one", number).out / "made.txt").read_bytes()


def mend(workflow: Workflow) -> None:
    (places.places_of(workflow).code / "two" / "mended").touch()


@pytest.mark.parametrize("how", [{"from_step": "two"}, {"only_failed": True}])
def test_a_rerun_takes_earlier_outputs_over_with_source_and_digest(
    broken: tuple[Workflow, Run], cast: Cast, how: dict[str, object]
) -> None:
    workflow, old = broken
    mend(workflow)
    new = actions.rerun(old, by=cast.operator, **how)  # type: ignore[arg-type]
    assert (new.rerun_of, new.rerun_from, new.initiator) == (old, "two", cast.operator)
    tasks.advance_run(str(new.pk))
    assert fresh(new).status == "succeeded"
    step = new.steps.get(step_id="one")
    content = made(workflow, old, 1)
    assert made(workflow, new, 0) == content
    assert step.reused_from == Attempt.objects.get(step_run__run=old, step_run__step_id="one").pk
    assert step.reused_files == [
        {"path": "made.txt", "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    ]
    assert not step.attempts.exists()
    assert inputs.read(new).variables == {"PLACE": "there"}
    assert fresh(old).status == "failed"


def test_a_whole_rerun_makes_everything_anew(broken: tuple[Workflow, Run], cast: Cast) -> None:
    workflow, old = broken
    mend(workflow)
    new = actions.rerun(old, by=cast.operator)
    tasks.advance_run(str(new.pk))
    assert fresh(new).status == "succeeded"
    assert made(workflow, new, 1) != made(workflow, old, 1)


def test_failing_again_is_failing(broken: tuple[Workflow, Run], cast: Cast) -> None:
    _, old = broken
    new = actions.rerun(old, by=cast.operator, only_failed=True)
    tasks.advance_run(str(new.pk))
    assert fresh(new).status == "failed"


@pytest.mark.parametrize(
    ("how", "code"),
    [({"from_step": "nowhere"}, "unknown_step"), ({"from_step": "three"}, "unknown_step")],
)
def test_it_refuses_a_beginning_that_is_none(
    broken: tuple[Workflow, Run], cast: Cast, how: dict[str, str], code: str
) -> None:
    with pytest.raises(Refused) as refused:
        actions.rerun(broken[1], by=cast.operator, **how)  # type: ignore[arg-type]
    assert refused.value.code == code
    assert Run.objects.count() == 1


def test_it_refuses_a_run_that_has_not_ended(workflow: Workflow, cast: Cast) -> None:
    run = start(workflow)
    with pytest.raises(Refused) as refused:
        actions.rerun(run, by=cast.operator)
    assert (refused.value.status, refused.value.code) == (409, "run_not_ended")


def test_it_refuses_to_begin_behind_a_step_that_did_not_succeed(cast: Cast) -> None:
    steps = [factories.step("one"), factories.step("two")]
    workflow = factories.make_workflow(
        cast.team, cast.owner, factories.document(steps=steps), {"code/one/main.py": "raise SystemExit(1)"}
    )
    run = start(workflow)
    tasks.advance_run(str(run.pk))
    with pytest.raises(Refused) as refused:
        actions.rerun(fresh(run), by=cast.operator, from_step="two")
    assert refused.value.code == "cannot_take_over"


def test_outputs_that_are_gone_end_the_rerun_with_that_reason(broken: tuple[Workflow, Run], cast: Cast) -> None:
    _, old = broken
    new = actions.rerun(old, by=cast.operator, only_failed=True)
    Run.objects.filter(pk=old.pk).update(artifacts_expired=True)
    tasks.advance_run(str(new.pk))
    assert (fresh(new).status, fresh(new).reason_code) == ("failed", "artifacts_expired")


ODD = """
import os
os.chdir(os.environ["STEP_OUTPUT_DIR"])
open("made.txt", "w").write("made")
os.link("made.txt", "twin"); os.link("made.txt", "gone"); os.unlink("made.txt"); os.unlink("gone")
os.rename("twin", "made.txt")
open("h", "w").write("x"); os.link("h", "h2")
open("two\\nlines", "w").write("x"); open(b"\\xff", "w").write("x"); open("n" * 230, "w").write("x")
os.mkfifo("pipe"); os.symlink("/etc/passwd", "link")
open("holes", "w").truncate(200 << 20); open("closed", "w").write("x"); os.chmod("closed", 0)
"""


def test_what_is_odd_among_earlier_outputs_is_named_and_holds_no_rerun_up(
    broken: tuple[Workflow, Run], cast: Cast
) -> None:
    workflow, _ = broken
    (places.places_of(workflow).code / "one" / "main.py").write_text(ODD)
    old = start(workflow, variables={"PLACE": "there"})
    tasks.advance_run(str(old.pk))
    mend(workflow)
    new = actions.rerun(fresh(old), by=cast.operator, from_step="two")
    tasks.advance_run(str(new.pk))
    assert fresh(new).status == "succeeded", fresh(new).reason
    reused = new.steps.get(step_id="one").reused_files
    assert {one["path"]: one.get("problem", "") for one in reused} == {
        "made.txt": "",
        "closed": "",
        "holes": "not_scanned",
        **dict.fromkeys(("h", "h2", "pipe", "link"), "result_not_regular"),
        **dict.fromkeys(("two\nlines", "\ufffd", "n" * 230), "result_escapes"),
    }
    holes = outputs.folder(new.steps.get(step_id="one"), outputs.COPIED_IN).out / "holes"
    assert (holes.stat().st_size, holes.stat().st_blocks) == (200 << 20, 0)


def test_a_step_that_left_nothing_is_taken_over(cast: Cast) -> None:
    raw = factories.document(steps=[factories.step("one"), factories.step("two")])
    code = {"code/one/main.py": "pass", "code/two/main.py": "raise SystemExit(1)"}
    workflow = factories.make_workflow(cast.team, cast.owner, raw, code)
    old = start(workflow)
    tasks.advance_run(str(old.pk))
    (places.places_of(workflow).code / "two" / "main.py").write_text("pass")
    new = actions.rerun(fresh(old), by=cast.operator, only_failed=True)
    tasks.advance_run(str(new.pk))
    assert (fresh(new).status, new.steps.get(step_id="one").reused_files) == ("succeeded", [])


def change(out: Path) -> None:
    (out / "made.txt").write_text("0" * (out / "made.txt").stat().st_size)


def remove(out: Path) -> None:
    shutil.rmtree(out)


@pytest.mark.parametrize("damage", [change, remove])
def test_outputs_that_are_not_what_was_recorded_are_not_taken_over(
    broken: tuple[Workflow, Run], cast: Cast, damage: Callable[[Path], None]
) -> None:
    workflow, old = broken
    damage(places.places_of(workflow).attempt(str(old.pk), "one", 1).out)
    new = actions.rerun(old, by=cast.operator, only_failed=True)
    tasks.advance_run(str(new.pk))
    assert (fresh(new).status, fresh(new).reason_code) == ("failed", "outputs_changed")


def test_one_step_alone_runs_with_the_latest_outputs_it_needs(broken: tuple[Workflow, Run]) -> None:
    workflow, old = broken
    mend(workflow)
    run = start(workflow, only_step="two")
    tasks.advance_run(str(run.pk))
    run = fresh(run)
    assert (run.scope, run.status) == ("step", "succeeded")
    assert [step.step_id for step in run.steps.all()] == ["two"]
    log = places.places_of(workflow).attempt(str(run.pk), "two", 1).log
    assert b"got " + made(workflow, old, 1) in log.read_bytes()
    assert run.steps.get().reused_files == [
        {
            "path": "one/made.txt",
            "run_id": str(old.pk),
            "attempt_id": str(Attempt.objects.get(step_run__run=old, step_run__step_id="one").pk),
        }
    ]


def test_the_delivery_of_a_rerun_is_the_old_one_byte_for_byte_but_for_its_id(cast: Cast) -> None:
    workflow = factories.make_workflow(cast.team, cast.owner)
    old = actions.start_run(workflow=workflow, entry_path="github", initiated_by="a test")
    payload = b', "payload": {"b":1.10,"c":12345678901234567890.123456789,"d":1,"d":2}}\n'
    whole = places.places_of(workflow)
    places.make_way(whole.delivery(str(old.pk)).parent)
    whole.delivery(str(old.pk)).write_bytes(f'{{"run_id": "{old.pk}"'.encode() + payload)
    actions.cancel_run(old, by="a test")
    new = actions.rerun(fresh(old), by=cast.owner)
    assert whole.delivery(str(new.pk)).read_bytes() == f'{{"run_id": "{new.pk}"'.encode() + payload
