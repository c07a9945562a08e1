"""Attempts with logs, written as the runner writes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.utils import timezone

from apps.runs.models import Attempt, Run, StepRun
from apps.workflows.places import make_way, places_of
from engine.logs import LogWriter, Masker, Stream
from engine.sandbox.limits import Limits

PIECE = 1_000  # lines written at once, as a pipe gives them in pieces


@dataclass
class Growing:
    """An attempt that runs, and the writer of its log."""

    run: Run
    attempt: Attempt
    log_mb: int = 64
    writer: LogWriter | None = None

    @property
    def topic(self) -> str:
        return f"log:{self.run.pk}/hello/1"

    @property
    def address(self) -> str:
        return f"/runs/{self.run.pk}/steps/hello/attempts/1/log/"

    def write(self, data: bytes, stream: Stream = Stream.OUT) -> None:
        if self.writer is None:
            workflow = places_of(self.run.workflow)
            places = workflow.attempt(str(self.run.pk), "hello", 1)
            make_way(places.root)
            self.writer = LogWriter(places, Masker(), Limits(log_mb=self.log_mb))
        self.writer.write(stream, data, 1)

    def lines(self, count: int, first: int = 1) -> None:
        end = first + count
        for start in range(first, end, PIECE):
            self.write(b"".join(b"line %d\n" % number for number in range(start, min(start + PIECE, end))))

    def end(self) -> dict[str, Any]:
        """Seals it, and says so in its row."""
        assert self.writer is not None
        seal = self.writer.seal(2).record()
        Attempt.objects.filter(pk=self.attempt.pk).update(finished_at=timezone.now(), outcome="succeeded", seal=seal)
        return seal


def growing(run: Run, log_mb: int = 64) -> Growing:
    now = timezone.now()
    step = StepRun.objects.create(
        run=run, step_id="hello", position=0, kind="scripted", title="Hello", status="running"
    )
    attempt = Attempt.objects.create(step_run=step, number=1, plan_revision=1, queued_at=now, started_at=now)
    return Growing(run, attempt, log_mb)
