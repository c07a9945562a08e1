from __future__ import annotations

from django.urls import path

from apps.tools import views

app_name = "tools"
urlpatterns = [
    path("sessions/", views.sessions, name="sessions"),
    path("sessions/<uuid:session_id>/", views.calls, name="calls"),
]
