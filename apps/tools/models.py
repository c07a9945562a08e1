"""Under which identity tools are called, and the proof of each call (BEHAVIOUR 6)."""

from __future__ import annotations

from typing import Self
from uuid import UUID

from django.conf import settings
from django.db import models

from apps.accounts.models import Team
from apps.fields import FoundJson
from apps.workflows.models import Workflow
from engine.ids import uuid7


class ToolSessionQuerySet(models.QuerySet["ToolSession"]):
    def live(self) -> Self:
        """Found by the index on what is not sealed yet: there are few of them among all that ever were."""
        return self.filter(sealed=False, state=ToolSession.State.LIVE)

    def not_ended(self) -> Self:
        return self.filter(state__in=[state for state in ToolSession.State if state != ToolSession.State.ENDED])

    def of_run(self, run_id: UUID) -> Self:
        """The run's own session and everything that works below it."""
        return self.filter(run_id=run_id)

    def for_team(self, team_id: UUID) -> Self:
        return self.filter(team_id=team_id)

    def unsealed(self) -> Self:
        """Those whose ledger is still to be closed: few, and found without a look at all that ever were."""
        return self.filter(sealed=False, state=ToolSession.State.ENDED)


class ToolSession(models.Model):
    """An identity under which tools are called. A session has one parent, fixed when it is registered.

    `run_id`, `step_id` and `attempt_id` are plain values: the tables of runs lie above this app.
    """

    class Kind(models.TextChoices):
        RUN = "run"
        STEP = "step"
        AGENT = "agent"
        CHAT = "chat"
        CREW = "crew"
        MCP = "mcp"
        API = "api"

    class State(models.TextChoices):
        LIVE = "live"
        SUSPENDED = "suspended"
        ENDED = "ended"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    kind = models.CharField(max_length=8, choices=Kind.choices)
    name = models.CharField(max_length=120, help_text="Shown to people. Proves nothing.")
    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="+", db_index=False)
    workflow = models.ForeignKey(Workflow, on_delete=models.CASCADE, related_name="sessions", db_index=False)
    acting_user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    parent = models.ForeignKey("self", on_delete=models.CASCADE, null=True, related_name="children")
    run_id = models.UUIDField(null=True, db_index=True)
    step_id = models.CharField(max_length=64, blank=True)
    attempt_id = models.UUIDField(null=True)
    tools = models.JSONField(default=list, help_text="The session's own allow list.")
    db_access = models.CharField(max_length=10, default="none", help_text="none, read or read-write.")
    state = models.CharField(max_length=10, choices=State.choices, default=State.LIVE)
    token_sha256 = models.CharField(max_length=64, unique=True, null=True)  # noqa: DJ001 - null is no token; unique
    opened_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    end_reason = models.CharField(max_length=64, blank=True)
    sealed = models.BooleanField(default=False, help_text="Nothing is left to be done; the seal itself is LedgerSeal.")

    objects = ToolSessionQuerySet.as_manager()

    class Meta:
        indexes = [
            models.Index(fields=["workflow", "state"]),
            models.Index(fields=["team", "-id"]),
            models.Index(fields=["team", "state", "-id"]),
            models.Index(fields=["state"], condition=models.Q(sealed=False), name="sessions_to_seal"),
        ]
        constraints = [
            models.UniqueConstraint(fields=["run_id"], condition=models.Q(kind="run"), name="one_run_session_a_run"),
            models.UniqueConstraint(
                fields=["attempt_id"], condition=models.Q(kind="step"), name="one_step_session_an_attempt"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class ToolCall(models.Model):
    """A row of the ledger: one use of a tool, chained to the row before it by an HMAC."""

    call_id = models.UUIDField(db_index=True, help_text="Made by the client: the mutation id.")
    session = models.ForeignKey(ToolSession, on_delete=models.CASCADE, related_name="calls", db_index=False)
    authority = models.ForeignKey(ToolSession, on_delete=models.CASCADE, related_name="authorised_calls")
    workflow_id = models.UUIDField()
    run_id = models.UUIDField(null=True)
    step_id = models.CharField(max_length=64, blank=True)
    attempt_id = models.UUIDField(null=True)
    seq = models.PositiveIntegerField(help_text="Counts from 1 within the session.")
    tool = models.CharField(max_length=64)
    argument_digest = models.CharField(max_length=64)
    verdict = models.CharField(max_length=32, help_text="allowed, or the code of the refusal.")
    outcome = models.CharField(max_length=16, help_text="succeeded, failed, not_sent, refused, applied, unknown.")
    error_code = models.CharField(max_length=32, blank=True)
    started_at = models.DateTimeField()
    duration_us = models.PositiveBigIntegerField()
    previous_hmac = models.CharField(max_length=64, blank=True, help_text="Empty in the first row.")
    hmac = models.CharField(max_length=64)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["session", "seq"], name="one_call_a_sequence_number")]
        indexes = [
            models.Index(fields=["run_id", "started_at"]),
            models.Index(fields=["workflow_id", "-started_at"]),
        ]

    def __str__(self) -> str:
        return f"{self.seq} {self.tool}: {self.verdict}"


