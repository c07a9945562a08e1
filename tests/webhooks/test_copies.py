"""Deliveries that come at the same moment: through one process's writer, and through several writers at once."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection, connections, transaction

from apps.runs.models import Run, RunEvent
from apps.tools.models import ToolSession
from apps.webhooks import door
from apps.webhooks.models import Delivery
from apps.webhooks.writer import writer
from apps.workflows import places
from config.front import Front
from tests.webhooks.senders import make_hook, payload, scope_of, signature, talk

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.databases]


@pytest.fixture(autouse=True)
def _end_the_writer():
    yield
    writer.stop()


def github_headers(body, delivery):
    return {
        "Content-Type": "application/json",
        "X-GitHub-Event": "pull_request",
        "X-GitHub-Delivery": delivery,
        "X-Hub-Signature-256": signature(body),
    }


async def knock(scope, *pieces):
    """One request as the product takes it: through front, door and writer."""
    return await talk(Front(door.application), scope, *pieces)


def burst(sender, arrivals):
    async def all_at_once():
        calls = [knock(scope_of(sender, github_headers(body, delivery)), body) for body, delivery in arrivals]
        return await asyncio.gather(*calls)

    return asyncio.run(all_at_once())


def test_twenty_copies_at_the_door_make_one_run():
    sender = make_hook()
    answers = burst(sender, [(payload(), "d-1")] * 20)
    assert Counter(answer.status_code for answer in answers) == {202: 1, 200: 19}
    assert {answer.json()["run_id"] for answer in answers} == {str(Run.objects.get().pk)}
    delivery = Delivery.objects.get()
    assert (delivery.copies, delivery.external_id, delivery.remote) == (19, "d-1", "192.0.2.1")
    folder = places.places_of(sender.trigger.workflow).delivery("x").parent
    assert [path.stem for path in folder.iterdir()] == [str(delivery.run_id)]


def test_twenty_copies_in_as_many_threads_make_one_run():
    sender = make_hook()

    def post(_):
        try:
            return sender.post(delivery="d-1")
        finally:
            connections.close_all()

    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(post, range(20)))
    assert Counter(answer.status_code for answer in answers) == {202: 1, 200: 19}
    assert {answer.json()["run_id"] for answer in answers} == {str(Run.objects.get().pk)}
    folder = places.places_of(sender.trigger.workflow).delivery("x").parent
    assert len(list(folder.iterdir())) == 1


def test_a_burst_of_many_deliveries_makes_a_run_each_whole_with_session_and_first_event():
    sender = make_hook()
    answers = burst(sender, [(payload(), str(uuid.uuid4())) for _ in range(100)])
    assert {answer.status_code for answer in answers} == {202}
    runs = {uuid.UUID(answer.json()["run_id"]) for answer in answers}
    assert len(runs) == 100
    assert set(Run.objects.values_list("pk", flat=True)) == runs
    assert set(RunEvent.objects.filter(seq=1, kind="run.queued").values_list("run_id", flat=True)) == runs
    assert set(ToolSession.objects.filter(kind="run", state="live").values_list("run_id", flat=True)) == runs
    assert all(places.places_of(sender.trigger.workflow).delivery(str(run)).exists() for run in runs)


def test_one_bad_delivery_of_a_batch_harms_no_other():
    sender = make_hook()
    answers = burst(sender, [(payload(), "d-1"), (b"{", "d-2"), (payload(), "d-3"), (b"[]", "d-4")])
    assert [answer.status_code for answer in answers] == [202, 400, 202, 400]


def test_what_the_database_refuses_of_one_delivery_harms_no_other_of_its_batch():
    sender = make_hook()
    first_bad = "CREATE UNIQUE INDEX poison ON webhooks_delivery ((CASE WHEN external_id LIKE 'bad-%' THEN 1 END))"
    with connection.cursor() as cursor:
        cursor.execute(first_bad)  # of all that are bad it takes one
    try:
        answers = burst(sender, [(payload(), delivery) for delivery in ("d-1", "bad-1", "bad-2", "d-2")])
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP INDEX poison")
    assert [answer.status_code for answer in answers] == [202, 202, 500, 202]
    made = {answer.json()["run_id"] for answer in answers if answer.status_code == 202}
    assert {str(pk) for pk in Run.objects.values_list("pk", flat=True)} == made
    folder = places.places_of(sender.trigger.workflow).delivery("x").parent
    assert {path.stem for path in folder.iterdir()} == made


def test_the_door_puts_the_pieces_of_a_body_together():
    sender, body = make_hook(), payload()
    pieces = [body[start : start + 7000] for start in range(0, len(body), 7000)]
    answer = asyncio.run(knock(scope_of(sender, github_headers(body, "d-1")), *pieces))
    assert answer.status_code == 202
    assert answer["Cache-Control"] == "no-store"


def test_the_door_stops_reading_once_a_body_is_too_large(settings):
    settings.PULSE_HOOK_BODY_MAX = 100
    sender = make_hook()
    answer = asyncio.run(knock(scope_of(sender, github_headers(b"", "d-1")), b"x" * 60, b"x" * 60, b"x"))
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")


def test_the_door_refuses_a_declared_length_without_reading(settings):
    settings.PULSE_HOOK_BODY_MAX = 100
    headers = github_headers(b"", "d-1") | {"Content-Length": "101"}
    assert asyncio.run(knock(scope_of(make_hook(), headers), b"")).status_code == 413


def test_a_signature_sent_twice_is_refused_at_the_door():
    sender, body = make_hook(), payload()
    scope = scope_of(sender, github_headers(body, "d-1"))
    scope["headers"].append((b"x-hub-signature-256", signature(body).encode()))
    assert asyncio.run(knock(scope, body)).status_code == 401


def test_only_a_post_is_a_delivery():
    answer = asyncio.run(knock(scope_of(make_hook(), {}, method="GET"), b""))
    assert (answer.status_code, answer["Allow"]) == (405, "POST")


@pytest.mark.skipif(connection.vendor != "sqlite", reason="only SQLite has one writer")
def test_a_stranger_is_turned_away_while_the_database_is_held_by_another_writer():
    sender, body = make_hook(), payload()
    wrong = github_headers(body, "d-1") | {"X-Hub-Signature-256": "sha256=" + "0" * 64}
    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():  # it takes the write lock at once
            knocking = pool.submit(lambda: asyncio.run(knock(scope_of(sender, wrong), body)))
            assert knocking.result(timeout=15).status_code == 401
            assert not Delivery.objects.exists()
        writer.stop()
    assert Delivery.objects.get().verdict == "unverified"
