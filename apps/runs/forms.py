"""What the pages of runs take from people."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, fields
from datetime import timedelta
from urllib.parse import urlencode

from django import forms
from django.db.models import Q
from django.http import QueryDict
from django.utils import timezone

from apps.runs.models import Run, RunQuerySet
from apps.workflows.models import Workflow

PERIODS = {"1h": timedelta(hours=1), "24h": timedelta(days=1), "7d": timedelta(days=7)}
SETS = {
    "unfinished": (Run.Status.QUEUED, Run.Status.RUNNING, Run.Status.WAITING, Run.Status.NEEDS_ATTENTION),
    "standing": (Run.Status.QUEUED, Run.Status.WAITING),
    "wrong": (Run.Status.FAILED, Run.Status.NEEDS_ATTENTION),
}


PILLS = (
    ("", "All"),
    ("unfinished", "Unfinished"),
    ("running", "Running"),
    ("standing", "Waiting"),
    ("needs_attention", "Needs attention"),
    ("failed", "Failed"),
    ("succeeded", "Succeeded"),
    ("cancelled", "Cancelled"),
)


@dataclass(frozen=True)
class Pill:
    """One press away: the same list with another status."""

    text: str
    address: str
    current: bool


@dataclass(frozen=True)
class RunFilter:
    """Which runs a list shows. Empty means any. What an address says that makes no sense is left out."""

    status: str = ""
    workflow: str = ""  # <team slug>/<workflow slug>
    via: str = ""
    group: str = ""
    period: str = ""
    step: str = ""
    outcome: str = ""
    before: str = ""

    @classmethod
    def of(cls, query: QueryDict) -> RunFilter:
        return cls(**{field.name: query.get(field.name, "").replace("\x00", "")[:120] for field in fields(cls)})

    def streams(self, runs: RunQuerySet) -> list[RunQuerySet]:
        """Those of `runs` that are wanted, those of each status by themselves: so an index has the newest together."""
        runs = self._after_cursor(self._narrow(runs)).newest_first()
        statuses = SETS.get(self.status) or [status for status in Run.Status if status == self.status]
        return [runs.filter(status=status) for status in statuses] or [runs]

    def _narrow(self, runs: RunQuerySet) -> RunQuerySet:
        if "/" in self.workflow:
            team, slug = self.workflow.split("/", 1)
            runs = runs.filter(workflow__in=list(Workflow.objects.filter(team__slug=team, slug=slug)))
        for name, value in (("entry_path", self.via), ("group", self.group)):
            if value:
                runs = runs.filter(**{name: value})
        if self.period in PERIODS:
            runs = runs.filter(queued_at__gte=timezone.now() - PERIODS[self.period])
        return self._by_fault(runs)

    def _after_cursor(self, runs: RunQuerySet) -> RunQuerySet:
        """Only what is older than the run that the last page ended with."""
        try:
            last = (
                Run.objects.filter(pk=uuid.UUID(self.before)).values_list("queued_at", "pk").first()
                if self.before
                else None
            )
        except ValueError:
            last = None
        if last is None:
            return runs
        return runs.filter(Q(queued_at__lt=last[0]) | Q(queued_at=last[0], pk__lt=last[1]))

    def address(self, **other: str) -> str:
        """The query string of this filter with some of it changed, without its cursor."""
        said = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "before"}
        return "?" + urlencode({name: value for name, value in {**said, **other}.items() if value})

    @property
    def pills(self) -> list[Pill]:
        return [Pill(text, self.address(status=status), self.status == status) for status, text in PILLS]

    @property
    def narrowed(self) -> bool:
        return any(getattr(self, field.name) for field in fields(self) if field.name not in {"before", "status"})

    def _by_fault(self, runs: RunQuerySet) -> RunQuerySet:
        if not self.step and not self.outcome:
            return runs
        wanted = Q()
        if self.step:
            wanted &= Q(steps__step_id=self.step)
        if self.outcome:
            wanted &= Q(steps__attempts__outcome=self.outcome)
        return runs.filter(wanted).distinct()


class RerunForm(forms.Form):
    """From which step on; empty for the whole run."""

    from_step = forms.CharField(max_length=64, required=False)
    only_failed = forms.BooleanField(required=False)


class SettleForm(forms.Form):
    """A person's decision on a step whose end is not known."""

    step_id = forms.CharField(max_length=64)
    choice = forms.ChoiceField(choices=[(name, name) for name in ("run_again", "mark_succeeded", "mark_failed")])
