"""Who is let in: signatures over the raw bytes and bearer tokens."""

from __future__ import annotations

import json
import logging

import pytest

from apps.runs.models import Run
from apps.webhooks import actions
from apps.webhooks.errors import TriggerRefused
from apps.webhooks.kinds import bearer, github
from apps.webhooks.kinds.shape import Credentials
from apps.webhooks.models import Delivery, Trigger
from tests.webhooks.senders import SECRET, make_hook, only_delivery, payload, signature

pytestmark = [pytest.mark.django_db, pytest.mark.databases]

GOOD = signature(payload())


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        "",
        "sha1=" + GOOD[7:47],
        GOOD[:-1],
        GOOD + "0",
        "sha256=" + GOOD[7:].upper(),
        GOOD[7:],
        "sha256=" + "é" * 64,
        "sha256=\udcff",
        f"{GOOD},{GOOD}",
        signature(payload(), "another secret"),
    ],
    ids=["none", "empty", "sha1", "short", "long", "upper case", "bare", "not ascii", "no text", "two", "other secret"],
)
def test_it_refuses_a_signature_that_is_not_exactly_right(wrong):
    headers = {"X-Hub-Signature-256": wrong} if wrong is None or wrong.isascii() else {}
    sender = make_hook()
    if headers:
        answer = sender.post(signature=wrong)
        assert answer.status_code == 401
        assert only_delivery().verdict == "unverified"
    else:  # a test client can't send it; the server's decoding gives such text
        with pytest.raises(github.Unverified):
            github.verify({"x-hub-signature-256": wrong}, payload(), Credentials(secrets=[SECRET]))
    assert not Run.objects.exists()


def test_one_flipped_bit_is_a_401_and_no_run():
    body = bytearray(payload())
    body[len(body) // 2] ^= 1
    assert make_hook().post(bytes(body), signature=GOOD).status_code == 401
    assert not Run.objects.exists()


@pytest.mark.parametrize(
    "again",
    [
        json.dumps,
        lambda value: json.dumps(value, indent=3),
        lambda value: json.dumps(value) + "\r\n",
    ],
    ids=["compact", "pretty", "crlf"],
)
def test_the_signature_is_of_the_bytes_and_not_of_what_they_say(again):
    body = again(json.loads(payload())).encode()
    sender = make_hook()
    assert sender.post(body, signature=GOOD).status_code == 401
    assert sender.post(body).status_code == 202


def test_a_signature_of_one_hook_opens_no_other():
    first, second = make_hook(), make_hook()
    actions.rotate(second.trigger, by=second.trigger.workflow.owner, secret="another secret")
    actions.drop_old(second.trigger, by=second.trigger.workflow.owner)
    assert second.post(signature=signature(payload(), first.secret)).status_code == 401


def test_two_secrets_are_live_while_one_is_replaced():
    sender = make_hook()
    owner = sender.trigger.workflow.owner
    actions.rotate(sender.trigger, by=owner, secret="the next secret")
    assert sender.post().status_code == 202
    assert sender.post(signature=signature(payload(), "the next secret")).status_code == 202
    actions.drop_old(sender.trigger, by=owner)
    assert sender.post().status_code == 401
    assert sender.post(signature=signature(payload(), "the next secret")).status_code == 202


def test_a_third_secret_is_refused_and_ends_neither_of_the_two():
    sender = make_hook()
    owner = sender.trigger.workflow.owner
    actions.rotate(sender.trigger, by=owner, secret="the second secret")
    with pytest.raises(TriggerRefused, match="has 2 live secrets already"):
        actions.rotate(sender.trigger, by=owner, secret="the third secret")
    for secret, status in ((SECRET, 202), ("the second secret", 202), ("the third secret", 401)):
        body = payload()
        assert sender.post(body, signature=signature(body, secret)).status_code == status


def test_neither_answer_nor_row_nor_log_has_the_digest_that_was_expected(caplog):
    caplog.set_level(logging.DEBUG)
    answer = make_hook().post(signature="sha256=" + "0" * 64)
    seen = answer.content.decode() + str(answer.headers) + caplog.text + str(Delivery.objects.values().get())
    assert GOOD[7:] not in seen


def test_a_401_says_the_same_whatever_was_wrong():
    sender = make_hook()
    answers = [sender.post(signature=wrong).json() for wrong in (None, "sha256=00", GOOD[:-1] + "x")]
    assert len({str(answer | {"request_id": ""}) for answer in answers}) == 1


def test_secrets_are_encrypted_at_rest_and_tokens_hashed():
    hook, token = make_hook(), make_hook(kind="bearer")
    row = Trigger.objects.get(pk=hook.trigger.pk)
    assert SECRET.encode() not in bytes(row.credentials)
    assert token.token not in str(Trigger.objects.filter(pk=token.trigger.pk).values().get())


def test_a_bearer_token_opens_its_hook():
    assert make_hook(kind="bearer").post({"a": 1}).status_code == 202
    assert only_delivery().verification == "token 1 of 1"


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer wrong",
        "Basic {token}",
        "Bearer {token},Bearer {token}",
        "{token}",
        "Bearer x{token}",
    ],
)
def test_it_refuses_a_token_that_is_not_exactly_right(header):
    sender = make_hook(kind="bearer")
    given = header.format(token=sender.token) if header else header
    assert sender.post(headers={"Authorization": given}).status_code == 401
    assert not Run.objects.exists()


def test_a_token_in_the_address_is_never_looked_at():
    sender = make_hook(kind="bearer")
    answer = sender.post(headers={"Authorization": None}, query=f"?token={sender.token}&access_token={sender.token}")
    assert answer.status_code == 401


def test_a_token_of_another_team_opens_nothing():
    first, second = make_hook(kind="bearer"), make_hook(kind="bearer")
    assert second.post(headers={"Authorization": f"Bearer {first.token}"}).status_code == 401


def test_two_tokens_are_live_while_one_is_replaced():
    sender = make_hook(kind="bearer")
    made = actions.rotate(sender.trigger, by=sender.trigger.workflow.owner)
    assert made.secret != sender.token
    assert sender.post().status_code == 202
    assert sender.post(headers={"Authorization": f"Bearer {made.secret}"}).status_code == 202


def test_a_token_that_is_no_ascii_is_refused_and_no_fault():
    with pytest.raises(bearer.Unverified):
        bearer.verify({"authorization": "Bearer é\udcff"}, b"", Credentials(token_sha256=["0" * 64]))


def test_white_space_around_a_secret_is_taken_off_and_said():
    sender = make_hook()
    made = actions.rotate(sender.trigger, by=sender.trigger.workflow.owner, secret="pasted secret\n")
    assert made.note
    assert sender.post(signature=signature(payload(), "pasted secret")).status_code == 202
