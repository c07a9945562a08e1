"""Which lists of a team are stale: compared with what they looked like when they were last announced.

Team pages are not replayed: they are told what is stale, coalesced, and fetch it again.
"""

from __future__ import annotations

import time
from collections.abc import Collection
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
    """Remembers what the pages of each team were last told of."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._pending: dict[uuid.UUID, set[str]] = {}
        self._unknown = True
        self._looked = 0.0
        self._newest: dict[uuid.UUID, tuple[object, object]] = {}

    def next_look(self) -> float:
        """Seconds until stale teams may be told again: how long the tailer may sleep."""
        if not self._pending and not self._unknown:
            return IDLE_S
        return max(0.0, self._looked + self._every_s - time.monotonic())

    def stale(self, slugs: Collection[str], news: News | None) -> list[tuple[str, set[str]]]:
        """The teams among `slugs` whose pages have something to fetch, with the kinds of events that made it so.

        Without news, from a source that has only begun to look, what was committed before is not known: everything.
        """
        self._unknown |= news is None
        for team_id, kinds in (news.teams if news else {}).items():
            self._pending.setdefault(team_id, set()).update(kinds)
        now = time.monotonic()
        if now < self._looked + self._every_s:
            return []
        told = []
        for team in Team.objects.filter(slug__in=slugs):
            names = self._arrived(team) | (set(EVERYTHING) if self._unknown else self._pending.get(team.pk, set()))
            if names:
                told.append((team.slug, names))
        self._looked, self._pending, self._unknown = now, {}, False
        return told

    def _arrived(self, team: Team) -> set[str]:
        """Arrivals and diagnostics have no run of their own to write an event to, so their newest rows are compared.

        Of a team that was never looked at, what its pages show is not known: they are told of both.
        """
        # `deliveries` is the reverse name of a table above this app: reached through the relation, never imported.
        delivery = team.deliveries.order_by("-received_at").values_list("pk", flat=True).first()
        diagnostics = OwnershipDiagnostic.objects.filter(workflow__team_id=team.pk).order_by("-at")
        now = (delivery, diagnostics.values_list("pk", flat=True).first())
        before = self._newest.get(team.pk, (self, self))
        self._newest[team.pk] = now
        return {name for name, old, new in zip((DELIVERY, REJECTED), before, now, strict=True) if old != new}
