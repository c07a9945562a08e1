from __future__ import annotations

from django.urls import path

from apps.webhooks import views

app_name = "webhooks"
urlpatterns = [
    path("deliveries/", views.deliveries, name="deliveries"),
    path("deliveries/<uuid:delivery_id>/", views.delivery, name="delivery"),
    path("deliveries/<uuid:delivery_id>/card/", views.card, name="card"),
    path("deliveries/<uuid:delivery_id>/redeliver/", views.redeliver, name="redeliver"),
    path("t/<slug:team>/workflows/<slug:slug>/triggers/new/", views.make, name="make"),
    path("triggers/<uuid:trigger_id>/rotate/", views.rotate, name="rotate"),
    path("triggers/<uuid:trigger_id>/drop-old/", views.drop_old, name="drop_old"),
    path("triggers/<uuid:trigger_id>/enable/", views.enable, name="enable"),
    path("triggers/<uuid:trigger_id>/delete/", views.delete, name="delete"),
]
