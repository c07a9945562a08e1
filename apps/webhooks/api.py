"""Deliveries over the API."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Router, Schema

from apps.accounts.access import Permission
from apps.accounts.api_base import Page, one_of, paginate, require
from apps.webhooks import access, actions, reading
from apps.webhooks.hook import respond
from apps.webhooks.models import Delivery

router = Router()


class DeliveryOut(Schema):
    """A delivery: how it was verified, what became of it, and of what is kept the digest."""

    id: uuid.UUID
    delivery_id: str
    workflow: str
    trigger: str | None
    kind: str | None
    event: str
    verdict: str
    status: int
    reason: str
    verification: str
    run_id: uuid.UUID | None
    copies: int
    redelivery_of: uuid.UUID | None
    body_bytes: int
    body_sha256: str
    received_at: datetime


class DeliveryWithBody(DeliveryOut):
    headers: dict[str, str]
    body: str
    body_is_whole: bool


@router.get("/deliveries", response=Page[DeliveryOut], summary="Deliveries of the team, newest first")
def list_deliveries(
    request: HttpRequest, workflow: str = "", verdict: str = "", cursor: str | None = None, limit: int = 50
) -> dict[str, Any]:
    caller = require(request, Permission.READ)
    if verdict:
        one_of("verdict", verdict, reading.VERDICTS)
    rows = Delivery.objects.filter(team=caller.team).with_names().having(workflow=workflow, verdict=verdict)
    found, following = paginate(rows, cursor=cursor, limit=limit)
    return {"items": [reading.delivery_json(delivery) for delivery in found], "next_cursor": following}


@router.get("/deliveries/{delivery_id}", response=DeliveryWithBody, summary="One delivery with its bytes, masked")
def get_delivery(request: HttpRequest, delivery_id: str) -> dict[str, Any]:
    caller = require(request, Permission.READ)
    return reading.delivery_with_body(access.delivery_in(caller.team, delivery_id))


@router.post("/deliveries/{delivery_id}/redeliver", summary="Send a delivery again: same content, new id, linked")
def redeliver(request: HttpRequest, delivery_id: str) -> HttpResponse:
    caller = require(request, Permission.RUN)
    return respond(request, actions.redeliver(access.delivery_in(caller.team, delivery_id), by=caller.user))
