"""Which lists of a team are stale: compared with what they looked like when they were last announced.

Team pages are not replayed: they are told what is stale, coalesced, and fetch it again.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from apps.accounts.models import Team
from apps.runs.live.source import News
from apps.tools.models import OwnershipDiagnostic

if TYPE_CHECKING:
    import uuid

IDLE_S = 1.0
DELIVERY = "delivery.received"
REJECTED = "tool.rejected"
EVERYTHING = ("run.", "step.", "attempt.", "worker.", DELIVERY, REJECTED)


class Teams:
    """Remembers, for each watched team, what its pages were last told of."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._ids: dict[str, uuid.UUID] = {}
        self._pending: dict[uuid.UUID, set[str]] = {}
        self._looked = 0.0
        self._marks: dict[str, tuple[object, ...]] = {}

    def next_look(self) -> float:
        """Seconds until stale teams may be told again: how long the tailer may sleep."""
        if not self._pending:
            return IDLE_S
        return max(0.0, self._looked + self._every_s - time.monotonic())

    def stale(self, slugs: Iterable[str], news: News) -> Iterator[tuple[str, set[str]]]:
        """The teams among `slugs` whose pages have something to fetch, with the kinds of events that made it so."""
        for team_id, kinds in news.teams.items():
            self._pending.setdefault(team_id, set()).update(kinds)
        if time.monotonic() < self._looked + self._every_s:
            return
        self._looked = time.monotonic()
        pending, self._pending = self._pending, {}
        for slug in slugs:
            team_id = self._team_id(slug)
            if team_id is None:
                continue
            names = pending.get(team_id, set()) | self._changed(slug, team_id)
            if names:
                yield slug, names

    def _team_id(self, slug: str) -> uuid.UUID | None:
        if slug not in self._ids:
            found = Team.objects.filter(slug=slug).values_list("pk", flat=True).first()
            if found is None:
                return None
            self._ids[slug] = found
        return self._ids[slug]

    def _changed(self, slug: str, team_id: uuid.UUID) -> set[str]:
        """Arrivals and diagnostics have no run of their own to write an event to, so their newest rows are compared."""
        # `deliveries` is the reverse name of a table above this app: reached through the relation, never imported.
        team = Team(pk=team_id)
        delivery = team.deliveries.order_by("-received_at").values_list("pk", flat=True).first()
        diagnostic = (
            OwnershipDiagnostic.objects.filter(workflow__team_id=team_id).order_by("-at").values_list("pk", flat=True)
        ).first()
        before = self._marks.get(slug)
        self._marks[slug] = (delivery, diagnostic)
        if before is None:
            return set()
        names = {DELIVERY} if delivery != before[0] else set()
        return names | ({REJECTED} if diagnostic != before[1] else set())
