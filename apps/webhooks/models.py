"""The ways in, and every arrival through them (BEHAVIOUR 8)."""

from __future__ import annotations

from django.db import models

from apps.accounts.models import Team
from apps.workflows.models import Workflow
from engine.ids import uuid7


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
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["workflow", "name"], name="one_trigger_a_name")]

    def __str__(self) -> str:
        return self.name


class Delivery(models.Model):
    """One accepted or refused arrival. Only one that made a run takes its delivery id."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="deliveries")
    trigger = models.ForeignKey(Trigger, on_delete=models.SET_NULL, null=True, related_name="deliveries")
    workflow = models.ForeignKey(Workflow, on_delete=models.CASCADE, related_name="deliveries")
    external_id = models.CharField(
        max_length=200, null=True, help_text="Set only on the delivery that made a run."
    )
    claimed_id = models.CharField(
        max_length=200, blank=True, help_text="The delivery id as the sender gave it."
    )
    event = models.CharField(max_length=120, blank=True)
    verdict = models.CharField(
        max_length=32, help_text="accepted, duplicate, ignored, pong or the code of the refusal."
    )
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
    redelivery_of = models.ForeignKey(
        "self", on_delete=models.SET_NULL, null=True, related_name="redeliveries"
    )
    received_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["trigger", "external_id"], name="one_run_a_delivery_id")
        ]
        indexes = [
            models.Index(fields=["team", "-received_at"]),
            models.Index(fields=["trigger", "-received_at"]),
        ]

    def __str__(self) -> str:
        return f"{self.event or 'delivery'}: {self.verdict}"
