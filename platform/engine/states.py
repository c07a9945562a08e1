"""The life of a run and of a step on one screen: every state, and every move there is (BEHAVIOUR 10).

A move that is not in these tables does not exist. Callers move by conditional update: `sources_of(target)` is the
`WHERE status IN` of it, and the count of changed rows says who won.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import overload


class RunStatus(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    NEEDS_ATTENTION = "needs_attention"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class StepStatus(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    WAITING = "waiting"
    NEEDS_ATTENTION = "needs_attention"
    SKIPPED = "skipped"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


R, S = RunStatus, StepStatus

RUN_MOVES: Mapping[RunStatus, frozenset[RunStatus]] = MappingProxyType(
    {
        R.QUEUED: frozenset({R.RUNNING, R.CANCELLED, R.FAILED}),
        # Back to queued: an idempotent step was lost with its worker.
        R.RUNNING: frozenset({R.WAITING, R.QUEUED, R.NEEDS_ATTENTION, R.SUCCEEDED, R.FAILED, R.CANCELLED}),
        R.WAITING: frozenset({R.QUEUED, R.NEEDS_ATTENTION, R.CANCELLED, R.FAILED}),
        R.NEEDS_ATTENTION: frozenset({R.QUEUED, R.SUCCEEDED, R.FAILED, R.CANCELLED}),
        R.SUCCEEDED: frozenset(),
        R.FAILED: frozenset(),
        R.CANCELLED: frozenset(),
    }
)

STEP_MOVES: Mapping[StepStatus, frozenset[StepStatus]] = MappingProxyType(
    {
        # Straight to succeeded or failed: a branch decides without running anything; so does a refused parameter.
        S.PENDING: frozenset({S.RUNNING, S.WAITING, S.SKIPPED, S.SUCCEEDED, S.FAILED, S.CANCELLED}),
        # Back to pending: it is started again, by `retry` or after its worker was lost.
        S.RUNNING: frozenset({S.PENDING, S.WAITING, S.NEEDS_ATTENTION, S.SUCCEEDED, S.FAILED, S.CANCELLED}),
        S.WAITING: frozenset({S.PENDING, S.RUNNING, S.NEEDS_ATTENTION, S.SUCCEEDED, S.FAILED, S.CANCELLED}),
        S.NEEDS_ATTENTION: frozenset({S.PENDING, S.SUCCEEDED, S.FAILED, S.CANCELLED}),
        S.SKIPPED: frozenset(),
        S.SUCCEEDED: frozenset(),
        S.FAILED: frozenset(),
        S.CANCELLED: frozenset(),
    }
)

TERMINAL: frozenset[RunStatus] = frozenset(status for status, targets in RUN_MOVES.items() if not targets)
STEP_TERMINAL: frozenset[StepStatus] = frozenset(status for status, targets in STEP_MOVES.items() if not targets)


@overload
def sources_of(target: RunStatus) -> frozenset[RunStatus]: ...
@overload
def sources_of(target: StepStatus) -> frozenset[StepStatus]: ...
def sources_of(target: RunStatus | StepStatus) -> frozenset[RunStatus] | frozenset[StepStatus]:
    """The states from which `target` may be reached. Empty for one that is only ever a beginning."""
    if isinstance(target, RunStatus):
        return frozenset(source for source, targets in RUN_MOVES.items() if target in targets)
    return frozenset(source for source, targets in STEP_MOVES.items() if target in targets)
