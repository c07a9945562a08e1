"""What happened: runs, their steps, every attempt, and the events that tell it (BEHAVIOUR 10)."""

from __future__ import annotations

from datetime import datetime
from typing import Self

from django.conf import settings
from django.contrib.auth.models import AnonymousUser
from django.db import models

from apps.accounts import access
from apps.accounts.models import Team, User
from apps.fields import FoundJson, FoundText
from apps.workflows.models import Workflow
from engine.ids import uuid7
from engine.states import TERMINAL, RunStatus, StepStatus


class WorkerQuerySet(models.QuerySet["Worker"]):
    def heard_since(self, moment: datetime) -> Self:
        """Those that are not stopped and whose heartbeat is not older than `moment`."""
        return self.filter(stopped_at=None, heartbeat_at__gte=moment)


class Worker(models.Model):
    """A process that works for the platform: who it is and when it was last heard of."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    role = models.CharField(max_length=16, help_text="web, worker (the supervisor) or scheduler.")
    host = models.CharField(max_length=120, help_text="The boot's own id and the host name.")
    pid = models.PositiveIntegerField()
    pid_started = models.CharField(max_length=32, blank=True, help_text="In clock ticks: a pid alone can be reused.")
    release = models.CharField(max_length=64)
    slots = models.PositiveIntegerField(default=0, help_text="Runs it can advance at once; 0 when it takes none.")
    refusal = models.TextField(blank=True, help_text="Why it starts no step: what the host lacks.")
    started_at = models.DateTimeField()
    heartbeat_at = models.DateTimeField()
    stopping_at = models.DateTimeField(null=True, help_text="A planned stop: it takes no run any more.")
    cut_at = models.DateTimeField(null=True, help_text="The drain is over: what still runs is ended.")
    stopped_at = models.DateTimeField(null=True)
    cluster_pid = models.PositiveIntegerField(null=True, help_text="The main process of its cluster.")
    cluster_started = models.CharField(max_length=32, blank=True)

    objects = WorkerQuerySet.as_manager()

    def __str__(self) -> str:
        return f"{self.role} {self.pid} on {self.host}"


class Leader(models.Model):
    """Who does what only one process should do. Its duties are safe to do twice: the row only spares work."""

    name = models.CharField(max_length=16, primary_key=True)
    worker = models.ForeignKey(Worker, on_delete=models.SET_NULL, null=True)
    until = models.DateTimeField()

    def __str__(self) -> str:
        return self.name


class RunQuerySet(models.QuerySet["Run"]):
    def for_user(self, user: User | AnonymousUser) -> Self:
        """The runs of the teams the user is an active member of."""
        return self.filter(team__in=access.teams_of(user))

    def locked(self) -> Self:
        """The run's own row, against other writers of it; rows that refer to it may still be inserted.

        On PostgreSQL a plain FOR UPDATE would also lock the rows joined in, and deadlock with their foreign keys.
        """
        return self.select_for_update(of=("self",), no_key=True)

    def unfinished(self) -> Self:
        return self.filter(status__in=[status for status in Run.Status if status not in Run.TERMINAL])

    def running(self) -> Self:
        return self.filter(status=Run.Status.RUNNING)

    def queued(self) -> Self:
        return self.filter(status=Run.Status.QUEUED)

    def waiting_for_slot(self) -> Self:
        return self.filter(status=Run.Status.QUEUED, reason_code=Run.NO_SLOT)

    def newest_first(self) -> Self:
        return self.order_by("-queued_at", "-id")


class Run(models.Model):
    """One execution of a plan for one group, started by one trigger."""

    Status = RunStatus

    class Scope(models.TextChoices):
        RUN = "run"
        STEP = "step"

    TERMINAL = TERMINAL
    NO_SLOT = "slot"  # the reason_code of a queued run that waits for a slot of its workflow

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="runs", db_index=False)
    workflow = models.ForeignKey(Workflow, on_delete=models.CASCADE, related_name="runs", db_index=False)
    scope = models.CharField(max_length=4, choices=Scope.choices, default=Scope.RUN)
    status = models.CharField(max_length=16, default=RunStatus.QUEUED)
    reason = FoundText(blank=True, help_text="Why it is not running, or why it ended as it did.")
    reason_code = models.CharField(max_length=32, blank=True)
    entry_path = models.CharField(max_length=10)
    trigger_name = models.CharField(max_length=120, blank=True)
    delivery_id = models.UUIDField(null=True, db_index=True, help_text="A row of webhooks, which lies above.")
    group = models.CharField(max_length=64)
    group_values = models.JSONField(default=dict, help_text="The group's resolved variables, pinned at the start.")
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    initiator = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")
    initiated_by = models.CharField(max_length=200, help_text="Who or what started it, as audit text.")
    plan_revision = models.PositiveIntegerField(help_text="The revision that was live when the run was made.")
    rerun_of = models.ForeignKey("self", on_delete=models.SET_NULL, null=True, related_name="reruns")
    rerun_from = models.CharField(max_length=64, blank=True, help_text="The step a rerun starts from.")
    only_step = models.CharField(max_length=64, blank=True, help_text="The step of a run of scope step.")
    session_id = models.UUIDField(null=True, help_text="The run's tool session.")
    queued_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    wake_at = models.DateTimeField(null=True, help_text="When a run that waits for a time is queued again.")
    cancel_requested_at = models.DateTimeField(null=True)
    cancel_requested_by = models.CharField(max_length=200, blank=True)
    may_still_run = models.BooleanField(default=False, help_text="The old process tree was not seen to be gone.")
    artifacts_expired = models.BooleanField(default=False)
    last_seq = models.PositiveBigIntegerField(default=0, help_text="The last event's sequence number.")
    # The lease: who may write for this run. A writer compares the fence, never only the name.
    lease_worker = models.ForeignKey(Worker, on_delete=models.SET_NULL, null=True, related_name="leases")
    lease_host = models.CharField(max_length=120, blank=True)
    lease_pid = models.PositiveIntegerField(null=True)
    lease_pid_started = models.CharField(max_length=32, blank=True)
    lease_beat = models.PositiveBigIntegerField(
        default=0, help_text="Raised by each renewal: a reaper watches it by its own clock, not by the wall's."
    )
    fence = models.PositiveBigIntegerField(default=0)
    enqueued_at = models.DateTimeField(null=True, help_text="When the queue last got its id.")
    alerted_at = models.DateTimeField(null=True, help_text="When it was reported as older than a run should be.")

    objects = RunQuerySet.as_manager()

    class Meta:
        indexes = [
            models.Index(fields=["workflow", "status", "queued_at"]),
            models.Index(fields=["workflow", "-queued_at"]),
            models.Index(fields=["workflow", "entry_path", "-queued_at"]),
            models.Index(fields=["team", "-queued_at"]),
            models.Index(fields=["team", "-id"]),
            models.Index(fields=["team", "status", "-queued_at"]),
            models.Index(fields=["status", "queued_at"]),
        ]

    def __str__(self) -> str:
        return str(self.id)

    @property
    def is_cancelling(self) -> bool:
        """It was asked to end and has not yet."""
        return self.cancel_requested_at is not None and self.status not in self.TERMINAL

    @property
    def shown_status(self) -> str:
        return "cancelling" if self.is_cancelling else self.status


class RunInput(models.Model):
    """What the caller gave: kept once, encrypted (JSON of parameters, variables, route_selections, human_inputs)."""

    run = models.OneToOneField(Run, on_delete=models.CASCADE, primary_key=True, related_name="input")
    ciphertext = models.BinaryField()
    key_id = models.CharField(max_length=16)

    def __str__(self) -> str:
        return f"input of {self.run_id}"


class StartKey(models.Model):
    """An `Idempotency-Key` of the API: the same key with the same body names the same run."""

    workflow = models.ForeignKey(Workflow, on_delete=models.CASCADE, related_name="+")
    key = models.CharField(max_length=200)
    body_sha256 = models.CharField(max_length=64)
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="+")
    made_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["workflow", "key"], name="one_run_an_idempotency_key")]

    def __str__(self) -> str:
        return self.key


class StepRun(models.Model):
    """One step inside one run."""

    Status = StepStatus

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="steps", db_index=False)
    step_id = models.CharField(max_length=64)
    kind = models.CharField(max_length=20)
    title = models.CharField(max_length=200)
    position = models.PositiveIntegerField()
    status = models.CharField(max_length=16, default=StepStatus.PENDING)
    reason = FoundText(blank=True)
    decision = FoundJson(null=True, help_text="Of a branch: the route, and where the decision came from.")
    reused_from = models.UUIDField(null=True, help_text="The attempt of the earlier run whose outputs were copied in.")
    reused_files = FoundJson(
        null=True,
        help_text="Of a reused step: {path, bytes, sha256} of what was copied in, or its problem; null until it was.",
    )
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["position"]
        constraints = [models.UniqueConstraint(fields=["run", "step_id"], name="one_step_run_a_step")]

    def __str__(self) -> str:
        return self.step_id


class Attempt(models.Model):
    """One try of a step. Numbered, never overwritten."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    step_run = models.ForeignKey(StepRun, on_delete=models.CASCADE, related_name="attempts", db_index=False)
    number = models.PositiveIntegerField()
    plan_revision = models.PositiveIntegerField()
    outcome = models.CharField(max_length=20, blank=True, help_text="Empty while it runs; BEHAVIOUR 5's words after.")
    reason = models.CharField(max_length=64, blank=True, help_text="The reason below the outcome.")
    detail = FoundText(blank=True, help_text="For people: what happened and what to do. Masked.")
    exit_code = models.IntegerField(null=True)
    contract = FoundJson(null=True, help_text="The resolved contract, without any secret value.")
    policy = FoundJson(null=True, help_text="What the sandbox let it touch.")
    fingerprint = models.CharField(max_length=64, blank=True)
    inputs_digest = models.CharField(max_length=64, blank=True)
    code_digest = models.CharField(max_length=64, blank=True)
    code_digest_end = models.CharField(max_length=64, blank=True)
    findings = FoundJson(default=list, help_text="What preflight found, advice too.")
    validation = FoundJson(null=True)
    claims = FoundJson(default=dict, help_text="What the script said of itself: refusal, concerns, exception.")
    outputs = FoundJson(default=list, help_text="The files it left: path, bytes, sha256, and what is wrong with them.")
    seal = models.JSONField(null=True, help_text="Of the log: lines, bytes, sha256, produced and kept.")
    host = models.CharField(max_length=120, blank=True)
    pid = models.PositiveIntegerField(null=True, help_text="The sandbox's outermost process.")
    pid_started = models.CharField(
        max_length=32, blank=True, help_text="Its start time in clock ticks: a pid alone can be reused."
    )
    session_id = models.UUIDField(null=True)
    queued_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["number"]
        constraints = [models.UniqueConstraint(fields=["step_run", "number"], name="one_attempt_a_number")]

    def __str__(self) -> str:
        return f"attempt {self.number}: {self.outcome or 'running'}"


class RunEvent(models.Model):
    """What changed, committed with the change. `seq` counts without gaps within a run."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="events", db_index=False)
    team_id = models.UUIDField()
    seq = models.PositiveBigIntegerField()
    kind = models.CharField(max_length=32)
    at = models.DateTimeField()
    ids = FoundJson(default=dict)
    data = FoundJson(default=dict, help_text="At most 4 KB, never a secret.")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "seq"], name="one_event_a_sequence_number")]

    def __str__(self) -> str:
        return f"{self.seq} {self.kind}"
