"""Workflows over the API."""

from __future__ import annotations

import io
import zipfile

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from apps.workflows.models import Workflow
from tests.factories import document, make_team, make_token, make_workflow, step
from tests.workflows import archives

pytestmark = pytest.mark.django_db
IMPORT = "/api/v1/workflows/import"


@pytest.fixture
def cast():
    return make_team()


def headers(cast, *scopes, user=None):
    return {"Authorization": f"Bearer {make_token(cast.team, user or cast.editor, *scopes)}"}


def send(data, head, content_type="application/zip"):
    return Client().post(IMPORT, data=data, content_type=content_type, headers=head)


def test_a_zip_is_imported_and_then_updated(cast):
    head = headers(cast, "build")
    first = send(archives.zipped(raw=document("one")), head)
    second = send(archives.zipped(raw=document("one", title="New")), head)
    assert first.status_code == 201, first.json()
    assert second.status_code == 200
    digest = first.json()["code_digest"]
    assert first.json() == {
        "slug": "one", "revision": 1, "created": True, "files": 2, "dropped": [], "kept": [], "warnings": [],
        "plan_changed": True, "code_changed": False, "code_digest": digest,
    }  # fmt: skip
    assert (second.json()["plan_changed"], second.json()["code_changed"]) == (False, False)
    third = send(archives.zipped({"code/hello/main.py": "print(3)\n"}, raw=document("one", title="New")), head)
    assert (third.json()["plan_changed"], third.json()["code_changed"]) == (False, True)
    assert third.json()["code_digest"] != digest
    assert Workflow.objects.get(team=cast.team).title == "New"


def test_a_zip_in_a_form_is_taken_too(cast):
    part = SimpleUploadedFile("w.zip", archives.zipped(raw=document("formed")), "application/zip")
    answer = Client().post(IMPORT, {"file": part}, headers=headers(cast, "build"))
    assert (answer.status_code, answer.json().get("slug")) == (201, "formed")


def test_a_zip_larger_than_a_page_may_send_is_taken(cast):
    import os

    data = archives.zipped({"code/hello/main.py": "", "assets/big.bin": os.urandom(4 * 1024 * 1024)})
    assert send(data, headers(cast, "build")).status_code == 201


def test_it_refuses_without_the_scope_or_the_role(cast):
    assert send(archives.zipped(), headers(cast, "read")).status_code == 403
    assert send(archives.zipped(), {}).status_code == 401
    assert not Workflow.objects.exists()


def test_a_refusal_names_each_place(cast):
    answer = send(archives.zipped(raw=document(steps=[step(colour="red", shade=1)])), headers(cast, "build"))
    body = answer.json()
    assert (answer.status_code, body["code"]) == (422, "document_refused")
    assert {field["path"] for field in body["fields"]} == {"$.plan.steps[0].colour", "$.plan.steps[0].shade"}


def test_other_content_types_are_refused(cast):
    answer = send(archives.zipped(), headers(cast, "build"), "text/plain")
    assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media_type")


def test_a_workflow_is_shown_whole_and_without_values_of_secrets(cast):
    from apps.workflows import actions

    raw = document(
        "shown",
        steps=[step(secrets=["TOKEN"])],
        secrets=["TOKEN"],
        variables=[{"name": "A", "value": 1}],
        groups=[{"name": "default", "values": {"A": 2}}],
    )
    make_workflow(cast.team, cast.editor, raw)
    actions.set_secret(cast.team, name="TOKEN", value="canary-4712-value", by=cast.editor)
    answer = Client().get("/api/v1/workflows/shown", headers=headers(cast, "read", user=cast.viewer))
    body = answer.json()
    assert answer.status_code == 200
    assert (body["variables"], body["secrets"], body["current"]) == ({"A": 1}, ["TOKEN"], True)
    assert body["groups"] == [{"name": "default", "enabled": True, "values": {"A": 2}}]
    assert body["plan"]["steps"][0]["id"] == "hello"
    assert "canary-4712-value" not in answer.content.decode()


def test_an_export_is_a_zip_to_be_saved(cast):
    make_workflow(cast.team, cast.editor, document("taken"))
    answer = Client().get("/api/v1/workflows/taken/export", headers=headers(cast, "read"))
    data = b"".join(answer.streaming_content)
    assert answer["Content-Disposition"] == 'attachment; filename="taken.zip"'
    assert "code/hello/main.py" in zipfile.ZipFile(io.BytesIO(data)).namelist()


def test_an_unknown_workflow_is_a_404(cast):
    answer = Client().get("/api/v1/workflows/none", headers=headers(cast, "read"))
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


def test_the_schema_of_the_document_is_public():
    answer = Client().get("/api/v1/schemas/workflow.json")
    assert answer.status_code == 200
    assert "plan" in answer.json()["properties"]
