"""Workflows over the API."""

from __future__ import annotations

import tempfile
from datetime import datetime
from typing import Any

from django.http import FileResponse, HttpRequest
from ninja import Router, Schema, Status

from apps.accounts.access import Permission
from apps.accounts.api_base import ApiError, Page, Problem, paginate, require
from apps.workflows import access, definition, exporting
from apps.workflows.actions import import_workflow
from apps.workflows.bundle import Report
from apps.workflows.models import Workflow
from engine import document

router = Router()


class WorkflowRow(Schema):
    id: str
    slug: str
    title: str
    owner: str
    revision: int
    contract_version: str
    code_layout_version: int
    current: bool
    updated_at: datetime


class GroupRow(Schema):
    name: str
    enabled: bool
    values: dict[str, Any]


class WorkflowDetail(WorkflowRow):
    objective: str
    variables: dict[str, Any]
    groups: list[GroupRow]
    secrets: list[str]
    settings: dict[str, Any]
    plan: dict[str, Any]


class Imported(Schema):
    slug: str
    revision: int
    created: bool
    plan_changed: bool
    code_changed: bool
    code_digest: str
    files: int
    dropped: list[str]
    kept: list[str]
    warnings: list[str]


@router.get("/schemas/workflow.json", auth=None, response=dict[str, Any], summary="The document's JSON Schema")
def workflow_schema(request: HttpRequest) -> dict[str, Any]:
    return document.json_schema()


@router.get("/workflows", response={200: Page[WorkflowRow], 400: Problem, 401: Problem, 403: Problem})
def list_workflows(request: HttpRequest, cursor: str = "", limit: int = 50) -> dict[str, Any]:
    caller = require(request, Permission.READ)
    rows, following = paginate(Workflow.objects.of_team(caller.team), cursor=cursor, limit=limit)
    return {"items": [_row(row) for row in rows], "next_cursor": following}


@router.post(
    "/workflows/import",
    response={200: Imported, 201: Imported, frozenset({400, 403, 409, 413, 422, 503}): Problem},
    summary="Import a zip",
    openapi_extra={"requestBody": {"content": {"application/zip": {"schema": {"type": "string", "format": "binary"}}}}},
)
def import_zip(request: HttpRequest) -> Status[Imported]:
    """The zip as the body (`application/zip`), or as the part `file` of a form."""
    caller = require(request, Permission.EDIT)
    report = Report()
    workflow = import_workflow(caller.team, caller.user, _sent_zip(request), report=report)
    imported = Imported(
        slug=workflow.slug,
        revision=report.revision,
        created=report.created,
        plan_changed=report.plan_changed,
        code_changed=report.code_changed,
        code_digest=report.code_after,
        files=report.files,
        dropped=report.dropped,
        kept=report.kept,
        warnings=report.warnings,
    )
    return Status(201 if report.created else 200, imported)


@router.get("/workflows/{slug}", response={200: WorkflowDetail, 401: Problem, 403: Problem, 404: Problem})
def get_workflow(request: HttpRequest, slug: str) -> dict[str, Any]:
    caller = require(request, Permission.READ)
    read = definition.load(access.workflow_in(caller.team, slug))
    return {
        **_row(read.workflow),
        "objective": read.workflow.objective,
        "variables": dict(read.variables),
        "groups": [
            {"name": group.name, "enabled": group.enabled, "values": dict(group.values)}
            for group in read.groups.values()
        ],
        "secrets": sorted(read.secret_names),
        "settings": read.settings.model_dump(mode="json"),
        "plan": read.plan.model_dump(mode="json", exclude_unset=True),
    }


@router.get("/workflows/{slug}/export", response={403: Problem, 404: Problem}, summary="Export as a zip")
def export_zip(request: HttpRequest, slug: str, assets: bool = False) -> FileResponse:
    caller = require(request, Permission.READ)
    workflow = access.workflow_in(caller.team, slug)
    spool = tempfile.SpooledTemporaryFile(max_size=4 * 1024 * 1024)  # noqa: SIM115 - closed by the response
    exporting.export_workflow(workflow, spool, by=caller.user, with_assets=assets)
    spool.seek(0)
    return FileResponse(spool, as_attachment=True, filename=f"{workflow.slug}.zip", content_type="application/zip")


def _row(workflow: Workflow) -> dict[str, Any]:
    return {
        "id": str(workflow.pk),
        "slug": workflow.slug,
        "title": workflow.title,
        "owner": workflow.owner.username,
        "revision": workflow.revision,
        "contract_version": workflow.contract_version,
        "code_layout_version": workflow.code_layout_version,
        "current": definition.is_current(workflow),
        "updated_at": workflow.updated_at,
    }


def _sent_zip(request: HttpRequest) -> bytes:
    kind = (request.content_type or "").lower()
    if kind == "multipart/form-data":
        sent = request.FILES.get("file")
        if sent is None:
            raise ApiError("The form has no part `file`. Nothing was imported.", code="file_missing")
        data: bytes = sent.read()
        return data
    if kind in {"application/zip", "application/x-zip-compressed", "application/octet-stream"}:
        return request.body
    raise ApiError(
        f"{kind or 'No content type'} is not taken: send application/zip. Nothing was imported.",
        status=415,
        code="unsupported_media_type",
    )
