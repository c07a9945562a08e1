"""What bodies a hook takes, and how a payload reaches the run."""

from __future__ import annotations

import gzip
import json
from urllib.parse import urlencode

import pytest
from django.test import override_settings

from apps.runs.models import Run
from apps.webhooks.models import Delivery
from apps.workflows import places
from tests.factories import document
from tests.webhooks.senders import BODIES, event_of, make_hook, only_delivery, payload

pytestmark = [pytest.mark.django_db, pytest.mark.databases]

FORM = "application/x-www-form-urlencoded"


def file_of(sender, answer):
    return json.loads(places.places_of(sender.trigger.workflow).delivery(answer.json()["run_id"]).read_bytes())


@pytest.mark.parametrize("name", [name for name in BODIES if "ping" not in name])
def test_a_form_encoded_body_has_the_same_payload(name):
    sender = make_hook()
    answer = sender.post(
        urlencode({"payload": payload(name).decode()}).encode(), event=event_of(name), content_type=FORM
    )
    assert answer.status_code == 202
    assert file_of(sender, answer)["payload"] == json.loads(payload(name))


@pytest.mark.parametrize(
    ("content_type", "encoding", "status"),
    [
        ("application/json", None, 202),
        ("application/json; charset=utf-8", None, 202),
        ('Application/JSON; Charset="UTF-8"', None, 202),
        ("text/plain", None, 415),
        ("multipart/form-data; boundary=x", None, 415),
        ("application/octet-stream", None, 415),
        ("application/json; charset=utf-16", None, 415),
        ("application/json", "gzip", 415),
        ("application/json", "identity", 202),
    ],
)
def test_it_takes_the_types_it_knows_and_no_others(content_type, encoding, status):
    headers = {"Content-Encoding": encoding} if encoding else {}
    answer = make_hook().post(content_type=content_type, headers=headers)
    assert answer.status_code == status
    assert Run.objects.count() == (status == 202)


@pytest.mark.parametrize(
    "body",
    [
        b" ",
        b"{",
        b"[1]",
        b'"text"',
        b"null",
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b"\xff\xfe{\0}\0",
        b'\xef\xbb\xbf{"a": 1}',
        b"[" * 100_000,
        b'{"a": ' + b"9" * 5000 + b"}",
        gzip.compress(b"{}"),
    ],
    ids=["empty", "cut", "list", "text", "null", "NaN", "Infinity", "utf-16", "mark", "deep", "huge number", "gzip"],
)
def test_a_body_that_is_no_json_object_is_a_400_that_says_why(body):
    answer = make_hook().post(body)
    assert answer.status_code == 400
    assert only_delivery().reason
    assert not Run.objects.exists()


@pytest.mark.parametrize("form", [b"payload=1&payload=2", b"other=1", b" ", b"payload=%FF", b"&" * 100])
def test_a_form_without_exactly_one_payload_is_a_400(form):
    assert make_hook().post(form, content_type=FORM).status_code == 400


@pytest.mark.parametrize("delivery", [None, "", "x" * 201, "a\tb"])
def test_a_delivery_without_a_usable_id_is_a_400(delivery):
    assert make_hook().post(delivery=delivery).status_code == 400


def test_what_the_sender_writes_in_an_action_is_kept_as_text():
    body = json.dumps({"action": "<script>\0\ud800", "sender": {"login": "\0"}}).encode()
    answer = make_hook().post(body)
    assert answer.status_code == 202
    assert Delivery.objects.get().event.isprintable()


@override_settings(PULSE_HOOK_BODY_MAX=1000)
def test_a_body_over_the_limit_is_a_413_before_anything_else():
    answer = make_hook().post(payload(), signature="wrong")
    assert answer.status_code == 413
    assert not Run.objects.exists()


def test_a_bearers_body_is_the_payload():
    sender = make_hook(kind="bearer")
    answer = sender.post({"owner": "me", "args": [1, 2]})
    written = file_of(sender, answer)
    assert written["payload"] == {"owner": "me", "args": [1, 2]}
    assert (written["entry_path"], written["event"], written["variables"]) == ("bearer", "", {})


def test_numbers_and_keys_arrive_as_they_were_sent():
    sender = make_hook(kind="bearer")
    answer = sender.post(body=b'{"big": 12345678901234567890.10, "exp": 1E40, "u": "\\ud83d\\ude00"}')
    path = places.places_of(sender.trigger.workflow).delivery(answer.json()["run_id"])
    assert "12345678901234567890.10" in path.read_text()


