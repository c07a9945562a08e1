"""What is defined: workflows, plan revisions, variables, groups and secrets."""

from __future__ import annotations

from django.conf import settings
from django.contrib.auth.models import AnonymousUser
from django.db import models

from apps.accounts import access
from apps.accounts.models import Team, User
from engine.ids import uuid7


class WorkflowQuerySet(models.QuerySet["Workflow"]):
    def for_user(self, user: User | AnonymousUser) -> WorkflowQuerySet:
        """Those of the teams that the user is in."""
        return self.filter(team__in=access.teams_of(user)).select_related("team", "owner")

    def of_team(self, team: Team) -> WorkflowQuerySet:
        return self.filter(team=team).select_related("team", "owner")

    def by_title(self) -> WorkflowQuerySet:
        return self.order_by("title", "slug")


class Workflow(models.Model):
    """A plan, its variables, its triggers and its folder of files (BEHAVIOUR 2).

    The database is the truth for what `workflow.json` says; the folder is the truth for files.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="workflows")
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="owned_workflows")
    slug = models.SlugField(max_length=64)
    title = models.CharField(max_length=200)
    objective = models.TextField(blank=True)
    schema_version = models.IntegerField()
    code_layout_version = models.IntegerField()
    contract_version = models.CharField(max_length=32)
    secret_names = models.JSONField(default=list, help_text="Names of secrets the workflow may use.")
    settings = models.JSONField(default=dict)
    revision = models.PositiveIntegerField(default=0, help_text="Number of the plan revision that is live.")
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    objects = WorkflowQuerySet.as_manager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["team", "slug"], name="one_workflow_a_slug")]

    def __str__(self) -> str:
        return self.slug


class PlanRevision(models.Model):
    """One saved state of the plan. Rows are only added."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    workflow = models.ForeignKey(Workflow, on_delete=models.CASCADE, related_name="revisions")
    number = models.PositiveIntegerField()
    plan = models.JSONField()
    digest = models.CharField(max_length=64)
    saved_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True)
    saved_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["workflow", "number"], name="one_plan_a_number")]

    def __str__(self) -> str:
        return f"revision {self.number}"


class Variable(models.Model):
    workflow = models.ForeignKey(Workflow, on_delete=models.CASCADE, related_name="variables")
    name = models.CharField(max_length=64)
    value = models.JSONField()
    description = models.TextField(blank=True)
    position = models.PositiveIntegerField(default=0)

    class Meta:
        ordering = ["position"]
        constraints = [models.UniqueConstraint(fields=["workflow", "name"], name="one_variable_a_name")]

    def __str__(self) -> str:
        return self.name


class Group(models.Model):
    """A named set of variable values; a run executes the plan for one group."""

    workflow = models.ForeignKey(Workflow, on_delete=models.CASCADE, related_name="groups")
    name = models.CharField(max_length=64)
    values = models.JSONField(default=dict)
    enabled = models.BooleanField(default=True)
    position = models.PositiveIntegerField(default=0)

    class Meta:
        ordering = ["position"]
        constraints = [models.UniqueConstraint(fields=["workflow", "name"], name="one_group_a_name")]

    def __str__(self) -> str:
        return self.name


class Secret(models.Model):
    """An encrypted value of a team. Write-only: nothing shows it again."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="secrets")
    name = models.CharField(max_length=64)
    ciphertext = models.BinaryField()
    key_id = models.CharField(max_length=16)
    note = models.CharField(max_length=200, blank=True, help_text="What is odd about the value, without showing it.")
    updated_at = models.DateTimeField(auto_now=True)
    updated_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["team", "name"], name="one_secret_a_name")]

    def __str__(self) -> str:
        return self.name
