"""How a process notices that something was committed: a poll of SQLite's data version, or PostgreSQL's LISTEN.

On SQLite with immediate transactions event ids are in commit order, so `id > last` misses nothing. On PostgreSQL
they are not: there the notification, sent by the transaction itself, names the run and the team.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from django.db import connection, connections

from apps.runs.events import CHANNEL
from apps.runs.models import RunEvent

POLL_S = 0.01


@dataclass
class News:
    """What changed."""

    runs: set[uuid.UUID] = field(default_factory=set)
    teams: dict[uuid.UUID, set[str]] = field(default_factory=dict)  # with the kinds of their events

    def take(self, run_id: uuid.UUID, team_id: uuid.UUID, kinds: Iterable[str]) -> None:
        self.runs.add(run_id)
        self.teams.setdefault(team_id, set()).update(kinds)


class Source(Protocol):
    def wait(self, seconds: float) -> News:
        """Returns at the first commit, or empty-handed after `seconds`."""

    def close(self) -> None: ...


class DataVersion:
    """SQLite: `PRAGMA data_version` changes when another connection has committed."""

    def __init__(self) -> None:
        self._version = self._read()
        self._last = RunEvent.objects.order_by("-pk").values_list("pk", flat=True).first() or 0

    def wait(self, seconds: float) -> News:
        deadline = time.monotonic() + seconds
        while (version := self._read()) == self._version:
            if time.monotonic() >= deadline:
                return News()
            time.sleep(POLL_S)
        self._version = version
        news = News()
        rows = RunEvent.objects.filter(pk__gt=self._last).order_by("pk")
        for key, run, team, kind in rows.values_list("pk", "run_id", "team_id", "kind"):
            news.take(run, team, [kind])
            self._last = key
        return news

    def close(self) -> None:
        connection.close()

    def _read(self) -> int:
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA data_version")
            return int(cursor.fetchone()[0])


class Notifications:
    """PostgreSQL: a connection of its own that listens; each payload is `<team> <run> <last number> <kinds>`."""

    def __init__(self) -> None:
        self._wrapper = connections.create_connection("default")
        with self._wrapper.cursor() as cursor:
            cursor.execute(f"LISTEN {CHANNEL}")

    def wait(self, seconds: float) -> News:
        news = News()
        with self._wrapper.wrap_database_errors:
            for note in self._wrapper.connection.notifies(timeout=seconds, stop_after=1):
                self._take(news, note.payload)
            for note in self._wrapper.connection.notifies(timeout=0):
                self._take(news, note.payload)
        return news

    def close(self) -> None:
        self._wrapper.close()

    @staticmethod
    def _take(news: News, payload: str) -> None:
        team, run, _, kinds = payload.split()
        news.take(uuid.UUID(run), uuid.UUID(team), kinds.split(","))


def make() -> Source:
    return Notifications() if connection.vendor == "postgresql" else DataVersion()
