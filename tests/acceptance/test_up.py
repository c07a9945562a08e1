"""`manage.py up`: starts whole, ends whole, refuses before it changes anything, and seeds nothing unasked."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.product import ROOT, Product
from tests.services.servers import free_port

pytestmark = [pytest.mark.acceptance, pytest.mark.sandbox]

COUNT = """
from apps.accounts.models import Team, User
from apps.runs.models import Run
answer({"teams": Team.objects.count(), "users": User.objects.count(),
        "runs": list(Run.objects.values_list("status", flat=True))})
"""
RUN_HELLO = """
import pathlib, tempfile
from apps.accounts import actions as accounts
from apps.accounts.models import User
from apps.runs import actions
from apps.workflows import actions as workflows
by = User.objects.create_user("somebody")
team = accounts.create_team(slug="team", name="Team", owner=by)
document = {"schema_version": 1, "code_layout_version": 1, "contract_version": "1.0.44", "slug": "hello",
            "title": "Hello", "plan": {"steps": [{"id": "hello", "kind": "scripted"}]}}
with tempfile.TemporaryDirectory() as folder:
    pathlib.Path(folder, "workflow.json").write_text(json.dumps(document))
    pathlib.Path(folder, "code/hello").mkdir(parents=True)
    pathlib.Path(folder, "code/hello/main.py").write_text(given["source"])
    workflow = workflows.import_workflow(team, by, pathlib.Path(folder))
