"""The product with everything in it that the rows need: started once, on a free port, with data that is thrown away."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.product import Product

STEPS = 40
ENDED = {"succeeded", "failed", "cancelled", "needs_attention"}

FIRST_LINE = "import time\nprint(time.time_ns())\n"
TICKS = "import time\nfor _ in range(200):\n    print(time.time_ns(), flush=True)\n    time.sleep(0.02)\n"
CALLS = """import time
import pulse
took = []
for _ in range(2000):
    began = time.perf_counter()
    pulse.call("query_workflow_db", sql="SELECT 1 AS one")
    took.append((time.perf_counter() - began) * 1000)
pulse.write_json("took.json", took[100:])
"""

PREPARE = """
from pathlib import Path
import tempfile
from django.test import Client
from apps.accounts import actions as accounts
from apps.accounts.models import User
from apps.webhooks import actions, demo
from apps.webhooks.models import Trigger
from apps.workflows import actions as workflows
by = User.objects.create_user("bench", is_staff=True)
trigger = demo.prepare(by)
team = trigger.workflow.team
keys = {}
for raw, files in given["workflows"]:
    with tempfile.TemporaryDirectory() as folder:
        for name, text in {"workflow.json": json.dumps(raw), **files}.items():
            Path(folder, name).parent.mkdir(parents=True, exist_ok=True)
            Path(folder, name).write_text(text)
        made = workflows.import_workflow(team, by, Path(folder))
    hook = Trigger.objects.get(workflow=made)
    actions.rotate(hook, by=by, secret=given["secret"])
    keys[made.slug] = hook.key
browser = Client()
browser.force_login(by)
token = accounts.make_token(team, by, name="bench", scopes=["read", "run", "build"]).secret
answer({"keys": keys, "token": token, "cookie": browser.cookies["sessionid"].value})
"""

SECRET = "the secret of the bench"


@dataclass(frozen=True)
class Stage:
    """A running product, the hooks of its workflows by slug, an API token and a signed-in browser's cookie."""

    product: Product
    keys: dict[str, str]
    token: str
    cookie: str

    def api(self, method: str, path: str, body: Any = None, *, token: str = "") -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self.product.port, timeout=60)
        try:
            headers = {"Authorization": f"Bearer {token or self.token}", "Content-Type": "application/json"}
            connection.request(method, f"/api/v1{path}", None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            data = response.read()
            if response.status >= 400:
                raise AssertionError(f"{method} {path} answered {response.status}: {data[:500]!r}")
            return json.loads(data) if data else None
        finally:
            connection.close()

    def start(self, slug: str, **body: Any) -> str:
        return str(self.api("POST", f"/workflows/{slug}/runs", body)["run_id"])

    def ended(self, *runs: str, within_s: float = 300) -> dict[str, dict[str, str]]:
        """The times of these runs, once all have ended; AssertionError when one did not succeed."""
        left, deadline = set(runs), time.monotonic() + within_s
        while left:
            left = {run for run in left if self.api("GET", f"/runs/{run}")["status"] not in ENDED}
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"runs did not end within {within_s:.0f} s\n{self.product.log.read_text()[-3000:]}"
                )
            time.sleep(0.2 if left else 0)
        seen: dict[str, dict[str, str]] = self.product.ask(TIMES, runs=list(runs))
        for run, times in seen.items():
            if times["status"] == "needs_attention":
                raise AssertionError(f"run {run} needs attention")
        return seen

    def output(self, run: str, step_id: str, name: str) -> Any:
        text: str = self.product.ask(OUTPUT, run=run, step=step_id, name=name)
        return json.loads(text)

    def log(self, run: str, step_id: str) -> str:
        text: str = self.product.ask(LOG, run=run, step=step_id)
        return text


TIMES = """
from apps.runs.models import Run
rows = Run.objects.filter(pk__in=given["runs"])
answer({str(run.pk): {
    "status": run.status,
    "took": (run.finished_at - run.started_at).total_seconds(),
    "whole": (run.finished_at - run.queued_at).total_seconds(),
    "started": run.started_at.timestamp(), "finished": run.finished_at.timestamp()} for run in rows})
"""

OUTPUT = """
from apps.runs import outputs
from apps.runs.models import StepRun
from engine.sandbox.files import Beneath
step = StepRun.objects.select_related("run__workflow").get(run_id=given["run"], step_id=given["step"])
with Beneath(outputs.of_step(step).out) as folder:
    answer(folder.read(given["name"], 10_000_000).decode())
"""

LOG = """
from apps.runs.models import Run
from apps.workflows import places
run = Run.objects.select_related("workflow").get(pk=given["run"])
answer(places.places_of(run.workflow).attempt(str(run.pk), given["step"], 1).log.read_text())
"""


@contextmanager
def stage() -> Iterator[Stage]:
    with Product() as product:
        workflows = [_many(STEPS), _one("first-line", FIRST_LINE), _one("ticks", TICKS), _calls()]
        made = product.ask(PREPARE, workflows=workflows, secret=SECRET)
        yield Stage(product, made["keys"], made["token"], made["cookie"])


def _workflow(slug: str, steps: list[dict[str, Any]], files: dict[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    raw = {
        "schema_version": 1,
        "code_layout_version": 1,
        "contract_version": "1.0.44",
        "slug": slug,
        "title": slug,
        "plan": {"steps": steps},
        "triggers": [{"kind": "github", "name": "hook"}],
        "settings": {"max_concurrent_runs": 1000},
    }
    return raw, files


def _many(count: int) -> tuple[dict[str, Any], dict[str, str]]:
    names = [f"step-{number:02d}" for number in range(count)]
    steps = [{"id": name, "kind": "scripted"} for name in names]
    return _workflow("many-steps", steps, {f"code/{name}/main.py": 'print("hello")\n' for name in names})


def _one(slug: str, code: str) -> tuple[dict[str, Any], dict[str, str]]:
    return _workflow(slug, [{"id": "only", "kind": "scripted"}], {"code/only/main.py": code})


def _calls() -> tuple[dict[str, Any], dict[str, str]]:
    step = {
        "id": "only",
        "kind": "scripted",
        "tools": ["query_workflow_db"],
        "access": {"db": "read"},
        "context_output": ["took.json"],
    }
    files = {"code/only/main.py": CALLS, "db/migrations/0001_numbers.sql": "CREATE TABLE numbers (n INTEGER);\n"}
    return _workflow("calls", [step], files)
