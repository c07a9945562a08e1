"""Every address of the product. An app's own are in its `urls.py`."""

from __future__ import annotations

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.templatetags.static import static
from django.urls import URLPattern, URLResolver, include, path

from config import health
from config.api import api

MODULES = (
    "apps.webhooks.hook_urls",
    "apps.tools.urls",
    "apps.runs.urls",
    "apps.runs.live.urls",
    "apps.webhooks.urls",
    "apps.dashboard.urls",
)


def favicon(_request: HttpRequest) -> HttpResponse:
    """Asked for by browsers on pages that name no icon, such as Django's admin."""
    return redirect(static("img/favicon.svg"))


urlpatterns: list[URLPattern | URLResolver] = [
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
    path("metrics", health.metrics, name="metrics"),
    path("favicon.ico", favicon, name="favicon"),
    path("api/v1/", api.urls),
    path("admin/", admin.site.urls),
    path("accounts/", include("allauth.urls")),
    *(path("", include(module)) for module in MODULES),
]
