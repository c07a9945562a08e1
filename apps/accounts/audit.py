"""The audit trail: who changed what, written in the transaction of the change."""

from __future__ import annotations

from collections.abc import Mapping

from apps.accounts.models import Audit, Team, User


def record(
    action: str, changed: object, *, team: Team | None, by: User | None, data: Mapping[str, object] | None = None
) -> Audit:
    """Add one row. `action` is `noun.verb`, `changed` the row it is about; `data` never holds a secret."""
    return Audit.objects.create(
        team=team,
        actor=by,
        action=action,
        object_kind=type(changed).__name__.lower(),
        object_id=str(getattr(changed, "pk", "")),
        data=dict(data or {}),
    )
