"""Reads what was committed and publishes it: one thread a web process, asleep while nobody watches."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Iterable
from contextlib import closing

from django.db import DatabaseError, InterfaceError, connection

from apps.runs import fragments
from apps.runs.kinds import Kind
from apps.runs.live import frames, silences, source, watermarks
from apps.runs.live.frames import Piece
from apps.runs.live.hub import HUB, Hub
from apps.runs.live.topics import RunTopic, TeamTopic
from apps.runs.models import Run, RunEvent

logger = logging.getLogger(__name__)
BATCH = 500  # events read at once; a run with more new ones takes several rounds
TEAM_EVERY_S = 0.5  # a team's pages are told at most this often that they are stale
AFTER_FAULT_S = 1.0


class Tailer(threading.Thread):
    def __init__(self, hub: Hub) -> None:
        super().__init__(name="live-tailer", daemon=True)
        self._hub = hub
        self._teams = watermarks.Teams(every_s=TEAM_EVERY_S)
        self._silences = silences.Silences()
        self._faulty: set[uuid.UUID] = set()

    def run(self) -> None:
        while True:
            self._hub.wait_until_watched((RunTopic, TeamTopic))
            try:
                try:
                    with closing(source.make()) as watch:
                        self._follow(watch)
                finally:
                    connection.close()  # nobody watches: none is held; after a fault: a new one
            except (DatabaseError, InterfaceError):
                # The database went away, or was restarted: look again, at everything, once it is back.
                logger.warning("The live tailer lost its database and tries again.", exc_info=True)
                time.sleep(AFTER_FAULT_S)
            except Exception:
                logger.exception("The live tailer met a fault of its own and goes on.")
                time.sleep(AFTER_FAULT_S)

    def _follow(self, watch: source.Source) -> None:
        """Until nobody watches. What was committed before the source began to look is found by looking at all."""
        news: source.News | None = None
        while topics := self._topics():
            for topic, mark in topics.items():
                if isinstance(topic, RunTopic) and (news is None or topic.run_id in news.runs | self._faulty):
                    self._publish(topic, mark)
            self._tell_silences(topics)
            slugs = {topic.slug for topic in topics if isinstance(topic, TeamTopic)}
            for slug, names in self._teams.stale(slugs, news):
                topic = TeamTopic(slug)
                self._hub.publish(topic, [frames.stale(str(topic), names)])
            news = watch.wait(min(self._teams.next_look(), silences.EVERY_S))

    def _tell_silences(self, topics: Iterable[RunTopic | TeamTopic]) -> None:
        told = self._silences.news()
        for topic in topics:
            if isinstance(topic, RunTopic) and topic.run_id in told:
                self._hub.publish(topic, fragment_frames(topic, [Kind.RUN_STARTED]))
            elif isinstance(topic, TeamTopic) and topic.slug in told.values():
                self._hub.publish(topic, [frames.stale(str(topic), watermarks.EVERYTHING)])

    def _publish(self, topic: RunTopic, mark: int) -> None:
        """One run whose events cannot be shown keeps no other's page from its news; it is tried again with the next."""
        self._faulty.discard(topic.run_id)
        try:
            publish_run(self._hub, topic, mark)
        except (DatabaseError, InterfaceError):
            raise
        except Exception:
            logger.exception("The events of %s could not be published; they are tried again.", topic)
            self._faulty.add(topic.run_id)

    def _topics(self) -> dict[RunTopic | TeamTopic, int]:
        watched = self._hub.watched().items()
        return {topic: mark for topic, mark in watched if isinstance(topic, RunTopic | TeamTopic)}


def publish_run(hub: Hub, topic: RunTopic, mark: int) -> None:
    """Publishes a run's events after `mark` and the fragments they made stale, rendered once for all viewers."""
    while piece := piece_after(topic, mark):
        mark = piece.mark
        hub.publish(topic, piece.frames, mark)


def piece_after(topic: RunTopic, mark: int) -> Piece | None:
    """The next events of a run after `mark`, with the fragments they made stale; None when there are none."""
    name = str(topic)
    rows = list(RunEvent.objects.filter(run_id=topic.run_id, seq__gt=mark).order_by("seq")[:BATCH])
    if not rows:
        return None
    events = [frames.event(name, row) for row in rows]
    stale = fragment_frames(topic, [row.kind for row in rows])
    mark, last = rows[-1].seq, len(rows) < BATCH
    return Piece([*events, *stale, frames.caught_up(name, mark, more=not last)], mark, last)


def fragment_frames(topic: RunTopic, kinds: Iterable[str]) -> list[frames.Frame]:
    """Every fragment that events of these kinds made stale; of those only the page can ask for, that they are."""
    names = fragments.stale_after(kinds)
    run = Run.objects.select_related("workflow", "team", "owner", "lease_worker").filter(pk=topic.run_id).first()
    if run is None or not names:
        return []
    rendered = fragments.render_all(names, run)
    batch = [frames.fragment(str(topic), name, html) for name, html in rendered.items()]
    left = [name for name in names if name not in rendered]
    return [*batch, frames.stale(str(topic), left)] if left else batch


_started = threading.Lock()
_tailer: Tailer | None = None


def ensure_started() -> None:
    """Starts this process's tailer with the first page that watches something."""
    global _tailer  # noqa: PLW0603 - one thread a process, by design
    with _started:
        if _tailer is None or not _tailer.is_alive():
            _tailer = Tailer(HUB)
            _tailer.start()
