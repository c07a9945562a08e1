"""The queue on Redis: a launcher only. What it loses is brought back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.conf import settings

from apps.runs import queue
from apps.runs.models import Run
from apps.runs.supervisor import sweeper
from apps.workflows.models import Workflow
from tests.runs.starts import fresh, start
from tests.runs.workers import status, until, worker
from tests.services import servers

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.services, pytest.mark.sandbox]


@pytest.fixture
def redis_url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    from django_q.conf import Conf

    with servers.redis() as url:
        monkeypatch.setattr(settings, "REDIS_URL", url)
        monkeypatch.setattr(Conf, "ORM", None)
        monkeypatch.setattr(Conf, "REDIS", url)
        queue._broker.cache_clear()
        yield url
    queue._broker.cache_clear()


def test_a_run_goes_through_redis_to_its_end_and_a_lost_message_is_sent_again(
    workflow: Workflow, redis_url: str
) -> None:
    lost = start(workflow)
    assert queue.depth() == 1
    queue._broker().purge_queue()
    queue._broker().delete_queue()
    with worker(REDIS_URL=redis_url) as one:
        second = start(workflow)
        until(lambda: status(second) == "succeeded", one)
        until(lambda: status(lost) == "succeeded", one)


def test_a_queue_that_is_down_after_the_commit_takes_nothing_from_the_run(
    workflow: Workflow, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from django_q.conf import Conf

    monkeypatch.setattr(Conf, "REDIS", f"redis://127.0.0.1:{servers.free_port()}/0")
    queue._broker.cache_clear()
    run = start(workflow)
    assert (fresh(run).status, fresh(run).enqueued_at) == ("queued", None)
    monkeypatch.setattr(Conf, "REDIS", redis_url)
    queue._broker.cache_clear()
    assert sweeper.sweep() == 1
    assert queue.depth() == 1
    assert Run.objects.get(pk=run.pk).enqueued_at is not None