class LedgerSeal(models.Model):
    """Closes the chain of one session: how many rows there are and the last one's HMAC."""

    session = models.OneToOneField(ToolSession, on_delete=models.CASCADE, primary_key=True, related_name="seal")
    rows = models.PositiveIntegerField()
    last_hmac = models.CharField(max_length=64, blank=True)
    sealed_at = models.DateTimeField()
    hmac = models.CharField(max_length=64, help_text="Covers the count and the last HMAC.")

    def __str__(self) -> str:
        return f"{self.rows} rows"


class Receipt(models.Model):
    """What is known of one mutation. Written as an intent before the effect, settled by reading the effect."""

    class State(models.TextChoices):
        INTENT = "intent"
        APPLIED = "applied"
        REFUSED = "refused"
        NOT_SENT = "not_sent"
        UNKNOWN = "unknown"

    id = models.UUIDField(primary_key=True, help_text="The call id.")
    session = models.ForeignKey(ToolSession, on_delete=models.CASCADE, related_name="receipts")
    workflow_id = models.UUIDField(db_index=True)
    run_id = models.UUIDField(null=True, db_index=True)
    step_id = models.CharField(max_length=64, blank=True)
    attempt_id = models.UUIDField(null=True, db_index=True)
    tool = models.CharField(max_length=64)
    argument_digest = models.CharField(max_length=64)
    state = models.CharField(max_length=10, choices=State.choices)
    result = FoundJson(null=True)
    made_at = models.DateTimeField()
    settled_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"{self.tool}: {self.state}"


class OwnershipDiagnostic(models.Model):
    """One refusal of ownership: all four sessions, and the runs on both sides."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    workflow = models.ForeignKey(Workflow, on_delete=models.CASCADE, null=True, related_name="+")
    tool = models.CharField(max_length=64)
    reason = models.CharField(max_length=32)
    caller = models.CharField(max_length=160)
    tool_session = models.CharField(max_length=160)
    authority = models.CharField(max_length=160)
    caller_parent = models.CharField(max_length=160)
    caller_run_id = models.UUIDField(null=True, db_index=True)
    owner_run_id = models.UUIDField(null=True, db_index=True, help_text="The run whose session was named.")
    owner_workflow = models.ForeignKey(Workflow, on_delete=models.CASCADE, null=True, related_name="+")
    at = models.DateTimeField(db_index=True)

    def __str__(self) -> str:
        return (
            f'[TOOL_OWNERSHIP] rejected {self.tool}: caller="{self.caller}" tool_session="{self.tool_session}"'
            f' authority="{self.authority}" caller_parent="{self.caller_parent}" reason="{self.reason}"'
        )