run = actions.start_run(workflow=workflow, entry_path="manual", initiated_by="a test")
answer(str(run.pk))
"""
RUN_ANOTHER = """
from apps.runs import actions
from apps.workflows.models import Workflow
from apps.workflows.places import places_of
workflow = Workflow.objects.get()
(places_of(workflow).code / "hello/main.py").write_text(given["source"])
run = actions.start_run(workflow=workflow, entry_path="manual", initiated_by="a test")
answer(str(run.pk))
"""
STATUS = """
from apps.runs.models import Run
from apps.runs import reading
run = Run.objects.get(pk=given["run"])
answer([run.status, run.reason or reading.why_not_running(run).text, run.steps.get().attempts.count()])
"""


def up(data: Path, port: int, **environment: str) -> subprocess.CompletedProcess[str]:
    """One `up` that is expected to end by itself."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PULSE_", "DJANGO_"))}
    return subprocess.run(
        [sys.executable, "manage.py", "up"],
        cwd=ROOT,
        env={**inherited, "PULSE_DATA": str(data), "PULSE_PORT": str(port), **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_the_first_start_does_the_main_job_and_the_second_keeps_it() -> None:
    with Product("--demo") as product:
        product.until(lambda: "Pulse serves at" in product.log.read_text(), 90)
        told = product.log.read_text()
        assert re.search(r"Sign in as admin with the password \S{12,} ", told)
        assert "The run is succeeded" in told
        assert not re.search(r" (DEBUG|INFO) ", told), "the terminal has what a person needs"
        assert re.search(r" INFO pulse.access .* POST /hooks/", (product.data / "log" / "pulse.log").read_text())
        assert f"{product.url}/runs/" in told
        assert product.ask(COUNT) == {"teams": 1, "users": 1, "runs": ["succeeded"]}
        assert product.stop() == 0
        assert product.processes() == [], "Ctrl-C ends every process"

        product.start()
        product.until(
            lambda: product.log.read_text().count(f"Pulse serves at {product.url}/; Ctrl-C ends it.") == 2, 60
        )
        assert product.ask(COUNT) == {"teams": 1, "users": 1, "runs": ["succeeded"]}
        first, second = product.log.read_text().split("Stopping:")[:2]
        assert first.count("Sign in as admin") == 2, "when it is made, and below the run's story"
        assert "Sign in as" not in second


def test_without_demo_nothing_is_seeded_and_a_second_up_on_the_same_data_is_refused() -> None:
    with Product() as product:
        assert product.ask(COUNT) == {"teams": 0, "users": 0, "runs": []}
        before = (product.data / "up.lock").read_text()
        refused = up(product.data, product.port + 1 if product.port < 65535 else product.port - 1)
        assert refused.returncode == 1
        assert re.search(rf"is in use by pid \d+ on port {product.port}\.", refused.stderr)
        assert "PULSE_DATA" in refused.stderr
        assert (product.data / "up.lock").read_text() == before
        assert product.answers()


def test_a_taken_port_is_refused_before_anything_is_laid_out() -> None:
    data = Path(tempfile.mkdtemp(prefix="pulse-product-")) / "data"
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        refused = up(data, other.getsockname()[1])
    assert refused.returncode == 1
    assert "PULSE_PORT" in refused.stderr
    assert not data.exists(), "not even the keys"
    shutil.rmtree(data.parent)


def test_a_setting_that_does_not_hold_is_a_sentence_and_changes_nothing() -> None:
    data = Path(tempfile.mkdtemp(prefix="pulse-product-")) / "data"
    for name, value, said in (
        ("PULSE_PORT", "http", "PULSE_PORT must be a whole number"),
        ("PULSE_RUN_SLOTS", "-1", "PULSE_RUN_SLOTS must be 1 or more"),
        ("DATABASE_URL", "mysql://db/pulse", "DATABASE_URL must start with postgresql://"),
        ("DATABASE_URL", "postgresql://db:port/pulse", "DATABASE_URL"),
        ("DATABASE_URL", "postgresql://db", "DATABASE_URL names no database"),
        ("REDIS_URL", "localhost:6379", "REDIS_URL must start with redis://"),
    ):
        refused = up(data, free_port(), **{name: value})
        assert refused.returncode == 1
        assert said in refused.stderr
        assert "Traceback" not in refused.stderr
        assert not data.exists(), name
    shutil.rmtree(data.parent)


@pytest.mark.parametrize(
    ("bwrap", "why"), [("/nowhere/bwrap", "bubblewrap was not found"), ("/bin/false", "/bin/false")]
)
def test_a_host_that_cannot_confine_steps_serves_pages_runs_nothing_and_says_why(bwrap: str, why: str) -> None:
    with Product(PULSE_BWRAP=bwrap) as product:
        run = product.ask(RUN_HELLO, source="print('must not run')")
        product.until(lambda: "cannot confine steps" in product.log.read_text())
        product.until(lambda: why in product.ask(STATUS, run=run)[1])
        status, _, attempts = product.ask(STATUS, run=run)
        assert (status, attempts) == ("queued", 0)
        assert product.processes("cluster") == []
        assert product.answers()
        assert product.stop() == 3
        assert product.processes() == []


SLOW = """
import pathlib, time
ran = pathlib.Path("ran.txt")
ran.write_text((ran.read_text() if ran.exists() else "") + "x")
time.sleep(600)
"""


def test_killed_processes_come_back_and_a_step_cut_by_it_asks_a_person_within_30_seconds() -> None:
    with Product() as product:
        run = product.ask(RUN_HELLO, source=SLOW)
        ran = product.until(lambda: next(product.data.rglob("ran.txt"), None))
        assert product.kill("web") == 1
        assert product.kill("cluster") > 0
        product.until(lambda: product.ask(STATUS, run=run)[0] == "needs_attention", 30)
        product.until(product.answers)
        product.until(lambda: product.processes("cluster"))
        assert ran.read_text() == "x", "nothing was run twice"
        assert product.ask(STATUS, run=run)[2] == 1


def test_a_supervisor_that_hangs_is_replaced_with_all_it_started_and_its_run_asks_a_person_within_30_seconds() -> None:
    with Product() as product:
        run = product.ask(RUN_HELLO, source=SLOW)
        ran = product.until(lambda: next(product.data.rglob("ran.txt"), None))
        hung = product.processes("worker") + product.processes("cluster")
        for pid in hung:
            os.kill(pid, signal.SIGSTOP)
        product.until(lambda: product.ask(STATUS, run=run)[0] == "needs_attention", 30)
        assert "gave no sign of life" in product.log.read_text()
        assert not set(hung) & {*product.processes("worker"), *product.processes("cluster")}
        product.until(lambda: product.processes("cluster"))
        again = product.ask(RUN_ANOTHER, source="print('goes on')")
        product.until(lambda: product.ask(STATUS, run=again)[0] == "succeeded")
        assert ran.read_text() == "x", "nothing was run twice"


def test_up_killed_outright_takes_everything_with_it() -> None:
    with Product(PULSE_DRAIN_S="1") as product:
        product.ask(RUN_HELLO, source=SLOW)
        product.until(lambda: next(product.data.rglob("ran.txt"), None))
        assert product._process is not None
        product._process.kill()
        product._process.wait()
        product.until(lambda: not product.processes(), 60)
        product.start()
        assert product.answers()
