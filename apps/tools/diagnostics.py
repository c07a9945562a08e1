"""Refusals of ownership: each stored, logged at warning, and pushed to the runs on both sides (BEHAVIOUR 6.5)."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from django.db import transaction
from django.utils import timezone

from apps.tools import wire
from apps.tools.errors import Code
from apps.tools.identity import Caller, SessionFacts
from apps.tools.models import OwnershipDiagnostic
from apps.workflows import vault
from apps.workflows.errors import SecretUnreadable
from engine.logs import Masker

NONE = "none"
UNKNOWN = "unknown"
STRANGERS_A_MINUTE = 60
_LIKE_A_NAME = re.compile(r"[a-z0-9]{1,12}([-_ .:][a-z0-9]{1,12})*")
logger = logging.getLogger(__name__)

on_rejected: list[Callable[[OwnershipDiagnostic], None]] = []
"""Called inside the transaction that stores the diagnostic: what it writes commits with it."""


@dataclass(frozen=True)
class Sides:
    """Who called, and which session was meant: the listener's or the one that was named."""

    caller: Caller | None
    meant: SessionFacts | None
    authority: SessionFacts | None
    named: tuple[str, ...] = ()


def record(tool: str, code: Code, sides: Sides) -> OwnershipDiagnostic:
    """Store and announce one refusal. A stranger's calls, whose token is none of ours, are stored up to a bound."""
    caller = sides.caller.session if sides.caller else None
    parent = sides.caller.parent if sides.caller else None
    meant = sides.meant or (None if sides.named else caller)
    row = OwnershipDiagnostic(
        workflow_id=caller.workflow_id if caller else None,
        tool=wire.printable(tool)[:64],
        reason=code,
        caller=_shown(caller, UNKNOWN),
        tool_session=_shown(meant, _named(sides)),
        authority=_shown(sides.authority, NONE),
        caller_parent=_shown(parent, NONE),
        caller_run_id=caller.run_id if caller else None,
        owner_run_id=meant.run_id if meant else None,
        owner_workflow_id=meant.workflow_id if meant else None,
        at=timezone.now(),
    )
    logger.warning("%s", row)
    if caller is None and _too_many_strangers(row):
        return row
    with transaction.atomic():
        row.save(force_insert=True)
        for announce in on_rejected:
            announce(row)
    return row


def _too_many_strangers(row: OwnershipDiagnostic) -> bool:
    """Counted apart for each workflow whose session they name: where they crowd, they hide nothing elsewhere."""
    recent = OwnershipDiagnostic.objects.filter(
        at__gte=row.at - timedelta(minutes=1), workflow=None, owner_workflow_id=row.owner_workflow_id
    )
    return recent.count() >= STRANGERS_A_MINUTE


def _named(sides: Sides) -> str:
    """What was named and is no session of ours: as it came only where it reads like a name and holds no secret."""
    masker = _masker(sides.caller) if sides.named else None
    return ", ".join(_told(name, masker) for name in sides.named)[:160] or UNKNOWN


def _told(name: str, masker: Masker | None) -> str:
    if not name:
        return "(empty)"
    if masker is None or not _LIKE_A_NAME.fullmatch(name) or masker.finds(name.encode()):
        return wire.unknown_name(name)
    return name


def _masker(caller: Caller | None) -> Masker | None:
    try:
        return Masker(vault.secrets_of_team(caller.team_id) if caller else {})
    except SecretUnreadable:
        return None


def _shown(session: SessionFacts | None, otherwise: str) -> str:
    return wire.printable(str(session)) if session else otherwise
