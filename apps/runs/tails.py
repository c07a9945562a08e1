"""The end of a run's log, for a terminal."""

from __future__ import annotations

import re
from dataclasses import dataclass

from apps.runs import outputs
from apps.runs.models import Attempt, Run
from engine.logs import LogReader

LINES = 10
LONGEST = 400
_COLOUR = re.compile(r"\x1b\[[0-9;:?]*[ -/]*[@-~]")


@dataclass(frozen=True)
class Tail:
    """The last lines that a step wrote. What a terminal would obey is taken out: a step's text commands nobody."""

    step_id: str
    lines: tuple[str, ...]
    earlier: int


def of_run(run: Run) -> Tail | None:
    """Of the attempt that was started last; None when no attempt wrote anything."""
    attempt = (
        Attempt.objects.filter(step_run__run=run, started_at__isnull=False)
        .select_related("step_run__run__workflow")
        .order_by("-started_at")
        .first()
    )
    if attempt is None:
        return None
    with LogReader(outputs.of_attempt(attempt)) as reader:
        shown = tuple(plain(line.text) for line in reader.last(LINES, longest=LONGEST))
        return Tail(attempt.step_run.step_id, shown, max(reader.count() - len(shown), 0)) if shown else None


def plain(text: str) -> str:
    """Without colours and without control characters."""
    return "".join(one if one.isprintable() or one == "\t" else "�" for one in _COLOUR.sub("", text.rstrip("\r\n")))
