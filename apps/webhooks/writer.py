"""One thread of a web process that accepts deliveries: all that wait at a moment share one commit.

Django would open a thread and a database connection for each request, which is most of what a delivery would cost.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from django.db import DatabaseError, close_old_connections, connections

from apps.webhooks.accept import BUSY, accept_deliveries
from apps.webhooks.arrivals import Answer, Arrival
from apps.webhooks.judging import FAULT, judge_all
from apps.webhooks.settling import answer_refusal

log = logging.getLogger(__name__)

BATCH: Final = 32  # one commit holds the write lock for some milliseconds, not longer
WAITING_BYTES: Final = 64 * 1024 * 1024
HEADERS_BYTES: Final = 4 * 1024  # reckoned for what waits beside its body
PATIENCE_S: Final = 1.0
MOMENT_S: Final = 0.005  # the longest that one waits for others; its commit takes longer


@dataclass(frozen=True)
class Waiting:
    """An arrival, and who waits for its answer."""

    arrival: Arrival
    answer: asyncio.Future[Answer]


class Writer:
    """One thread that accepts what waits, in batches. Bounded by bytes: beyond them the answer is 503."""

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[Waiting | None] = queue.SimpleQueue()
        self._coming: dict[asyncio.AbstractEventLoop, list[Waiting]] = {}
        self._usual = 1
        self._bytes = 0
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    async def accept(self, arrival: Arrival) -> Answer:
        """The answer, once it is durable; while the database is held by others, a 401 or 404 before it is stored."""
        size = len(arrival.body) + HEADERS_BYTES
        if self._bytes + size > WAITING_BYTES:
            return answer_refusal(BUSY)
        self._start()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Answer] = loop.create_future()
        self._bytes += size
        answer.add_done_callback(lambda _: self._release(size))
        self._gather(loop, Waiting(arrival, answer))
        # Shielded: a sender that hangs up does not take its delivery back.
        with suppress(TimeoutError):
            return await asyncio.wait_for(asyncio.shield(answer), PATIENCE_S)
        turned_away: Answer | None = await loop.run_in_executor(JUDGES, _turned_away, arrival)
        return turned_away if turned_away is not None else await asyncio.shield(answer)

    def _gather(self, loop: asyncio.AbstractEventLoop, one: Waiting) -> None:
        """Those that come at once go to the thread together: as many as the last batch had, or who is there by then.

        So the senders of a batch, who send their next together, share the next commit. One alone waits for nobody.
        """
        coming = self._coming.setdefault(loop, [])
        coming.append(one)
        if len(coming) >= self._usual:
            self._hand_over(loop)
        elif len(coming) == 1:
            loop.call_later(MOMENT_S, self._hand_over, loop)

    def _hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        for one in self._coming.pop(loop, ()):
            self._waiting.put(one)

    def _release(self, size: int) -> None:
        self._bytes -= size

    def _start(self) -> None:
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._serve, name="deliveries", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """Settle what waits, then end the thread and its connection; a later delivery starts it again."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            self._waiting.put(None)
            thread.join()

    def _serve(self) -> None:
        try:
            while batch := self._take():
                with suppress(Exception):  # of the log itself: this thread ends only when it is told to
                    self._accept_batch(batch)
        finally:
            connections.close_all()

    def _accept_batch(self, batch: list[Waiting]) -> None:
        """Whatever happens, nobody of the batch is left without an answer."""
        self._usual = len(batch)
        answers = [answer_refusal(FAULT) for _ in batch]
        try:
            close_old_connections()
            answers = accept_deliveries([one.arrival for one in batch])
        except Exception:
            log.exception("A batch of %d deliveries failed; each was answered 500.", len(batch))
        finally:
            _tell(zip((one.answer for one in batch), answers, strict=True))

    def _take(self) -> list[Waiting]:
        """What waits, at least one; nothing when the thread is to end."""
        batch: list[Waiting] = []
        while len(batch) < BATCH:
            try:
                one = self._waiting.get(block=not batch)
            except queue.Empty:
                break
            if one is None:
                if batch:
                    self._waiting.put(None)  # first those that came before
                break
            batch.append(one)
        return batch


writer: Final = Writer()
JUDGES: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="delivery-judge")


def _turned_away(arrival: Arrival) -> Answer | None:
    """The answer to a stranger, which needs nothing of the writer; its row is written when that is free again."""
    try:
        refusal = judge_all([arrival])[0].refusal
    except DatabaseError:
        return None
    finally:
        connections.close_all()
    return answer_refusal(refusal) if refusal is not None and refusal.status in {401, 404} else None


def _tell(told: Iterable[tuple[asyncio.Future[Answer], Answer]]) -> None:
    """Each loop of those that wait is woken once for all of its own."""
    loops: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Answer], Answer]]] = {}
    for future, answer in told:
        loops.setdefault(future.get_loop(), []).append((future, answer))
    for loop, own in loops.items():
        try:
            loop.call_soon_threadsafe(_settle, own)
        except RuntimeError:
            log.info("The loop that waited for %d answers is closed; the deliveries are settled.", len(own))


def _settle(told: Iterable[tuple[asyncio.Future[Answer], Answer]]) -> None:
    for future, answer in told:
        if not future.done():
            future.set_result(answer)
