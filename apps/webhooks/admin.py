"""Triggers and deliveries for admins: to look at. Nothing here shows a secret, and every write is an action."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from apps.accounts.admin_base import ReadOnlyAdmin
from apps.webhooks.models import Delivery, Trigger


@admin.register(Trigger)
class TriggerAdmin(ReadOnlyAdmin):
    list_display = ["name", "kind", "workflow", "enabled", "turned_away", "created_at"]
    list_filter = ["kind", "enabled"]
    exclude = ["credentials", "token_sha256", "key"]


@admin.register(Delivery)
class DeliveryAdmin(ReadOnlyAdmin):
    list_display = ["received_at", "workflow", "trigger", "event", "verdict", "status", "run_id"]
    list_select_related = ["workflow", "trigger"]
    exclude = ["body", "headers"]
    ordering = ["-id"]
    show_full_result_count = False

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).defer("body", "headers")
