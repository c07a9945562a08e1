"""The four team roles, and what each may do (BEHAVIOUR: team)."""

from __future__ import annotations

from django.db import models


class Role(models.TextChoices):
    VIEWER = "viewer"
    OPERATOR = "operator"
    EDITOR = "editor"
    OWNER = "owner"

    def at_least(self, other: Role) -> bool:
        order = list(Role)
        return order.index(self) >= order.index(other)
