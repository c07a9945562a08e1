"""The log reader's requests, below a run's page."""

from __future__ import annotations

from django.urls import path

from apps.runs.live import views

app_name = "logs"
_LOG = "runs/<uuid:run_id>/steps/<str:step_id>/attempts/<int:number>/log/"
urlpatterns = [
    path(f"{_LOG}lines", views.lines, name="lines"),
    path(f"{_LOG}search", views.search, name="search"),
    path(f"{_LOG}line", views.line, name="line"),
    path(f"{_LOG}download", views.download, name="download"),
]
