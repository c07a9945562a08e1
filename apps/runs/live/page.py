"""What a page needs to show the log of one attempt."""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from typing import Any

from apps.runs import outputs
from apps.runs.live import frames
from apps.runs.live.topics import LogTopic
from apps.runs.models import Attempt
from engine.logs import LogReader

TAIL = 200  # lines shown where there is no script
# As static/js/ansi.js has them; without script there are no colours.
_CONTROL = re.compile(
    r"(?:\x1b\[|\x9b)[0-9;:?<=>]*[ -/]*[@-~]"
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[ -/]*[0-~]|\x1b"
)
_HIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")


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
    expired: bool

    @property
    def topic(self) -> str:
        return str(LogTopic(self.run_id, self.step_id, self.number))


def of_attempt(attempt: Attempt) -> LogPage:
    """Needs `attempt.step_run.run.workflow` loaded."""
    step = attempt.step_run
    with LogReader(outputs.of_attempt(attempt)) as reader:
        count, gap = reader.count(), reader.gap()
        tail = [plain(str(frames.line_json(line)[3])) for line in reader.last(TAIL, longest=4 * frames.TEXT_SHOWN)]
    return LogPage(
        run_id=step.run_id,
        step_id=step.step_id,
        number=attempt.number,
        count=count,
        ended=attempt.finished_at is not None,
        failed=attempt.outcome not in {"", "succeeded"},
        seal=attempt.seal or {},
        tail=tail,
        gap=f"{gap.first} {gap.end}" if gap else "",
        expired=step.run.artifacts_expired,
    )


def plain(text: str) -> str:
    """What a terminal would show last, without its controls; what hides or turns text around is a mark."""
    return _HIDDEN.sub("\ufffd", _CONTROL.sub("", text.rstrip("\r").rpartition("\r")[2]))
