"""Running runs whose worker falls silent, or is heard of again: no event tells of it, so it is looked for."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable

from apps.runs import silence

EVERY_S = 3.0
AGAIN_LOOKS = 5  # a page that came just when it happened is told of it some looks later


class Silences:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._looks = 0
        self._due = 0.0
        self._silent: dict[uuid.UUID, str] = {}

    def news(self) -> dict[uuid.UUID, str]:
        """The runs, with their teams' slugs, whose pages are to be told now; mostly none."""
        if self._clock() < self._due:
            return {}
        self._due = self._clock() + EVERY_S
        self._looks += 1
        before, self._silent = self._silent, dict(silence.unheard().values_list("pk", "team__slug"))
        if self._looks % AGAIN_LOOKS == 0:
            return {**before, **self._silent}
        changed = before.keys() ^ self._silent.keys()
        return {run_id: slug for run_id, slug in {**before, **self._silent}.items() if run_id in changed}
