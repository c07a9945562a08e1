"""What is kept of deliveries that made no run, and what a stranger learns: nothing."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from apps.runs.models import Run
from apps.webhooks import actions, reading, refusals
from apps.webhooks.models import Delivery, HookCount, Trigger
from apps.workflows import actions as workflows
from apps.workflows import places
from tests.webhooks.senders import knock, make_hook, only_delivery, payload, scope_of

pytestmark = [pytest.mark.django_db, pytest.mark.databases]

WRONG = "sha256=" + "0" * 64


def test_a_refused_delivery_keeps_digest_headers_and_4_kib():
    body = payload()
    make_hook().post(body, signature=WRONG, delivery="d-1")
    row = only_delivery()
    assert (row.status, row.verdict, row.run_id, row.external_id) == (401, "unverified", None, None)
    assert bytes(row.body) == body[:4096]
    assert row.body_bytes == len(body)
    assert not row.whole
    assert row.headers["x-github-delivery"] == "d-1"
    assert "does not fit" in row.reason


def test_headers_that_may_hold_a_credential_are_not_kept():
    sender = make_hook(kind="bearer")
    sender.post({}, headers={"X-Api-Key": "k-1", "Cookie": "c-1", "Authorization": "Bearer b-1"})
    kept = str(only_delivery().headers)
    assert not any(secret in kept for secret in ("k-1", "c-1", "b-1"))


def test_refused_deliveries_are_kept_up_to_a_number_an_hour_and_all_are_counted(monkeypatch):
    monkeypatch.setattr(refusals, "KEPT_AN_HOUR", 3)
    sender = make_hook()
    for _ in range(5):
        assert sender.post(signature=WRONG).status_code == 401
    assert Delivery.objects.count() == 3
    assert HookCount.objects.get(subject=str(sender.trigger.pk)).refused == 5
    assert sender.post().status_code == 202, "a full share of refusals stops no delivery"


def test_ignored_events_share_the_same_bound(monkeypatch):
    monkeypatch.setattr(refusals, "KEPT_AN_HOUR", 2)
    sender = make_hook(events=["push"])
    assert {sender.post().json()["status"] for _ in range(4)} == {"ignored"}
    assert Delivery.objects.count() == 2


def test_what_strangers_sent_gives_way_to_newer_ones_and_nothing_else_does(monkeypatch):
    monkeypatch.setattr(refusals, "KEPT_OF_STRANGERS", 2)
    sender, other = make_hook(), make_hook()
    assert sender.post().status_code == 202
    assert sender.post(b"{").status_code == 400
    other.post(signature=WRONG, delivery="other")
    for number in range(4):
        sender.post(signature=WRONG, delivery=f"d-{number}")
    HookCount.objects.all().delete()  # the hour is over
    sender.post(signature=WRONG, delivery="d-new")
    strangers = Delivery.objects.filter(verdict="unverified").order_by("received_at")
    assert [row.headers["x-github-delivery"] for row in strangers] == ["other", "d-2", "d-3", "d-new"]
    assert Delivery.objects.filter(trigger=sender.trigger).exclude(verdict="unverified").count() == 2


def test_hooks_that_are_unknown_switched_off_or_deleted_answer_alike():
    off, gone, unknown = make_hook(), make_hook(), make_hook()
    actions.set_enabled(off.trigger, enabled=False, by=off.trigger.workflow.owner)
    actions.delete_trigger(gone.trigger, by=gone.trigger.workflow.owner)
    unknown.trigger.key = "x" * 32
    answers = [sender.post(signature=signature) for sender in (off, gone, unknown) for signature in (WRONG, None)]
    assert {answer.status_code for answer in answers} == {404}
    assert len({str(answer.json() | {"request_id": ""}) for answer in answers}) == 1
    assert len({str(sorted(answer.headers)) for answer in answers}) == 1
    assert not Delivery.objects.exists()
    assert HookCount.objects.get(subject="").refused == 6
    assert Trigger.objects.get(pk=off.trigger.pk).turned_away == 2


def test_hooks_that_are_unknown_or_switched_off_cost_the_same_statements():
    off, unknown = make_hook(), make_hook()
    actions.set_enabled(off.trigger, enabled=False, by=off.trigger.workflow.owner)
    unknown.trigger.key = "x" * 32
    off.post()  # the hour's row is there
    with CaptureQueriesContext(connection) as first:
        off.post()
    with CaptureQueriesContext(connection) as second:
        unknown.post()
    assert [query["sql"].split()[0] for query in first] == [query["sql"].split()[0] for query in second]


@pytest.mark.django_db(transaction=True)
def test_when_nothing_can_be_stored_the_answer_is_503_and_nothing_is_left():
    if connection.vendor != "sqlite":
        pytest.skip("PostgreSQL offers no bound on its size to a test")
    sender = make_hook()
    with connection.cursor() as cursor:
        cursor.execute("VACUUM")  # no room left over from other tests
        pages = cursor.execute("PRAGMA page_count").fetchone()[0]
        cursor.execute(f"PRAGMA max_page_count = {pages}")  # a disk that is full
        try:
            answers = [sender.post() for _ in range(5)]
        finally:
            cursor.execute("PRAGMA max_page_count = 4294967294")
    full = answers[-1]
    assert (full.status_code, full.json()["code"]) == (503, "not_stored")
    assert full.headers["Retry-After"]
    accepted = [answer.json()["run_id"] for answer in answers if answer.status_code == 202]
    assert Run.objects.count() == len(accepted)
    folder = places.places_of(sender.trigger.workflow).delivery("x").parent
    assert {path.stem for path in folder.iterdir()} == set(accepted)
    assert sender.post().status_code == 202, "it goes on when there is room again"


def test_a_fault_of_ours_is_said_to_be_ours(caplog):
    sender = make_hook()
    Trigger.objects.update(definition={"mappings": {"group": {"source": 5}}})
    answer = sender.post()
    assert (answer.status_code, answer.json()["code"]) == (500, "fault")
    assert "AttributeError" in caplog.text
    assert not Run.objects.exists()


def test_a_secret_that_can_not_be_decrypted_is_a_503_and_is_never_taken_for_none():
    sender = make_hook()
    Trigger.objects.update(credentials_key_id="k-lost")
    answer = sender.post()
    assert (answer.status_code, answer.json()["code"]) == (503, "secret_unreadable")
    assert only_delivery().verdict == "secret_unreadable"
    assert not Run.objects.exists()


def test_answers_repeat_nothing_of_what_was_sent():
    sender = make_hook(kind="bearer")
    answer = sender.post(body=b'{"token": "sesame-sesame"', headers={"Idempotency-Key": "sesame-key"})
    assert answer.status_code == 400
    assert "sesame" not in answer.content.decode()


def test_the_page_shows_bytes_with_secrets_masked():
    sender = make_hook(kind="bearer")
    workflow = sender.trigger.workflow
    workflows.set_secret(workflow.team, name="TOKEN", value="open-sesame-open", by=workflow.owner)
    sender.post({"said": "open-sesame-open"})
    shown = reading.body_shown(Delivery.objects.get())
    assert "open-sesame" not in shown
    assert '"said"' in shown


def test_half_a_surrogate_pair_does_not_break_the_page_of_its_delivery():
    sender = make_hook(kind="bearer")
    assert sender.post(body=b'{"said": "\\ud800"}').status_code == 202
    viewer = Client()
    viewer.force_login(sender.trigger.workflow.owner)
    page = viewer.get(f"/deliveries/{Delivery.objects.get().pk}/")
    assert page.status_code == 200
    assert r"\ud800" in page.text


@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_another_method_than_post_is_a_405_in_the_shape_of_every_refusal(method):
    check_refused_method(knock(scope_of(make_hook(), {}, method), b""), "POST")


def test_another_method_than_get_at_the_status_is_a_405_in_the_shape_of_every_refusal():
    path = f"/hooks/{make_hook().trigger.key}/runs/0192f000-0000-7000-8000-000000000000"
    check_refused_method(Client().post(path), "GET, HEAD")


def check_refused_method(answer, allowed):
    told = answer.json()
    assert (answer.status_code, told["code"], told["title"]) == (405, "method_not_allowed", "Method not allowed")
    assert told["request_id"] == answer["X-Request-Id"]
    assert answer["Allow"] == allowed


@pytest.mark.parametrize("key", ["x" * 65, "a.b", "a%b", "\0", "é"])
def test_what_can_not_be_a_key_is_a_hook_that_is_not_there(key):
    sender = make_hook()
    answers = [knock({**scope_of(sender, {}), "path": f"/hooks/{one}"}, b"{}") for one in (key, "unknown")]
    assert [answer.status_code for answer in answers] == [404, 404]
    assert len({str(answer.json() | {"request_id": ""}) for answer in answers}) == 1
    assert HookCount.objects.get(subject="").refused == 2
