"""Whatever a batch meets, its senders are answered, and the next ones are served."""

from __future__ import annotations

import asyncio
import logging

import pytest

from apps.webhooks import door
from apps.webhooks import writer as of_process
from config.front import Front
from tests.webhooks.senders import make_hook, payload, scope_of, signature, talk

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.databases]


class Raising(logging.Handler):
    """A log that raises into whoever writes to it."""

    def emit(self, record: logging.LogRecord) -> None:
        raise OSError(28, "No space left on device")


def knock(sender, delivery):
    headers = {
        "Content-Type": "application/json",
        "X-GitHub-Event": "pull_request",
        "X-GitHub-Delivery": delivery,
        "X-Hub-Signature-256": signature(payload()),
    }

    async def once():
        talked = talk(Front(door.application), scope_of(sender, headers), payload())
        return await asyncio.wait_for(talked, 30)

    return asyncio.run(once()).status_code


def test_a_fault_whose_log_line_fails_as_well_leaves_nobody_waiting(monkeypatch):
    sender, accept, left = make_hook(), of_process.accept_deliveries, ["once"]

    def fails_once(batch):
        if left:
            raise RuntimeError(left.pop())
        return accept(batch)

    monkeypatch.setattr(of_process, "accept_deliveries", fails_once)
    log = logging.getLogger("apps.webhooks.writer")
    raising = Raising()
    log.addHandler(raising)
    try:
        answers = [knock(sender, "d-1"), knock(sender, "d-1")]
    finally:
        log.removeHandler(raising)
        of_process.writer.stop()
    assert answers == [500, 202]
