"""What is kept of arrivals that made no run: enough to see why, bounded so that nobody can fill the disk."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from django.db import IntegrityError, transaction
from django.db.models import F

from apps.webhooks.arrivals import Arrival
from apps.webhooks.errors import Unverified
from apps.webhooks.models import Delivery, HookCount, Trigger

KEPT_BYTES: Final = 4096
KEPT_AN_HOUR: Final = 100
KEPT_OF_STRANGERS: Final = 1000
LONGEST_HEADER: Final = 400
# An allow-list: a sender's own header may hold a credential under any name.
KEPT_HEADERS: Final = (
    "content-type",
    "content-length",
    "content-encoding",
    "user-agent",
    "x-github-event",
    "x-github-delivery",
    "x-github-hook-id",
    "x-github-hook-installation-target-id",
    "x-github-hook-installation-target-type",
    "idempotency-key",
)


def kept_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers worth keeping, as far as a database can hold them."""
    return {
        name: headers[name].encode("ascii", "backslashreplace").decode()[:LONGEST_HEADER].replace("\0", "\\0")
        for name in KEPT_HEADERS
        if name in headers
    }


def keeps(trigger: Trigger, at: datetime) -> bool:
    """Count an arrival that makes no run; whether it is still within this hour's share of what is kept.

    With the first of an hour the oldest that were never verified go: a stranger can send them for years.
    """
    counted = count(str(trigger.pk), at)
    if counted == 1:
        strangers = Delivery.objects.filter(
            team=trigger.workflow.team_id, trigger=trigger, verdict=Unverified.code
        ).newest_first()
        Delivery.objects.filter(pk__in=strangers.values("pk")[KEPT_OF_STRANGERS:]).delete()
    return counted <= KEPT_AN_HOUR


def count(subject: str, at: datetime) -> int:
    """Count one arrival without a run; how many there were in this hour, this one included."""
    hour = at.replace(minute=0, second=0, microsecond=0)
    rows = HookCount.objects.filter(subject=subject, hour=hour)
    if not rows.update(refused=F("refused") + 1):
        try:
            with transaction.atomic():
                HookCount.objects.create(subject=subject, hour=hour, refused=1)
        except IntegrityError:
            rows.update(refused=F("refused") + 1)
    return rows.values_list("refused", flat=True).get()


def turn_away(arrival: Arrival) -> None:
    """Count an arrival at a hook that does not exist or is switched off: the same work for either."""
    Trigger.objects.filter(key=arrival.key, enabled=False).update(turned_away=F("turned_away") + 1)
    count("", arrival.received_at)
