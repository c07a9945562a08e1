"""The ways in, and every arrival through them (BEHAVIOUR 8)."""

from __future__ import annotations

from collections.abc import Iterable

from django.contrib.auth.models import AnonymousUser
from django.db import models

from apps.accounts.access import teams_of
from apps.accounts.models import Team, User
from apps.tools import driver
from apps.workflows.models import Workflow
from engine.ids import uuid7


class TriggerQuerySet(models.QuerySet["Trigger"]):
    def for_user(self, user: User | AnonymousUser) -> TriggerQuerySet:
        return self.filter(workflow__team__in=teams_of(user))

    def listening(self, keys: Iterable[str]) -> dict[str, Trigger]:
        """The enabled triggers behind these keys, with workflow, team and owner."""
        rows = self.filter(key__in=set(keys), enabled=True).select_related("workflow__team", "workflow__owner")
        return {trigger.key: trigger for trigger in rows}


class Trigger(models.Model):
    """A way in, with its own authentication. `key` is the address, never the proof."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    workflow = models.ForeignKey(Workflow, on_delete=models.CASCADE, related_name="triggers")
    kind = models.CharField(max_length=10)
    name = models.CharField(max_length=120)
    key = models.CharField(max_length=48, unique=True)
    group = models.CharField(max_length=64, blank=True)
    enabled = models.BooleanField(default=True)
    definition = models.JSONField(help_text="The trigger as the document says it.")
    credentials = models.BinaryField(null=True, help_text="Encrypted: up to two live signing secrets.")
    credentials_key_id = models.CharField(max_length=16, blank=True)
    token_sha256 = models.JSONField(default=list, help_text="Of up to two live bearer tokens.")
    turned_away = models.PositiveIntegerField(default=0, help_text="Arrivals while it was switched off.")
    created_at = models.DateTimeField(auto_now_add=True)

    objects = TriggerQuerySet.as_manager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["workflow", "name"], name="one_trigger_a_name")]

    def __str__(self) -> str:
        return self.name


class DeliveryQuerySet(models.QuerySet["Delivery"]):
    def for_user(self, user: User | AnonymousUser) -> DeliveryQuerySet:
        """Deliveries of the teams that the user is an active member of."""
        return self.filter(team__in=teams_of(user))

    def taken(self, ids: Iterable[tuple[Trigger | None, str | None]]) -> DeliveryQuerySet:
        """Those that made a run under one of these ids, and perhaps others of the same triggers; without the bytes.

        The driver is asked first whether there is any: almost always there is none.
        """
        pairs = [(trigger.pk, external_id) for trigger, external_id in ids if trigger and external_id]
        triggers, external_ids = list({pk for pk, _ in pairs}), list({external_id for _, external_id in pairs})
        if not pairs or not driver.one(_any_taken(len(triggers), len(external_ids)), [*triggers, *external_ids]):
            return self.none()
        return self.filter(trigger__in=triggers, external_id__in=external_ids).defer("body")

    def with_names(self) -> DeliveryQuerySet:
        """Trigger and workflow joined, the bytes left where they are."""
        return self.select_related("trigger", "workflow").defer("body")

    def having(self, *, workflow: str = "", verdict: str = "") -> DeliveryQuerySet:
        """Only those of a workflow's slug and of a verdict, where they are given.

        A duplicate has no row of its own: "duplicate" finds those that duplicates were answered from.
        """
        rows = self.filter(workflow__slug=workflow) if workflow else self
        if verdict == "duplicate":
            return rows.filter(copies__gt=0)
        return rows.filter(verdict=verdict) if verdict else rows

    def newest_first(self) -> DeliveryQuerySet:
        return self.order_by("-received_at", "-id")


def _any_taken(triggers: int, external_ids: int) -> str:
    first, second = (", ".join(["%s"] * count) for count in (triggers, external_ids))
    return f"SELECT 1 FROM webhooks_delivery WHERE trigger_id IN ({first}) AND external_id IN ({second}) LIMIT 1"  # noqa: S608


class Delivery(models.Model):
    """One accepted or refused arrival. Only one that made a run takes its delivery id."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="deliveries", db_index=False)
    trigger = models.ForeignKey(
        Trigger, on_delete=models.SET_NULL, null=True, related_name="deliveries", db_index=False
    )
    workflow = models.ForeignKey(Workflow, on_delete=models.CASCADE, related_name="deliveries", db_index=False)
    external_id = models.CharField(  # noqa: DJ001 - a unique key takes any number of nulls, one empty text only
        max_length=200, null=True, help_text="Set only on the delivery that made a run: the sender's id."
    )
    claimed_id = models.CharField(max_length=200, blank=True, help_text="The delivery id as the sender gave it.")
    event = models.CharField(max_length=120, blank=True)
    verdict = models.CharField(max_length=32, help_text="accepted, ignored, pong or the code of the refusal.")
    status = models.PositiveIntegerField(help_text="The HTTP status that was answered.")
    reason = models.TextField(blank=True)
    verification = models.CharField(max_length=64, blank=True)
    headers = models.JSONField(default=dict, help_text="Without credentials.")
    body = models.BinaryField(help_text="The raw bytes; of a refused delivery the first 4 KiB.")
    body_bytes = models.PositiveIntegerField()
    body_sha256 = models.CharField(max_length=64)
    remote = models.CharField(max_length=64, blank=True)
    run_id = models.UUIDField(null=True, db_index=True)
    copies = models.PositiveIntegerField(default=0, help_text="Duplicates that were answered from this one.")
    redelivery_of = models.ForeignKey("self", on_delete=models.SET_NULL, null=True, related_name="redeliveries")
    received_at = models.DateTimeField()

    objects = DeliveryQuerySet.as_manager()

    class Meta:
        verbose_name_plural = "deliveries"
        constraints = [models.UniqueConstraint(fields=["trigger", "external_id"], name="one_run_a_delivery_id")]
        indexes = [
            models.Index(fields=["team", "-received_at"]),
            models.Index(fields=["team", "-id"]),
            models.Index(fields=["team", "verdict", "-received_at"]),
            models.Index(fields=["team", "status", "-received_at"]),
            models.Index(fields=["trigger", "-received_at"]),
            models.Index(fields=["workflow", "-received_at"]),
        ]

    def __str__(self) -> str:
        return f"{self.event or 'delivery'}: {self.verdict}"

    @property
    def whole(self) -> bool:
        """Whether all bytes that came were kept."""
        return len(self.body) == self.body_bytes


class HookCount(models.Model):
    """How many arrivals of one hour made no run: of a trigger, or (subject "") of hooks that do not exist."""

    subject = models.CharField(max_length=36)
    hour = models.DateTimeField()
    refused = models.PositiveIntegerField(default=0)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["subject", "hour"], name="one_count_an_hour")]
        indexes = [models.Index(fields=["hour"])]

    def __str__(self) -> str:
        return f"{self.refused} in {self.hour:%Y-%m-%d %H}h"
