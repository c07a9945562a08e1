"""With a full disk whoever asks for something to be stored is told what was not done, and that it is no fault."""

from __future__ import annotations

import errno
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.test import Client

from apps import storing
from apps.runs.models import Run
from apps.workflows.models import Variable
from tests.factories import make_team, make_token, make_workflow

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.databases]
PASSWORD = "correct-horse-battery"
ROW = (
    "INSERT INTO django_session (session_key, session_data, expire_date) VALUES ('x', zeroblob(64000000), '2000-01-01')"
)
RAISE = "DO $$ BEGIN RAISE 'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$"


@contextmanager
def full_disk() -> Iterator[None]:
    """Each statement that writes meets what the database says of a full disk: the database itself says it."""
    lite = connection.vendor == "sqlite"

    def refuse(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.lstrip().upper().startswith(("INSERT", "UPDATE", "DELETE")):
            sql, params, many = (ROW if lite else RAISE), None, False
        return execute(sql, params, many, context)

    def room(pages: int) -> None:
        if lite:
            with connection.cursor() as cursor:
                cursor.execute("VACUUM")  # pages that earlier tests left free would be room
                cursor.execute(f"PRAGMA max_page_count = {pages}")

    room(1)
    try:
        with connection.execute_wrapper(refuse):
            yield
    finally:
        room(0xFFFFFFFE)


@pytest.fixture
def cast():
    return make_team()


def browser(user) -> Client:
    client = Client(raise_request_exception=False)
    client.force_login(user)
    return client


def test_an_api_call_is_a_503_that_says_nothing_was_done(cast):
    workflow = make_workflow(cast.team, cast.owner)
    headers = {"Authorization": f"Bearer {make_token(cast.team, cast.owner, 'read', 'run')}"}
    client = Client(raise_request_exception=False)
    address = f"/api/v1/workflows/{workflow.slug}/runs"
    assert client.post(address, b"{}", "application/json", headers=headers).status_code < 300
    with full_disk():
        answer = client.post(address, b"{}", "application/json", headers=headers)
        assert client.get("/api/v1/runs", headers=headers).status_code == 200
    assert (answer.status_code, answer["Retry-After"]) == (503, "5")
    told = json.loads(answer.content)
    assert told["code"] == "not_stored"
    assert "disk" in told["detail"]
    assert "Nothing was done." in told["detail"]
    assert Run.objects.count() == 1


def test_signing_in_and_a_form_are_503_pages(cast):
    workflow = make_workflow(cast.team, cast.owner)
    cast.owner.set_password(PASSWORD)
    cast.owner.save()
    signed_in, stranger = browser(cast.owner), Client(raise_request_exception=False)
    with full_disk():
        pages = [
            stranger.post("/accounts/login/", {"login": cast.owner.username, "password": PASSWORD}),
            signed_in.post(
                f"/t/{cast.team.slug}/workflows/{workflow.slug}/variables/set/", {"name": "V", "value": "x"}
            ),
        ]
    for page in pages:
        assert (page.status_code, page["Retry-After"]) == (503, "5")
        assert "Nothing can be stored: the disk of the" in page.text
    assert not Variable.objects.exists()
    assert stranger.get("/", follow=True).redirect_chain, "nobody was signed in"


def test_a_session_that_cannot_be_saved_does_not_say_that_nothing_was_done(cast, monkeypatch):
    client = browser(cast.owner)
    session = client.session
    session["touched"] = True
    session.save()
    monkeypatch.setattr("django.conf.settings.SESSION_SAVE_EVERY_REQUEST", True)
    with full_disk():
        page = client.get("/")
    assert page.status_code == 503
    assert "may have been done" in page.text
    assert "Nothing was done" not in page.text


def test_only_what_the_disk_does_is_called_so():
    assert storing.why_not(OSError(errno.ENOSPC, "full")) == "the disk of the server is full"
    assert storing.why_not(OSError(errno.ENOENT, "gone")) == ""
    assert storing.why_not(OperationalError("no such table")) == ""
    assert storing.why_not(ValueError("28")) == ""


def test_a_full_disk_is_found_behind_what_was_raised_for_it():
    raw = sqlite3.connect(":memory:")
    raw.execute("PRAGMA max_page_count = 1")
    with pytest.raises(sqlite3.OperationalError) as full:
        raw.execute("CREATE TABLE t AS SELECT zeroblob(100000)")
    raw.close()
    refused = RuntimeError("refused")
    refused.__cause__ = full.value
    assert storing.why_not(full.value) == storing.why_not(refused) == "the disk of the server is full"
