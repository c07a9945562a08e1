"""Workflows for admins, to look at; of a secret there is its name, never its value."""

from __future__ import annotations

from django.contrib import admin

from apps.accounts.admin_base import ReadOnlyAdmin
from apps.workflows.models import PlanRevision, Secret, Workflow


@admin.register(Workflow)
class WorkflowAdmin(ReadOnlyAdmin):
    list_display = ["slug", "team", "title", "owner", "revision", "contract_version", "updated_at"]
    list_filter = ["team"]
    search_fields = ["slug", "title"]


@admin.register(PlanRevision)
class PlanRevisionAdmin(ReadOnlyAdmin):
    list_display = ["workflow", "number", "saved_by", "saved_at", "digest"]
    list_filter = ["workflow"]


@admin.register(Secret)
class SecretAdmin(ReadOnlyAdmin):
    list_display = ["name", "team", "key_id", "note", "updated_by", "updated_at"]
    list_filter = ["team"]
    exclude = ["ciphertext"]
