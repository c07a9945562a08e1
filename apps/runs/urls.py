from __future__ import annotations

from django.urls import path

from apps.runs import views

app_name = "runs"
urlpatterns = [
    path("runs/", views.run_list, name="list"),
    path("runs/<uuid:run_id>/", views.run_page, name="run"),
    path("runs/<uuid:run_id>/fragments/<slug:name>/", views.run_fragment, name="fragment"),
    path("runs/<uuid:run_id>/cancel/", views.cancel, name="cancel"),
    path("runs/<uuid:run_id>/rerun/", views.rerun, name="rerun"),
    path("runs/<uuid:run_id>/settle/", views.settle, name="settle"),
    path("runs/<uuid:run_id>/steps/<slug:step_id>/<int:number>/contract/", views.compare, name="compare"),
    path("runs/<uuid:run_id>/steps/<slug:step_id>/<int:number>/files/<path:path>", views.artifact, name="artifact"),
]
