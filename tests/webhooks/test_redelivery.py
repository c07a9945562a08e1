"""Sending a delivery again, by a person or over the API; and reading deliveries there."""

from __future__ import annotations

import json

import pytest
from django.test import Client

from apps.runs.models import Run
from apps.webhooks import actions
from apps.webhooks.errors import NotRedeliverable
from apps.webhooks.models import Delivery
from apps.workflows import places
from tests.factories import document, make_team, make_token
from tests.webhooks.senders import make_hook, only_delivery, payload

pytestmark = [pytest.mark.django_db, pytest.mark.databases]


@pytest.fixture
def cast():
    return make_team()


@pytest.fixture
def sender(cast):
    return make_hook(cast)


def again(cast):
    return actions.redeliver(Delivery.objects.order_by("received_at").first(), by=cast.operator)


def api(token, method, path):
    return Client().generic(method, f"/api/v1{path}", headers={"Authorization": f"Bearer {token}"})


def test_it_sends_the_same_content_under_a_new_id_and_links_the_two(cast, sender):
    first = sender.post(delivery="d-1").json()
    second = again(cast)
    assert second.status == 202
    assert second.body["run_id"] != first["run_id"]
    assert second.body["delivery_id"] != "d-1"
    row = Delivery.objects.get(run_id=second.body["run_id"])
    assert row.redelivery_of == Delivery.objects.get(run_id=first["run_id"])
    assert row.external_id is None
    written = json.loads(places.places_of(sender.trigger.workflow).delivery(second.body["run_id"]).read_bytes())
    assert written["payload"] == json.loads(payload())
    assert Run.objects.get(pk=second.body["run_id"]).initiated_by.startswith(cast.operator.username)


def test_a_redelivery_that_is_sent_again_links_to_the_first(cast, sender):
    sender.post(delivery="d-1")
    second = Delivery.objects.get(run_id=again(cast).body["run_id"])
    third = actions.redeliver(second, by=cast.operator)
    assert Delivery.objects.get(run_id=third.body["run_id"]).redelivery_of == second.redelivery_of


def test_the_page_leads_to_the_run_it_made(cast, sender):
    first = sender.post().json()
    browser = Client()
    browser.force_login(cast.operator)
    answer = browser.post(f"/deliveries/{only_delivery().pk}/redeliver/")
    run = Run.objects.exclude(pk=first["run_id"]).get()
    assert answer.headers["Location"] == f"/runs/{run.pk}/"


def test_the_page_says_so_when_it_was_refused(cast):
    raw = document(settings={"repair": "off", "max_concurrent_runs": 1, "on_busy": "reject"})
    sender = make_hook(cast, raw=raw)
    sender.post()
    browser = Client()
    browser.force_login(cast.operator)
    page = browser.post(f"/deliveries/{only_delivery().pk}/redeliver/", follow=True)
    (said,) = page.context["messages"]
    assert said.level_tag == "error"
    assert "503" in said.message
    assert "takes no more" in said.message


def test_a_copy_that_github_sends_later_is_still_a_copy_of_the_first(cast, sender):
    first = sender.post(delivery="d-1").json()
    again(cast)
    assert sender.post(delivery="d-1").json()["run_id"] == first["run_id"]


def test_an_ignored_delivery_may_be_sent_again_once_the_trigger_listens(cast):
    sender = make_hook(cast, events=["push"])
    sender.post()
    document = {**sender.trigger.definition, "events": ["pull_request"]}
    actions.make_trigger(workflow=sender.trigger.workflow, document=document, by=cast.owner)
    assert again(cast).status == 202


def test_what_was_never_verified_is_never_sent_again(cast, sender):
    sender.post(b"{}", signature="sha256=" + "0" * 64)
    with pytest.raises(NotRedeliverable) as refused:
        again(cast)
    assert refused.value.code == "unverified"
    assert not Run.objects.exists()


def test_what_was_not_kept_whole_is_not_sent_again(cast, sender):
    sender.post(payload() + b"}")
    with pytest.raises(NotRedeliverable) as refused:
        again(cast)
    assert refused.value.code == "body_not_kept"


def test_nothing_is_sent_through_a_trigger_that_is_switched_off(cast, sender):
    sender.post()
    actions.set_enabled(sender.trigger, enabled=False, by=cast.owner)
    with pytest.raises(NotRedeliverable):
        again(cast)


@pytest.mark.parametrize("by", ["id", "delivery_id"])
def test_the_api_sends_again_by_either_id(cast, sender, by):
    sender.post(delivery="d-1")
    token = make_token(cast.team, cast.operator, "run", "read")
    listed = api(token, "GET", "/deliveries").json()["items"][0]
    answer = api(token, "POST", f"/deliveries/{listed[by]}/redeliver")
    assert answer.status_code == 202
    assert Run.objects.count() == 2


def test_sending_again_needs_the_right_to_run(cast, sender):
    sender.post()
    answer = api(make_token(cast.team, cast.viewer, "read"), "POST", f"/deliveries/{only_delivery().pk}/redeliver")
    assert answer.status_code == 403
    assert Run.objects.count() == 1


def test_another_teams_delivery_is_not_there(cast, sender):
    sender.post()
    elsewhere = cast.outsider.teams.get()
    token = make_token(elsewhere, cast.outsider, "run", "read")
    assert api(token, "POST", f"/deliveries/{only_delivery().pk}/redeliver").status_code == 404
    assert api(token, "GET", f"/deliveries/{only_delivery().pk}").status_code == 404
    assert api(token, "GET", "/deliveries").json()["items"] == []


def test_the_api_lists_deliveries_with_their_verdicts_page_by_page(cast, sender):
    sender.post(delivery="d-1")
    sender.post(b"{", delivery="d-2")
    token = make_token(cast.team, cast.viewer, "read")
    first = api(token, "GET", "/deliveries?limit=1").json()
    second = api(token, "GET", f"/deliveries?limit=1&cursor={first['next_cursor']}").json()
    assert [page["items"][0]["verdict"] for page in (first, second)] == ["malformed", "accepted"]
    assert second["next_cursor"] is None
    only = api(token, "GET", "/deliveries?verdict=accepted").json()["items"]
    assert [row["delivery_id"] for row in only] == ["d-1"]


def test_the_api_shows_one_delivery_with_its_bytes(cast, sender):
    sender.post(delivery="d-1")
    shown = api(make_token(cast.team, cast.viewer, "read"), "GET", f"/deliveries/{only_delivery().pk}").json()
    assert json.loads(shown["body"]) == json.loads(payload())
    assert shown["body_is_whole"] is True
    assert "x-hub-signature-256" not in shown["headers"]


def test_a_hooks_token_reads_the_runs_it_started_and_nothing_else(cast):
    first, second = make_hook(cast, kind="bearer"), make_hook(cast, kind="bearer")
    mine, theirs = first.post({}).json(), second.post({}).json()

    def status_of(answer, token):
        path = answer["status_url"].split("127.0.0.1:8000")[-1]
        return Client().get(path, headers={"Authorization": f"Bearer {token}"} if token else {})

    read = status_of(mine, first.token)
    assert (read.status_code, read.json()["status"], read.json()["run_id"]) == (200, "queued", mine["run_id"])
    assert status_of(theirs, first.token).status_code == 401
    assert status_of(mine, None).status_code == 401
    crossed = {"status_url": mine["status_url"].replace(mine["run_id"], theirs["run_id"])}
    assert status_of(crossed, first.token).status_code == 404
    assert api(first.token, "GET", "/deliveries").status_code == 401
