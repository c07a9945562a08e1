"""The address below a hook that its sender knows: included at the root. The hook itself is served by `door`."""

from __future__ import annotations

from django.urls import path

from apps.webhooks import hook

urlpatterns = [
    path("hooks/<str:key>/runs/<uuid:run_id>", hook.status, name="hook-run"),
]
