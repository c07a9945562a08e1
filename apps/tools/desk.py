"""What a road brings to the dispatcher: its listener, its fence, its journal, and the answers it has given."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from apps.tools.envelope import Envelope
from apps.tools.journal import Entry, Journal
from apps.tools.work import Databases

KEPT_ANSWERS = 512
Fence = Callable[[], int | None]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a call id was answered. `envelope` is None when the answer itself is not kept any more."""

    argument_digest: str
    envelope: Envelope | None


class Desk(Protocol):
    """The dispatcher's view of a road."""

    listener: UUID | None
    databases: Databases

    def fence(self) -> int | None: ...

    def count_call(self) -> int:
        """Count one call; returns how many there are over the limit now."""

    def earlier(self, session_id: UUID, call_id: UUID) -> Answer | None: ...

    def remember(self, session_id: UUID, call_id: UUID, answer: Answer) -> None: ...

    def append(self, session_id: UUID, entry: Entry) -> None:
        """Write the row into the session's journal. Raises JournalClosed."""


class Answers:
    """The answers of one listener by call id: digests of all, envelopes of the last KEPT_ANSWERS."""

    def __init__(self) -> None:
        self._digests: dict[UUID, str] = {}
        self._envelopes: OrderedDict[UUID, Envelope] = OrderedDict()
        self._lock = threading.Lock()

    def earlier(self, call_id: UUID) -> Answer | None:
        with self._lock:
            digest = self._digests.get(call_id)
            return None if digest is None else Answer(digest, self._envelopes.get(call_id))

    def remember(self, call_id: UUID, answer: Answer) -> None:
        with self._lock:
            self._digests[call_id] = answer.argument_digest
            if answer.envelope is not None:
                self._envelopes[call_id] = answer.envelope
                if len(self._envelopes) > KEPT_ANSWERS:
                    self._envelopes.popitem(last=False)


class ListenerDesk:
    """The desk of one connection to an attempt's socket. Threads of one listener share all but their databases."""

    def __init__(self, shared: Shared, databases: Databases) -> None:
        self._shared = shared
        self.listener: UUID | None = shared.session_id
        self.databases = databases

    def fence(self) -> int | None:
        return self._shared.fence()

    def count_call(self) -> int:
        return self._shared.count_call()

    def earlier(self, session_id: UUID, call_id: UUID) -> Answer | None:
        return self._shared.answers.earlier(call_id) if session_id == self.listener else None

    def remember(self, session_id: UUID, call_id: UUID, answer: Answer) -> None:
        if session_id == self.listener:
            self._shared.answers.remember(call_id, answer)

    def append(self, session_id: UUID, entry: Entry) -> None:
        self._shared.journal.append(entry)


class Shared:
    """What all connections of one listener have in common."""

    def __init__(self, session_id: UUID, journal: Journal, fence: Fence, max_calls: int) -> None:
        self.session_id = session_id
        self.journal = journal
        self.fence = fence
        self.max_calls = max_calls
        self.answers = Answers()
        self.calls = 0
        self._lock = threading.Lock()

    def count_call(self) -> int:
        with self._lock:
            self.calls += 1
            return max(0, self.calls - self.max_calls)
