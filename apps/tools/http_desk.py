"""The dispatcher's desk for calls over HTTP: nothing is held between requests, so any web process can serve them."""

from __future__ import annotations

import logging
import time
from uuid import UUID

from django.core.cache import cache
from django.db import connection

from apps.tools import ledger
from apps.tools.desk import Answer
from apps.tools.errors import JournalClosed
from apps.tools.journal import Entry
from apps.tools.models import ToolCall
from apps.tools.work import Databases

CALLS_A_MINUTE = 6000
logger = logging.getLogger(__name__)


class HttpDesk:
    """One request's desk. Close it."""

    listener: UUID | None = None

    def __init__(self, token_sha256: str) -> None:
        self.databases = Databases()
        self._token_sha256 = token_sha256

    def fence(self) -> int | None:
        """None: a client holds no lease."""
        return None

    def count_call(self) -> int:
        key = f"tool-calls:{self._token_sha256}:{int(time.time() // 60)}"
        cache.add(key, 0, timeout=120)
        return max(0, cache.incr(key) - CALLS_A_MINUTE)

    def earlier(self, session_id: UUID, call_id: UUID) -> Answer | None:
        row = (
            ToolCall.objects.filter(session_id=session_id, call_id=call_id, verdict="allowed")
            .exclude(error_code__in=["busy", "unavailable", "call_conflict"])
            .order_by("seq")
            .values_list("argument_digest", flat=True)
            .first()
        )
        return None if row is None else Answer(row, None)

    def remember(self, session_id: UUID, call_id: UUID, answer: Answer) -> None:
        """The ledger remembers."""

    def append(self, session_id: UUID, entry: Entry) -> None:
        """The row is safe once it is in the journal: an import that fails fails no call and is made up for later."""
        chain = ledger.chain_of(session_id)
        if chain is None or chain.is_sealed:
            raise JournalClosed("The chain of this session is sealed.")
        opened = chain.open()
        try:
            row = opened.append(entry)
            try:
                ledger.import_row(session_id, opened, row)
            except Exception:
                logger.exception("A row of a journal could not be imported; it will be tried again")
                connection.close_if_unusable_or_obsolete()
        finally:
            opened.close()

    def close(self) -> None:
        self.databases.close()
