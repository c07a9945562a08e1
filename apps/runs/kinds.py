"""The closed set of events that a run tells of itself (DESIGN 5)."""

from __future__ import annotations

from enum import StrEnum


class Kind(StrEnum):
    RUN_QUEUED = "run.queued"
    RUN_STARTED = "run.started"
    RUN_WAITING = "run.waiting"
    RUN_NEEDS_ATTENTION = "run.needs_attention"
    RUN_SUCCEEDED = "run.succeeded"
    RUN_FAILED = "run.failed"
    RUN_CANCELLED = "run.cancelled"
    RUN_CANCEL_REQUESTED = "run.cancel_requested"
    RUN_REQUEUED = "run.requeued"
    STEP_STARTED = "step.started"
    STEP_SUCCEEDED = "step.succeeded"
    STEP_FAILED = "step.failed"
    STEP_SKIPPED = "step.skipped"
    STEP_CANCELLED = "step.cancelled"
    STEP_NEEDS_ATTENTION = "step.needs_attention"
    STEP_ROUTED = "step.routed"
    ATTEMPT_STARTED = "attempt.started"
    ATTEMPT_ENDED = "attempt.ended"
    LOG_GREW = "log.grew"
    TOOL_CALLED = "tool.called"
    TOOL_REJECTED = "tool.rejected"
    WORKER_LOST = "worker.lost"
