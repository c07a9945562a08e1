"""The proof beside a run: who called what under which identity, and which contract an attempt had."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, Q
from django.db.models.query import QuerySet

from apps.runs.models import Attempt, Run
from apps.tools.models import OwnershipDiagnostic, Receipt, ToolCall, ToolSession
from engine import contract

CALLS_SHOWN = 100
REJECTIONS_SHOWN = 50
ATTEMPTS_OFFERED = 20
SHOWN_APART = frozenset({"fingerprint", "inputs_digest", "code_digest", "plan_revision", "version"})
DIGESTS = frozenset({"fingerprint", "inputs_digest", "code_digest"})
NOTHING = "none"
DIGEST = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True)
class Calls:
    """The newest calls of a run, and how many there are in all."""

    rows: list[ToolCall]
    total: int
    refused: int


@dataclass(frozen=True)
class Ownership:
    """The sessions of a run, the newest refusals of ownership, and how many there are in all."""

    sessions: list[ToolSession]
    rejections: list[OwnershipDiagnostic]
    rejected: int


@dataclass(frozen=True)
class Fact:
    """One line of a contract: a name, and a value that is text, a list of words, or several lines."""

    name: str
    text: str
    words: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Section:
    name: str
    facts: tuple[Fact, ...]


def calls(run: Run) -> Calls:
    rows = tool_calls(run)
    counted = rows.aggregate(total=Count("pk"), refused=Count("pk", filter=~Q(verdict="allowed")))
    newest = rows.select_related("session", "authority").order_by("-started_at", "-seq")[:CALLS_SHOWN]
    return Calls(list(newest), counted["total"], counted["refused"])


def ownership(run: Run) -> Ownership:
    """The sessions of the run, and every refusal of ownership in which it is on either side."""
    found = rejections(run)
    newest = list(found[:REJECTIONS_SHOWN])
    return Ownership(list(sessions(run)), newest, found.count() if len(newest) == REJECTIONS_SHOWN else len(newest))


def tool_calls(run: Run) -> QuerySet[ToolCall]:
    return ToolCall.objects.filter(run_id=run.pk)


def sessions(run: Run) -> QuerySet[ToolSession]:
    return ToolSession.objects.of_run(run.pk).select_related("acting_user", "parent").order_by("opened_at")


def rejections(run: Run) -> QuerySet[OwnershipDiagnostic]:
    """Every refusal of ownership with the run on either side, newest first."""
    either = Q(caller_run_id=run.pk) | Q(owner_run_id=run.pk)
    return OwnershipDiagnostic.objects.filter(either).select_related("workflow", "owner_workflow").order_by("-at")


def changes_of(run: Run, step_id: str) -> list[Receipt]:
    """What the step's attempts in this run changed, or may have: a person decides by it how the step ended."""
    known = (Receipt.State.APPLIED, Receipt.State.UNKNOWN)
    rows = Receipt.objects.filter(run_id=run.pk, step_id=step_id, state__in=known)
    return list(rows.order_by("made_at")[:CALLS_SHOWN])


def sections(record: Mapping[str, Any] | None) -> list[Section]:
    """A contract's record in groups: what is plain first, then one group a nested part."""
    if not record:
        return []
    plain = tuple(
        _fact(name, value) for name, value in record.items() if not isinstance(value, dict) and name not in SHOWN_APART
    )
    nested = [
        Section(name, tuple(_fact(inner, value) for inner, value in part.items()))
        for name, part in record.items()
        if isinstance(part, dict) and part
    ]
    return [Section("contract", plain), *nested] if plain else nested


def others(run: Run, attempt: Attempt) -> list[Attempt]:
    """Attempts of the same step to compare with: of this run, then of the workflow's newest runs."""
    rows = Attempt.objects.filter(
        step_run__run__workflow_id=run.workflow_id, step_run__step_id=attempt.step_run.step_id
    ).exclude(pk=attempt.pk)
    newest = rows.exclude(contract=None).order_by("-step_run__run__queued_at", "-queued_at")
    return list(newest.select_related("step_run__run")[:ATTEMPTS_OFFERED])


def difference(attempt: Attempt, other: Attempt) -> list[contract.Change]:
    """What differs in the parts of the two contracts. The digests beside them are compared apart."""
    changes = contract.diff(other.contract or {}, attempt.contract or {})
    return [change for change in changes if change.path not in DIGESTS]


def _fact(name: str, value: Any) -> Fact:
    if isinstance(value, list | tuple | dict) and not value:
        return Fact(name, NOTHING)
    if isinstance(value, list | tuple):
        simple = not any(isinstance(item, dict | list) for item in value)
        texts = tuple(_line(item) for item in value)
        return Fact(name, "", words=texts) if simple else Fact(name, "", lines=texts)
    if isinstance(value, dict):
        return Fact(name, "", lines=tuple(f"{key} = {_line(inner)}" for key, inner in value.items()))
    return Fact(name, _line(value))


def _line(value: Any) -> str:
    if value is None or value in ([], {}, ""):
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(f"({_line(item)})" if isinstance(item, dict) else _line(item) for item in value)
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_line(inner)}" for key, inner in value.items())
    text = str(value)
    return f"{text[:12]}…" if DIGEST.fullmatch(text) else text
