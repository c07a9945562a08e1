"""A queue that is down takes no delivery back: the row is there first (BEHAVIOUR 8)."""

from __future__ import annotations

import shutil

import pytest

from tests.product import Product
from tests.webhooks.wire import SECRET, payload, signature

pytestmark = [pytest.mark.services]

TAKE = """
from django.core.management import call_command
call_command("migrate", verbosity=0)
from django.utils import timezone
from apps.accounts.models import User
from apps.runs.models import Run
from apps.webhooks import actions, demo
from apps.webhooks.accept import accept_deliveries
from apps.webhooks.arrivals import Arrival
by = User.objects.create_user("somebody")
hook = actions.rotate(demo.prepare(by), by=by, secret=given["secret"]).trigger
body = given["body"].encode()
answer_ = accept_deliveries([Arrival(hook.key, body, given["headers"], "", timezone.now())])[0]
run = Run.objects.get()
answer([answer_.status, answer_.run_id, str(run.pk), run.status, run.enqueued_at])
"""


def test_with_the_queue_down_the_answer_is_202_and_the_run_waits_for_the_sweeper():
    product = Product(REDIS_URL="redis://127.0.0.1:1/0")  # nothing listens there
    headers = {
        "content-type": "application/json",
        "x-github-event": "pull_request",
        "x-github-delivery": "d-1",
        "x-hub-signature-256": signature(payload()),
    }
    try:
        taken = product.ask(TAKE, secret=SECRET, body=payload().decode(), headers=headers)
    finally:
        shutil.rmtree(product.data)
    status, answered, made, state, enqueued_at = taken
    assert (status, answered, state) == (202, made, "queued")
    assert enqueued_at is None, "what no queue has taken, the sweeper queues"
