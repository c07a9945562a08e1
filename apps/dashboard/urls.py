from __future__ import annotations

from django.urls import path

from apps.dashboard import views

app_name = "dashboard"
_ONE = "t/<slug:team>/workflows/<slug:slug>/"
urlpatterns = [
    path("", views.home, name="home"),
    path("workflows/", views.workflows, name="workflows"),
    path("t/<slug:team>/workflows/", views.team_workflows, name="team_workflows"),
    path(_ONE, views.workflow, name="workflow"),
    path(f"{_ONE}start/", views.start, name="start"),
    path(f"{_ONE}variables/set/", views.set_variable, name="set_variable"),
    path(f"{_ONE}groups/set/", views.set_group, name="set_group"),
    path(f"{_ONE}secrets/set/", views.set_secret, name="set_secret"),
    path(f"{_ONE}<slug:tab>/", views.workflow_tab, name="workflow_tab"),
]
