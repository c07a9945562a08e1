"""The addresses that senders know: included at the root, outside sessions and CSRF."""

from __future__ import annotations

from django.urls import path

from apps.webhooks import hook

urlpatterns = [
    path("hooks/<str:key>", hook.receive, name="hook"),
    path("hooks/<str:key>/runs/<uuid:run_id>", hook.status, name="hook-run"),
]
