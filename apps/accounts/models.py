"""Who there is: users, teams, memberships, API tokens, and the audit trail."""

from __future__ import annotations

from django.contrib.auth.models import AbstractUser
from django.db import models

from apps.accounts.roles import Role
from engine.ids import uuid7


class User(AbstractUser):
    """A person. Signs in with the user name or, where mail is configured, the address."""

    must_change_password = models.BooleanField(
        default=False, help_text="Sees only the page that changes the password, until it was changed."
    )


class Team(models.Model):
    """The tenant: owns workflows, secrets and members."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    slug = models.SlugField(max_length=64, unique=True)
    name = models.CharField(max_length=120)
    created_at = models.DateTimeField(auto_now_add=True)
    members = models.ManyToManyField(User, through="Membership", related_name="teams")

    def __str__(self) -> str:
        return self.name


class Membership(models.Model):
    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=16, choices=Role.choices)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["team", "user"], name="one_membership_a_team"),
            models.CheckConstraint(condition=models.Q(role__in=Role.values), name="membership_role_is_known"),
        ]

    def __str__(self) -> str:
        return f"{self.user} is {self.role} of {self.team}"


class ApiToken(models.Model):
    """A bearer token of one team; only its SHA-256 is kept."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="api_tokens")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="api_tokens")
    name = models.CharField(max_length=120)
    scopes = models.JSONField(help_text="A list out of run, read, build, admin.")
    role = models.CharField(max_length=16, choices=Role.choices, help_text="At most the holder's own role.")
    token_sha256 = models.CharField(max_length=64, unique=True)
    prefix = models.CharField(max_length=12, help_text="The first characters, to tell tokens apart.")
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name = "API token"

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"


class Audit(models.Model):
    """Who changed what, when. Rows are only added."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    team = models.ForeignKey(Team, on_delete=models.SET_NULL, null=True, related_name="audit")
    actor = models.ForeignKey(User, on_delete=models.SET_NULL, null=True)
    action = models.CharField(max_length=64)
    object_kind = models.CharField(max_length=32)
    object_id = models.CharField(max_length=64)
    data = models.JSONField(default=dict)
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        verbose_name_plural = "audit trail"
        indexes = [models.Index(fields=["team", "-at"])]

    def __str__(self) -> str:
        return f"{self.action} {self.object_kind} {self.object_id}"