@pytest.mark.parametrize(
    "body",
    [b'{"a": 1e400}', b"[" * 300 + b"]" * 300, b'{"a": ' + b"9" * 5000 + b"}", b'{"a": NaN}'],
    ids=["too large", "too deep", "too many digits", "no number"],
)
def test_what_no_step_could_read_as_it_was_sent_is_a_400_and_no_run(body):
    answer = make_hook(kind="bearer").post(body=body)
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed")
    assert "set_int_max_str_digits" not in answer.json()["detail"]
    assert not Run.objects.exists()


def test_an_empty_body_is_an_empty_payload():
    sender = make_hook(kind="bearer")
    answer = sender.post(body=b"", content_type="")
    assert file_of(sender, answer)["payload"] == {}


def test_each_post_of_a_bearer_is_new_without_a_key():
    sender = make_hook(kind="bearer")
    assert [sender.post({}).status_code for _ in range(3)] == [202] * 3
    assert Run.objects.count() == 3


def test_a_bearers_idempotency_key_is_its_delivery_id():
    sender = make_hook(kind="bearer")
    assert sender.post({"a": 1}, key="k").status_code == 202
    assert sender.post({"a": 1}, key="k").json()["duplicate"] is True
    assert sender.post({"a": 2}, key="k").status_code == 409


GROUPS = {
    "variables": [{"name": "BASE_URL", "value": "a"}, {"name": "OTHER", "value": "b"}],
    "groups": [
        {"name": "one", "values": {}},
        {"name": "two", "values": {}},
        {"name": "off", "values": {}, "enabled": False},
    ],
}


def envelope_hook():
    return make_hook(
        kind="bearer", raw=document(**GROUPS), mode="envelope", group="one", allowed_variables=["BASE_URL"]
    )


def test_an_envelope_names_group_and_variables():
    sender = envelope_hook()
    answer = sender.post({"group": "two", "variables": {"BASE_URL": "c"}, "payload": {"x": 1}})
    written = file_of(sender, answer)
    assert (written["group"], written["variables"], written["payload"]) == ("two", {"BASE_URL": "c"}, {"x": 1})
    assert Run.objects.get().group == "two"


def test_the_payload_of_an_envelope_stays_the_text_that_was_sent():
    sender = envelope_hook()
    body = (
        b'{"variables": {}, "payload" :  {"x": 1.10, "y":12345678901234567890.123456789, "z": "}\\""} , "group":"one"}'
    )
    path = places.places_of(sender.trigger.workflow).delivery(sender.post(body=body).json()["run_id"])
    assert '"payload": {"x": 1.10, "y":12345678901234567890.123456789, "z": "}\\""}}' in path.read_text()


def test_without_a_group_in_the_envelope_the_triggers_own_counts():
    sender = envelope_hook()
    assert file_of(sender, sender.post({"payload": {}}))["group"] == "one"


@pytest.mark.parametrize(
    ("envelope", "code"),
    [
        ({"group": "three"}, "unknown_group"),
        ({"group": "off"}, "group_disabled"),
        ({"variables": {"OTHER": "x"}}, "unknown_variable"),
        ({"variables": {"NOWHERE": "x"}}, "unknown_variable"),
        ({"variables": {"SECRET_TOKEN": "x"}}, "unknown_variable"),
        ({"variables": {"BASE_URL": "x" * 16_385}}, "variable_too_large"),
        ({"variables": ["BASE_URL"]}, "malformed"),
        ({"variables": {"BASE_URL": "\ud800"}}, "inputs_rejected"),
        ({"group": 1}, "malformed"),
        ({"group": 0}, "malformed"),
        ({"variables": []}, "malformed"),
        ({"surprise": 1}, "malformed"),
        ([], "malformed"),
    ],
)
def test_an_envelope_that_asks_for_what_it_may_not_is_a_400_and_no_run(envelope, code):
    sender = envelope_hook()
    answer = sender.post(envelope)
    assert (answer.status_code, answer.json()["code"]) == (400, code)
    assert not Run.objects.exists()
    assert Delivery.objects.get().verdict == code


def test_a_variable_of_exactly_16_kib_is_taken():
    assert envelope_hook().post({"variables": {"BASE_URL": "x" * 16_384}}).status_code == 202


def test_a_value_of_one_delivery_is_for_its_run_only():
    sender = envelope_hook()
    sender.post({"variables": {"BASE_URL": "c"}})
    assert file_of(sender, sender.post({}))["variables"] == {}
