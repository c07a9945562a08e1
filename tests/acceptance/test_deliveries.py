"""Deliveries as their senders see them: over HTTP, to the product as it is started."""

from __future__ import annotations

import json
import subprocess
import sys
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.product import ROOT, Product
from tests.webhooks.wire import SECRET, payload, signature

pytestmark = [pytest.mark.acceptance, pytest.mark.sandbox]

PREPARE = """
from apps.accounts.models import User
from apps.webhooks import actions, demo
from apps.webhooks.models import Trigger
by = User.objects.create_user("somebody")
hook = actions.rotate(demo.prepare(by), by=by, secret=given["secret"]).trigger
bearer = actions.rotate(Trigger.objects.get(workflow=hook.workflow, kind="bearer"), by=by)
answer({"github": hook.key, "bearer": bearer.trigger.key, "token": bearer.secret})
"""


@pytest.fixture(scope="module")
def product():
    with Product() as product:
        yield product


@pytest.fixture(scope="module")
def hooks(product):
    return product.ask(PREPARE, secret=SECRET)


def request(url, body=None, **headers):
    """Status, headers and JSON of the answer."""
    asked = Request(url, data=body, headers={name.replace("_", "-"): value for name, value in headers.items()})
    try:
        with urlopen(asked, timeout=30) as response:
            return response.status, response.headers, json.loads(response.read())
    except HTTPError as wrong:
        return wrong.code, wrong.headers, json.loads(wrong.read())


def deliver(product, key, body, delivery, signed):
    return request(
        f"{product.url}/hooks/{key}",
        body,
        Content_Type="application/json",
        X_GitHub_Event="pull_request",
        X_GitHub_Delivery=delivery,
        X_Hub_Signature_256=signed,
    )


def test_the_demo_command_sends_the_sample_again_and_follows_its_run(product, hooks):
    done = subprocess.run(
        [sys.executable, "manage.py", "demo"],
        cwd=ROOT,
        env=product.environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "run.succeeded" in done.stdout
    assert "# Codertocat/Hello-World#2" in done.stdout
    assert f"{product.url}/runs/" in done.stdout


def test_a_token_starts_a_run_and_reads_its_end_at_the_status_url(product, hooks):
    body = json.dumps({"owner": "me", "repo": "mine", "pull_number": 7, "head_sha": "f" * 40}).encode()
    authorization = f"Bearer {hooks['token']}"
    url = f"{product.url}/hooks/{hooks['bearer']}"
    status, _, taken = request(url, body, Content_Type="application/json", Authorization=authorization)
    assert status == 202

    def ended():
        _, _, seen = request(taken["status_url"], Authorization=authorization)
        return seen if seen["finished_at"] else None

    assert product.until(ended, 60)["status"] == "succeeded"
    assert request(taken["status_url"], Authorization="Bearer wrong")[0] == 401


def test_a_copy_a_forgery_and_a_stranger_are_told_apart(product, hooks):
    body = payload()
    first = deliver(product, hooks["github"], body, "d-1", signature(body))
    copy = deliver(product, hooks["github"], body, "d-1", signature(body))
    forged = deliver(product, hooks["github"], body.replace(b"opened", b"closed"), "d-2", signature(body))
    stranger = deliver(product, "no-such-hook", body, "d-3", signature(body))
    assert (first[0], copy[0], forged[0], stranger[0]) == (202, 200, 401, 404)
    assert copy[2]["run_id"] == first[2]["run_id"]
    assert first[1]["Cache-Control"] == "no-store"


def test_a_body_that_is_too_large_is_a_413(product, hooks):
    body = b"x" * (1024 * 1024 + 1)
    assert deliver(product, hooks["github"], body, "d-4", signature(body))[0] == 413
