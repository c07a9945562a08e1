"""What the deliveries page shows: a page of arrivals across the reader's teams."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from urllib.parse import urlencode

from django.db.models import Q
from django.http import QueryDict

from apps.accounts.access import team_ids
from apps.accounts.models import User
from apps.rows import newest
from apps.webhooks.models import Delivery, DeliveryQuerySet
from apps.workflows.models import Workflow

ROWS = 50
VERDICTS = (
    ("", "All"),
    ("accepted", "Accepted"),
    ("refused", "Refused"),
    ("duplicate", "With duplicates"),
    ("ignored", "Ignored"),
)
_GOOD = {"accepted": "succeeded", "ignored": "neutral", "pong": "neutral"}


@dataclass(frozen=True)
class Pill:
    text: str
    address: str
    current: bool


@dataclass(frozen=True)
class Wanted:
    """Which deliveries are shown; empty means any."""

    verdict: str = ""
    workflow: str = ""
    before: str = ""

    @classmethod
    def of(cls, query: QueryDict) -> Wanted:
        return cls(*(query.get(name, "").replace("\x00", "")[:120] for name in ("verdict", "workflow", "before")))

    def address(self, **other: str) -> str:
        said = {"verdict": self.verdict, "workflow": self.workflow, **other}
        return "?" + urlencode({name: value for name, value in said.items() if value})

    @property
    def narrowed(self) -> bool:
        return bool(self.verdict or self.workflow)

    @property
    def pills(self) -> list[Pill]:
        return [Pill(text, self.address(verdict=value), value == self.verdict) for value, text in VERDICTS]


@dataclass(frozen=True)
class Row:
    delivery: Delivery

    @property
    def state(self) -> str:
        """What its verdict is coloured as."""
        return _GOOD.get(self.delivery.verdict, "failed")


@dataclass(frozen=True)
class Rows:
    rows: list[Row]
    more: str
    workflows: list[Workflow]


def rows(user: User, wanted: Wanted) -> Rows:
    mine = [Delivery.objects.filter(team=team).with_names() for team in team_ids(user)]
    found = [_older(_having(arrivals, wanted), wanted).newest_first() for arrivals in mine]
    listed = newest(found, ROWS + 1, lambda delivery: (delivery.received_at, delivery.pk))
    more = str(listed[ROWS - 1].pk) if len(listed) > ROWS else ""
    workflows = Workflow.objects.for_user(user).by_title()
    return Rows([Row(delivery) for delivery in listed[:ROWS]], more, list(workflows))


def _having(found: DeliveryQuerySet, wanted: Wanted) -> DeliveryQuerySet:
    if wanted.verdict == "refused":
        return found.filter(status__gte=400).having(workflow=wanted.workflow)
    return found.having(workflow=wanted.workflow, verdict=wanted.verdict)


def _older(found: DeliveryQuerySet, wanted: Wanted) -> DeliveryQuerySet:
    try:
        last = Delivery.objects.values_list("received_at", "pk").filter(pk=uuid.UUID(wanted.before)).first()
    except ValueError:
        return found
    return found.filter(Q(received_at__lt=last[0]) | Q(received_at=last[0], pk__lt=last[1])) if last else found
