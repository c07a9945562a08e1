"""What the page of one run shows: its steps with their attempts, bars on one scale of time, and what failed and why."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from django.utils import timezone

from apps.runs import advice, reading, silence
from apps.runs.models import Attempt, Run, StepRun
from apps.runs.texts import Texts
from apps.workflows import graph_svg

SCALE = 1000  # the width of a run in the units of its bars
THINNEST = 3.0
MOST_TICKS = 5
SCALES = (
    (0.001, "ms", (1, 2, 5, 10, 20, 50, 100, 200, 500)),
    (1, "s", (1, 2, 5, 10, 15, 30)),
    (60, "min", (1, 2, 5, 10, 15, 30)),
    (3600, "h", (1, 2, 3, 6, 12)),
    (86400, "d", (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)),
)
OPEN_FIRST = (StepRun.Status.FAILED, StepRun.Status.NEEDS_ATTENTION, StepRun.Status.RUNNING, StepRun.Status.WAITING)


@dataclass(frozen=True)
class Bar:
    """A stretch of time as `x` and `width` out of SCALE."""

    x: float
    width: float


@dataclass(frozen=True)
class AttemptLine:
    """One attempt with its stretch in the queue and its stretch of work, each apart."""

    attempt: Attempt
    queue: Bar | None
    work: Bar | None
    seconds: float | None
    queue_seconds: float | None

    @property
    def state(self) -> str:
        return advice.state_of(self.attempt.outcome)

    @property
    def advice(self) -> advice.Advice:
        return advice.of(self.attempt.outcome, self.attempt.reason)

    @property
    def code_changed(self) -> bool:
        end = self.attempt.code_digest_end
        return bool(end and end != self.attempt.code_digest)


@dataclass(frozen=True)
class StepLine:
    step: StepRun
    attempts: tuple[AttemptLine, ...]

    @property
    def latest(self) -> AttemptLine | None:
        return self.attempts[-1] if self.attempts else None

    @property
    def outcome(self) -> str:
        return self.latest.attempt.outcome if self.latest else ""

    @property
    def went_wrong(self) -> bool:
        return self.step.status in (StepRun.Status.FAILED, StepRun.Status.NEEDS_ATTENTION)

    @property
    def cause(self) -> str:
        """The nearest to what happened that is known: the attempt's own words, else the step's."""
        told = self.latest.attempt.detail if self.latest else ""
        return told or self.step.reason

    @property
    def cause_has_lines(self) -> bool:
        """Whether its lines stand below each other for a reason, as those of a traceback do."""
        return "\n" in self.cause.strip()

    @property
    def advice(self) -> advice.Advice:
        return advice.of(self.outcome, self.latest.attempt.reason if self.latest else "")

    def attempt(self, number: int) -> AttemptLine | None:
        """The attempt of that number; without one (0) the latest."""
        return next((line for line in self.attempts if line.attempt.number == number), None if number else self.latest)


@dataclass(frozen=True)
class Tick:
    """A mark on the scale of time, at a round number of one unit."""

    x: float
    text: str

    @property
    def percent(self) -> float:
        return round(100 * self.x / SCALE, 2)

    @property
    def anchor(self) -> str:
        """Where its text lies by it, so that none leaves the scale."""
        return "start" if self.x == 0 else "end" if self.x > 0.92 * SCALE else "middle"


class RunPage:
    """One consistent reading of a run at one moment. What costs a query is read when it is first asked for."""

    def __init__(self, run: Run, *, at: datetime | None = None) -> None:
        self.run = run
        self.at = at or timezone.now()
        self.unheard_since = silence.since(run, self.at)
        self.unheard = silence.words(run, self.at)

    @cached_property
    def end(self) -> datetime:
        """How far its time is known to go."""
        return self.run.finished_at or self.unheard_since or self._stopped_at or self.at

    @cached_property
    def span(self) -> float:
        return max((self.end - self.run.queued_at).total_seconds(), 0.001)

    @property
    def finished(self) -> bool:
        return self.run.status in Run.TERMINAL

    @property
    def state(self) -> str:
        return self.run.shown_status

    @property
    def counts_on(self) -> bool:
        """Whether it runs now, as far as anyone knows: its times go on."""
        return not self.finished and self.unheard_since is None and self.run.status != Run.Status.NEEDS_ATTENTION

    @property
    def frees(self) -> str:
        """What will make a run heard of again."""
        return silence.FREES

    @property
    def seconds(self) -> float | None:
        """From its start to its end, or as long as it is known to run; None when it has not started."""
        return (self.end - self.run.started_at).total_seconds() if self.run.started_at else None

    @property
    def queue_seconds(self) -> float:
        return ((self.run.started_at or self.end) - self.run.queued_at).total_seconds()

    @cached_property
    def lines(self) -> tuple[StepLine, ...]:
        found = []
        for step in self._steps:
            step.title = self.texts.title(step)  # as it is read, never saved
            found.append(StepLine(step, tuple(self._line(attempt) for attempt in step.attempts.all())))
        return tuple(found)

    @property
    def codes(self) -> list[str]:
        """The digests of the code that its attempts had, the latest first: more than one when it changed meanwhile."""
        attempts = sorted((one.attempt for line in self.lines for one in line.attempts), key=lambda one: one.queued_at)
        return list(dict.fromkeys(one.code_digest for one in reversed(attempts) if one.code_digest))

    @cached_property
    def texts(self) -> Texts:
        return Texts(self.run)

    def about(self, line: StepLine, shown: AttemptLine | None) -> str:
        """What the plan says of the step, as it was for the attempt that is shown."""
        return self.texts.description(line.step, shown.attempt.plan_revision if shown else 0)

    @cached_property
    def wrong(self) -> tuple[StepLine, ...]:
        return tuple(line for line in self.lines if line.went_wrong)

    @property
    def unexplained(self) -> bool:
        """Whether the run says why it is as it is and no step of it does."""
        return bool(self.run.reason and not self.wrong and self.standstill is None and self.run.status != "succeeded")

    @property
    def needs_choice(self) -> tuple[StepLine, ...]:
        if self.run.status != Run.Status.NEEDS_ATTENTION:
            return ()
        return tuple(line for line in self.lines if line.step.status == StepRun.Status.NEEDS_ATTENTION)

    @cached_property
    def standstill(self) -> reading.Standstill | None:
        """Why it is not running, while it is neither running nor finished."""
        still = self.run.status in (Run.Status.QUEUED, Run.Status.WAITING)
        return reading.why_not_running(self.run) if still else None

    @cached_property
    def picture(self) -> graph_svg.Picture:
        return graph_svg.of_revision(self.run.workflow_id, self.run.plan_revision)

    @cached_property
    def states(self) -> dict[str, str]:
        return {line.step.step_id: line.step.status for line in self.lines}

    @cached_property
    def taken(self) -> set[tuple[str, str]]:
        """The ways of the graph that were gone: both ends were reached, and a branch chose this one."""
        reached = {name for name, state in self.states.items() if state not in ("pending", "skipped")}
        chosen = {line.step.step_id: (line.step.decision or {}).get("next_step_id") for line in self.lines}
        return {
            (edge.source, edge.target)
            for edge in self.picture.edges
            if edge.source in reached and edge.target in reached and chosen.get(edge.source) in (None, edge.target)
        }

    @cached_property
    def ticks(self) -> tuple[Tick, ...]:
        size, by, unit = _scale(self.span)
        step = size * by
        return tuple(
            Tick(SCALE * at * step / self.span, f"{at * by} {unit}") for at in range(int(self.span / step) + 1)
        )

    def line(self, step_id: str) -> StepLine | None:
        return next((line for line in self.lines if line.step.step_id == step_id), None)

    def opened(self, step_id: str) -> StepLine | None:
        """The step the page opens: the one asked for, else what went wrong, else what runs, else the last that ran."""
        if step_id:
            return self.line(step_id)
        for status in OPEN_FIRST:
            for line in self.lines:
                if line.step.status == status:
                    return line
        ran = [line for line in self.lines if line.attempts]
        return ran[-1] if ran else next(iter(self.lines), None)

    @cached_property
    def _steps(self) -> list[StepRun]:
        return list(self.run.steps.prefetch_related("attempts"))

    @property
    def _stopped_at(self) -> datetime | None:
        """When the last attempt of a run ended that does nothing until a person decides."""
        if self.run.status != Run.Status.NEEDS_ATTENTION:
            return None
        ends = [attempt.finished_at for step in self._steps for attempt in step.attempts.all()]
        known = [end for end in ends if end]
        return max(known) if known and len(known) == len(ends) else None

    def _line(self, attempt: Attempt) -> AttemptLine:
        started = attempt.started_at
        waited_until = started or attempt.finished_at or self.end
        ended = attempt.finished_at or self.end
        return AttemptLine(
            attempt,
            self._bar(attempt.queued_at, waited_until),
            self._bar(started, ended) if started else None,
            (ended - started).total_seconds() if started else None,
            (waited_until - attempt.queued_at).total_seconds(),
        )

    def _bar(self, start: datetime, end: datetime) -> Bar:
        x = SCALE * (start - self.run.queued_at).total_seconds() / self.span
        width = max(SCALE * (end - start).total_seconds() / self.span, THINNEST)
        x = min(max(x, 0.0), SCALE - THINNEST)
        return Bar(round(x, 2), round(min(width, SCALE - x), 2))


def _scale(span: float) -> tuple[float, int, str]:
    """The finest round step of a scale of so many seconds: seconds a unit, units a step, the unit's sign."""
    steps = [(size, by, unit) for size, unit, sizes in SCALES for by in sizes]
    return next((step for step in steps if span / (step[0] * step[1]) < MOST_TICKS), steps[-1])
