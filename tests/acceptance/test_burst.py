"""A burst of deliveries while web and worker are killed: nothing is lost, nothing is doubled."""

from __future__ import annotations

import http.client
import json
import threading
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.product import Product
from tests.webhooks.wire import payload, signature

pytestmark = [pytest.mark.acceptance, pytest.mark.sandbox, pytest.mark.timeout(420)]

DELIVERIES = 500
WITH_STEPS = 40  # of these, so many run steps in sandboxes; the others decide a branch and end
SENDERS = 16
SECRET = "the secret of the burst"
TRIES = 400

PREPARE = """
from apps.accounts.models import User
from apps.webhooks import actions, demo
from apps.webhooks.models import Trigger
from apps.workflows import actions as workflows
from pathlib import Path
import tempfile
by = User.objects.create_user("somebody")
hook = demo.prepare(by)
review = actions.rotate(hook, by=by, secret=given["secret"]).trigger
with tempfile.TemporaryDirectory() as folder:
    Path(folder, "workflow.json").write_text(json.dumps(given["light"]))
    light = workflows.import_workflow(hook.workflow.team, by, Path(folder))
trigger = Trigger.objects.get(workflow=light)
actions.rotate(trigger, by=by, secret=given["secret"])
answer([review.key, trigger.key])
"""

LIGHT = {
    "schema_version": 1,
    "code_layout_version": 1,
    "contract_version": "1.0.44",
    "slug": "light",
    "title": "A branch and no step",
    "plan": {
        "steps": [
            {
                "id": "decide",
                "kind": "branch",
                "question": "?",
                "default_route_id": "a",
                "routes": [{"route_id": "a", "next_step_id": "end"}, {"route_id": "b", "next_step_id": "end"}],
            }
        ]
    },
    "triggers": [{"kind": "github", "name": "hook"}],
    "settings": {"max_concurrent_runs": 8},
}

COUNT = """
from apps.runs.models import Run, RunEvent, StepRun
from apps.webhooks.models import Delivery
from collections import Counter
accepted = Delivery.objects.filter(verdict="accepted")
answer({
    "accepted": dict((row.external_id, str(row.run_id)) for row in accepted.defer("body")),
    "rows": accepted.count(),
    "runs": dict((str(pk), status) for pk, status in Run.objects.values_list("pk", "status")),
    "first_events": Counter(str(pk) for pk in RunEvent.objects.filter(seq=1).values_list("run_id", flat=True)),
    "reasons": dict((str(pk), code) for pk, code in Run.objects.values_list("pk", "reason_code")),
})
"""

DECISIONS = """
from apps.webhooks import demo
from apps.workflows import places
import sqlite3
database = sqlite3.connect(places.places_of(demo.trigger().workflow).database)
answer([row[0] for row in database.execute("SELECT run_id FROM pr_gate_decisions")])
"""


class Burst:
    """Posts every delivery until it is answered, as a sender does that retries."""

    def __init__(self, port, keys):
        self.port, self.keys = port, keys
        self.body = payload()
        self.signature = signature(self.body, SECRET)
        self.answers: dict[str, set[str]] = {}
        self.statuses: Counter[int] = Counter()
        self.lock = threading.Lock()

    def deliver(self, number):
        key = self.keys[0] if number % (DELIVERIES // WITH_STEPS) == 0 else self.keys[1]
        delivery = str(uuid.uuid4())
        for _ in range(TRIES):
            try:
                status, answer = self.post(key, delivery)
            except (OSError, http.client.HTTPException, ValueError):
                threading.Event().wait(0.1)
                continue
            with self.lock:
                self.statuses[status] += 1
                if status in {200, 202}:
                    self.answers.setdefault(delivery, set()).add(answer["run_id"])
                    return
            threading.Event().wait(0.1)
        raise AssertionError(f"a delivery was never taken; the answers were {self.statuses}")

    def post(self, key, delivery):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        headers = {
            "Content-Type": "application/json",
            "X-GitHub-Event": "pull_request",
            "X-GitHub-Delivery": delivery,
            "X-Hub-Signature-256": self.signature,
        }
        try:
            connection.request("POST", f"/hooks/{key}", self.body, headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def taken(self):
        with self.lock:
            return len(self.answers)


def test_killing_web_and_worker_in_a_burst_of_500_loses_and_doubles_nothing():
    with Product(PULSE_RUN_SLOTS="4") as product:
        burst = Burst(product.port, product.ask(PREPARE, light=LIGHT, secret=SECRET))
        with ThreadPoolExecutor(SENDERS) as pool:
            sent = [pool.submit(burst.deliver, number) for number in range(DELIVERIES)]
            for share, command in ((5, "web"), (3, "worker"), (2, "web"), (1.4, "worker")):
                product.until(lambda wanted=DELIVERIES / share: burst.taken() >= wanted, 120)
                assert product.kill(command) > 0
            for one in sent:
                one.result()
        assert all(len(runs) == 1 for runs in burst.answers.values()), "one delivery was answered with two runs"

        def settled():
            seen = product.ask(COUNT)
            moving = [run for run, status in seen["runs"].items() if status in {"queued", "running"}]
            return seen if not moving else None

        seen = product.until(settled, 180)
        decided = Counter(product.ask(DECISIONS))

    assert seen["rows"] == len(seen["accepted"]) == DELIVERIES
    assert {delivery: next(iter(runs)) for delivery, runs in burst.answers.items()} == seen["accepted"]
    assert set(seen["runs"]) == set(seen["accepted"].values())
    assert set(seen["first_events"].values()) == {1}
    lost = {run for run, status in seen["runs"].items() if status == "needs_attention"}
    assert {status for run, status in seen["runs"].items() if run not in lost} == {"succeeded"}
    assert {seen["reasons"][run] for run in lost} <= {"worker_lost"}
    assert set(decided.values()) == {1}, "a decision was recorded twice"
    with_steps = {seen["accepted"][delivery] for delivery in seen["accepted"]} - lost
    assert sum(run in with_steps for run in decided) >= WITH_STEPS - len(lost)
