"""A step that counts how often it was started and goes on until it is let go."""

from __future__ import annotations

from apps.runs.models import Attempt, Run
from apps.workflows import places
from apps.workflows.models import Workflow
from tests import factories
from tests.factories import Cast
from tests.runs.workers import Supervised, started, until

SOURCE = """
import pathlib, time
ran = pathlib.Path("ran.txt")
ran.write_text(ran.read_text() + "x" if ran.exists() else "x")
print("started", flush=True)
while not pathlib.Path("go").exists():
    time.sleep(0.02)
"""


def counting(cast: Cast, **keys: object) -> Workflow:
    raw = factories.document(steps=[factories.step("hello", **keys), factories.step("after")])
    return factories.make_workflow(cast.team, cast.owner, raw, {"code/hello/main.py": SOURCE})


def starts_of(workflow: Workflow) -> int:
    path = places.places_of(workflow).code / "hello" / "ran.txt"
    return len(path.read_text()) if path.exists() else 0


def begun(run: Run, workflow: Workflow, whose: Supervised) -> Attempt:
    """The open attempt, once its code runs."""
    attempt = started(run, whose)
    until(lambda: starts_of(workflow) == 1, whose)
    return attempt


def let_go(workflow: Workflow) -> None:
    (places.places_of(workflow).code / "hello" / "go").touch()
