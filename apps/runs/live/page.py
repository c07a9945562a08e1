"""What a page needs to show the log of one attempt."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

from apps.runs.live import frames
from apps.runs.live.topics import LogTopic
from apps.runs.models import Attempt
from apps.workflows.places import places_of
from engine.logs import LogReader

TAIL = 200  # lines shown where there is no script


@dataclass(frozen=True)
class LogPage:
    run_id: uuid.UUID
    step_id: str
    number: int
    count: int
    ended: bool
    failed: bool
    seal: dict[str, Any]
    tail: list[str]
    gap: str

    @property
    def topic(self) -> str:
        return str(LogTopic(self.run_id, self.step_id, self.number))


def of_attempt(attempt: Attempt) -> LogPage:
    """Needs `attempt.step_run.run.workflow` loaded."""
    step = attempt.step_run
    places = places_of(step.run.workflow).attempt(str(step.run_id), step.step_id, attempt.number)
    reader = LogReader(places)
    count = reader.count()
    gap = reader.gap()
    return LogPage(
        run_id=step.run_id,
        step_id=step.step_id,
        number=attempt.number,
        count=count,
        ended=attempt.finished_at is not None,
        failed=attempt.outcome not in {"", "succeeded"},
        seal=attempt.seal or {},
        tail=[str(frames.line_json(line)[3]) for line in reader.last(TAIL)],
        gap=f"{gap.first} {gap.end}" if gap else "",
    )
