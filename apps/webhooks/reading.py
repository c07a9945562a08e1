"""What pages and the API show of triggers and deliveries. Reading never changes anything."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import OuterRef, Subquery, Sum

from apps.webhooks.judging import credentials_of
from apps.webhooks.models import Delivery, HookCount, Trigger
from apps.workflows import vault
from apps.workflows.models import Workflow
from engine.json_values import indented
from engine.logs.masking import Masker

VERDICTS = (
    *("accepted", "duplicate", "ignored", "pong", "unverified", "unsupported_type", "malformed", "bad_mapping"),
    *("unknown_variable", "variable_too_large", "unknown_group", "group_disabled", "group_required"),
    *("inputs_rejected", "environment_too_large", "value_refused", "delivery_conflict", "migration_required"),
    *("owner_not_active", "document_refused", "busy", "secret_unreadable", "fault"),
)
"""What can have become of a delivery."""


@dataclass(frozen=True)
class TriggerView:
    """A trigger as its page shows it; no secret, only how many are live."""

    trigger: Trigger
    url: str
    live_credentials: int
    last_delivery_at: datetime | None
    refused_last_day: int


def hook_url(trigger: Trigger) -> str:
    """The address to give to the sender: always of the configured base, whatever host was asked for."""
    return f"{settings.PULSE_BASE_URL}/hooks/{trigger.key}"


def newest_of(delivery: Delivery) -> Delivery:
    """The last time it was sent again; itself when it never was, or nothing was stored of that."""
    first = delivery.redelivery_of_id or delivery.pk
    return Delivery.objects.filter(redelivery_of=first).newest_first().first() or delivery


def triggers_of(workflow: Workflow, *, now: datetime) -> list[TriggerView]:
    """The workflow's triggers, in the order they were made."""
    last = Delivery.objects.filter(trigger=OuterRef("pk")).order_by("-received_at").values("received_at")[:1]
    rows = Trigger.objects.filter(workflow=workflow).annotate(last=Subquery(last))
    triggers = list(rows.order_by("created_at", "pk"))
    refused = _refused([str(trigger.pk) for trigger in triggers], since=now - timedelta(days=1))
    return [
        TriggerView(
            trigger=trigger,
            url=hook_url(trigger),
            live_credentials=len(trigger.token_sha256) + len(credentials_of(trigger).secrets),
            last_delivery_at=trigger.last,  # type: ignore[attr-defined]
            refused_last_day=refused.get(str(trigger.pk), 0),
        )
        for trigger in triggers
    ]


def delivery_json(delivery: Delivery) -> dict[str, Any]:
    trigger = delivery.trigger
    return {
        "id": delivery.pk,
        "delivery_id": delivery.claimed_id or str(delivery.pk),
        "workflow": delivery.workflow.slug,
        "trigger": trigger.name if trigger else None,
        "kind": trigger.kind if trigger else None,
        "event": delivery.event,
        "verdict": delivery.verdict,
        "status": delivery.status,
        "reason": delivery.reason,
        "verification": delivery.verification,
        "run_id": delivery.run_id,
        "copies": delivery.copies,
        "redelivery_of": delivery.redelivery_of_id,
        "body_bytes": delivery.body_bytes,
        "body_sha256": delivery.body_sha256,
        "received_at": delivery.received_at,
    }


def delivery_with_body(delivery: Delivery) -> dict[str, Any]:
    return {
        **delivery_json(delivery),
        "headers": delivery.headers,
        "body": body_shown(delivery),
        "body_is_whole": delivery.whole,
    }


def body_shown(delivery: Delivery) -> str:
    """The kept bytes as text, JSON indented when they are JSON, with every secret of the team masked."""
    text = bytes(delivery.body).decode("utf-8", "replace")
    with suppress(ValueError, RecursionError):  # what is no JSON is shown as it came
        text = indented(json.loads(text))
    return Masker(_secrets_of(delivery)).text(text)


def _secrets_of(delivery: Delivery) -> dict[str, str]:
    signing = credentials_of(delivery.trigger).secrets if delivery.trigger else ()
    return vault.secrets_of_team(delivery.team_id) | {
        f"trigger {place}": secret for place, secret in enumerate(signing)
    }


def _refused(subjects: Iterable[str], *, since: datetime) -> dict[str, int]:
    rows = HookCount.objects.filter(subject__in=list(subjects), hour__gte=since)
    return dict(rows.values_list("subject").annotate(Sum("refused")))
