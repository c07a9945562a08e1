"""How an attempt ended, and whether the platform may start its step again by itself (BEHAVIOUR 5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

RESTARTS_AFTER_LOSS = 3


class Outcome(StrEnum):
    SUCCEEDED = "succeeded"
    SCRIPT_ERROR = "script_error"
    VALIDATION_FAILED = "validation_failed"
    ASSERTION_FAILED = "assertion_failed"
    REFUSED = "refused"
    PREFLIGHT_FAILED = "preflight_failed"
    HARNESS_REJECTED = "harness_rejected"
    PARAMETERS_REJECTED = "parameters_rejected"
    TOOL_BOUNDARY = "tool_boundary"
    TIMED_OUT = "timed_out"
    LIMIT_EXCEEDED = "limit_exceeded"
    CANCELLED = "cancelled"
    WORKER_LOST = "worker_lost"


class Repairable(StrEnum):
    """Whether repair may mend the code for it: `evidence` only with evidence, `code` only for faults of the code."""

    YES = "yes"
    EVIDENCE = "evidence"
    CODE = "code"
    NEVER = "never"


REPAIRABLE: dict[Outcome, Repairable] = {
    Outcome.SUCCEEDED: Repairable.NEVER,
    Outcome.SCRIPT_ERROR: Repairable.YES,
    Outcome.VALIDATION_FAILED: Repairable.YES,
    Outcome.ASSERTION_FAILED: Repairable.EVIDENCE,
    Outcome.REFUSED: Repairable.NEVER,
    Outcome.PREFLIGHT_FAILED: Repairable.CODE,
    Outcome.HARNESS_REJECTED: Repairable.NEVER,
    Outcome.PARAMETERS_REJECTED: Repairable.NEVER,
    Outcome.TOOL_BOUNDARY: Repairable.NEVER,
    Outcome.TIMED_OUT: Repairable.NEVER,
    Outcome.LIMIT_EXCEEDED: Repairable.NEVER,
    Outcome.CANCELLED: Repairable.NEVER,
    Outcome.WORKER_LOST: Repairable.NEVER,
}

COUNTED: frozenset[Outcome] = frozenset(
    {
        Outcome.SUCCEEDED,
        Outcome.SCRIPT_ERROR,
        Outcome.VALIDATION_FAILED,
        Outcome.ASSERTION_FAILED,
        Outcome.TIMED_OUT,
        Outcome.LIMIT_EXCEEDED,
    }
)
"""What counts in the statistics of a step."""

RETRIED: frozenset[Outcome] = frozenset(
    {Outcome.SCRIPT_ERROR, Outcome.VALIDATION_FAILED, Outcome.TIMED_OUT, Outcome.LIMIT_EXCEEDED}
)
"""What `retry` covers."""


class Next(StrEnum):
    """What follows for the step."""

    SUCCEED = "succeed"
    FAIL = "fail"
    CANCEL = "cancel"
    AGAIN = "again"
    NEEDS_ATTENTION = "needs_attention"


@dataclass(frozen=True)
class Ended:
    """What is known when an attempt has ended.

    tries: attempts of this step so far that count for `retry`, this one included.
    losses: attempts of this step that were `worker_lost` so far, this one included.
    tree_gone: every process of it was seen to be gone.
    unknown, applied: call ids of receipts of *all* attempts of the step in this run: still `unknown` after they
    were read back; `applied`.
    """

    outcome: Outcome
    tries: int
    losses: int = 0
    max_attempts: int = 1
    backoff_s: float = 0.0
    idempotent: bool = False
    tree_gone: bool = True
    unknown: Sequence[str] = ()
    applied: Sequence[str] = ()


@dataclass(frozen=True)
class After:
    """The answer. `reason` is a word, `detail` is for people, `receipts` are the call ids to list."""

    next: Next
    reason: str = ""
    detail: str = ""
    delay_s: float = 0.0
    receipts: tuple[str, ...] = ()


def decide_after(ended: Ended) -> After:
    """What follows an attempt that has ended. What may have happened is never done again by the platform."""
    if ended.outcome is Outcome.SUCCEEDED:
        return After(Next.SUCCEED)
    if ended.outcome is Outcome.WORKER_LOST:
        return _after_loss(ended)
    if not ended.tree_gone:
        return _attention(
            "may_still_run", "Processes of this attempt were not seen to be gone: it may still run.", ended
        )
    if ended.outcome is Outcome.CANCELLED:
        return After(Next.CANCEL, reason="cancelled")
    if ended.outcome in RETRIED and ended.tries < ended.max_attempts:
        return _once_more(ended)
    return After(Next.FAIL, reason=ended.outcome.value)


def _once_more(ended: Ended) -> After:
    return _held_back(ended) or After(Next.AGAIN, reason="retry", delay_s=ended.backoff_s)


def _after_loss(ended: Ended) -> After:
    if not ended.tree_gone:
        return _attention(
            "may_still_run", "The worker was lost, and the processes of this attempt may still run.", ended
        )
    if not ended.idempotent and not ended.unknown and not ended.applied:
        return _attention(
            "worker_lost", "The worker was lost in the middle of this step; what it did is not known.", ended
        )
    held = _held_back(ended)
    if held is not None:
        return held
    if ended.losses > RESTARTS_AFTER_LOSS:
        return _attention(
            "restarts_used_up",
            f"The worker was lost {ended.losses} times in this step; it is not started again by itself.",
            ended,
        )
    return After(Next.AGAIN, reason="worker_lost")


def _held_back(ended: Ended) -> After | None:
    """Why the step may not be started again by itself, or None when it may."""
    if ended.unknown:
        return After(
            Next.NEEDS_ATTENTION,
            reason="mutation_unknown",
            detail=f"Of {len(ended.unknown)} changes it is not known whether they were made.",
            receipts=tuple(ended.unknown),
        )
    if ended.applied and not ended.idempotent:
        return After(
            Next.NEEDS_ATTENTION,
            reason="mutations_applied",
            detail=f"Earlier attempts made {len(ended.applied)} changes, and the step is not marked idempotent.",
            receipts=tuple(ended.applied),
        )
    return None


def _attention(reason: str, detail: str, ended: Ended) -> After:
    return After(Next.NEEDS_ATTENTION, reason=reason, detail=detail, receipts=(*ended.unknown, *ended.applied))
