"""Refusals of ownership: each stored, logged at warning, and pushed to the runs on both sides (BEHAVIOUR 6.5)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from django.db import transaction
from django.utils import timezone

from apps.tools import wire
from apps.tools.errors import Code
from apps.tools.identity import Caller, SessionFacts
from apps.tools.models import OwnershipDiagnostic

NONE = "none"
UNKNOWN = "unknown"
STRANGERS_A_MINUTE = 60
logger = logging.getLogger(__name__)

on_rejected: list[Callable[[OwnershipDiagnostic], None]] = []
"""Called inside the transaction that stores the diagnostic: what it writes commits with it."""


@dataclass(frozen=True)
class Sides:
    """Who called, and which session was meant: the listener's or the one that was named."""

    caller: Caller | None
    meant: SessionFacts | None
    authority: SessionFacts | None
    named: str = ""


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
        tool_session=_shown(meant, wire.printable(sides.named)[:160] or UNKNOWN),
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


def _shown(session: SessionFacts | None, otherwise: str) -> str:
    return wire.printable(str(session)) if session else otherwise
