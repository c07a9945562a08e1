"""What is said when the fault is ours: the place and a request id, no values."""

from __future__ import annotations

import secrets
import sys

import pytest
from django.test import Client, RequestFactory
from django.views.debug import ExceptionReporter

from apps.workflows import access
from tests.factories import make_team, make_token, make_workflow

CANARY = secrets.token_hex(8)


def report(request):
    secret_value = CANARY  # a local variable; the source line itself is shown
    try:
        raise RuntimeError("it broke")
    except RuntimeError:
        reporter = ExceptionReporter(request, *sys.exc_info())
    assert secret_value
    return reporter.get_traceback_html() + reporter.get_traceback_text()


def test_a_report_shows_no_local_variable_no_setting_that_is_secret_and_nothing_of_a_form(settings):
    settings.DEBUG = True
    request = RequestFactory().post(
        "/x", {"note": CANARY}, headers={"Authorization": f"Bearer {CANARY}", "Cookie": f"sessionid={CANARY}"}
    )
    text = report(request)
    assert "it broke" in text
    assert CANARY not in text
    assert settings.SECRET_KEY not in text


@pytest.mark.django_db
def test_the_api_answers_a_fault_of_ours_without_its_text(monkeypatch, caplog):
    cast = make_team()
    workflow = make_workflow(cast.team, cast.editor)

    def broken(*_arguments):
        raise RuntimeError("canary-in-an-exception")

    monkeypatch.setattr(access, "workflow_in", broken)
    answer = Client().get(
        f"/api/v1/workflows/{workflow.slug}",
        headers={"Authorization": f"Bearer {make_token(cast.team, cast.viewer, 'read')}"},
    )
    body = answer.json()
    assert (answer.status_code, body["code"]) == (500, "internal")
    assert "canary" not in answer.content.decode()
    assert body["request_id"]
    assert "canary-in-an-exception" in caplog.text  # the log of the machine has it, with its traceback
