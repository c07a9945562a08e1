"""What an API token may be used for. A scope never reaches further than the token's role."""

from __future__ import annotations

import enum

from apps.accounts.access import Permission


class Scope(enum.StrEnum):
    READ = "read"
    RUN = "run"
    BUILD = "build"
    ADMIN = "admin"


GIVES: dict[Scope, Permission] = {
    Scope.READ: Permission.READ,
    Scope.RUN: Permission.RUN,
    Scope.BUILD: Permission.EDIT,
    Scope.ADMIN: Permission.OWN,
}
NEEDED_FOR: dict[Permission, Scope] = {permission: scope for scope, permission in GIVES.items()}
