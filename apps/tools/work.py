"""What one call works with. An executor is made from it and dropped with it: nothing of a call outlives the call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from apps.tools import driver
from apps.tools.identity import SessionFacts
from apps.tools.workflow_db.database import Database
from apps.tools.workflow_db.writing import Mark
from apps.workflows.places import data_places


class Executor(Protocol):
    """Does one call. Raises ToolFailure when it was not done; anything else is a bug of ours."""

    def __call__(self, arguments: Mapping[str, Any], /) -> Any: ...


class Databases:
    """The workflow databases that one thread has opened, one a workflow; closed by who made this."""

    def __init__(self) -> None:
        self._open: dict[UUID, Database] = {}
        self._ended = False

    def of(self, team_id: UUID, workflow_id: UUID) -> Database:
        database = self._open.get(workflow_id)
        if database is None:
            places = data_places().workflow(str(team_id), str(workflow_id))
            database = self._open[workflow_id] = Database(places.database)
            if self._ended:
                database.end()
        return database

    def end(self) -> None:
        """From any thread: what runs on them is ended, and nothing begins on them from here on."""
        self._ended = True
        for database in list(self._open.values()):
            database.end()

    def close(self) -> None:
        for database in self._open.values():
            database.close()
        self._open.clear()


@dataclass(frozen=True, slots=True)
class Work:
    """One admitted call: who calls, with whose identity, in which database. Everything comes from rows."""

    call_id: UUID
    tool: str
    argument_digest: str
    caller: SessionFacts
    authority: SessionFacts
    team_id: UUID
    fence: int | None
    databases: Databases

    @property
    def database(self) -> Database:
        """The authority's workflow's database; there is no way to name another."""
        return self.databases.of(self.team_id, self.authority.workflow_id)

    def is_live(self) -> bool:
        """Whether the caller's session has not ended, now: it was live when the call was admitted."""
        return driver.one(_LIVE, [self.caller.id]) is not None

    @property
    def mark(self) -> Mark:
        return Mark(self.call_id, self.caller.id, self.argument_digest, self.caller.run_id, self.fence)


_LIVE = "SELECT 1 FROM tools_toolsession WHERE id = %s AND state = 'live'"
