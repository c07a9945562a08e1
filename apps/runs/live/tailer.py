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
from apps.runs.live import frames, source, watermarks
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

    def run(self) -> None:
        while True:
            self._hub.wait_until_watched((RunTopic, TeamTopic))
            try:
                self._follow()
            except (DatabaseError, InterfaceError):
                # The database went away, or was restarted: look again, at everything, once it is back.
                logger.warning("The live tailer lost its database and tries again.", exc_info=True)
                connection.close()
                time.sleep(AFTER_FAULT_S)
            except Exception:
                logger.exception("The live tailer met a fault of its own and goes on.")
                time.sleep(AFTER_FAULT_S)

    def _follow(self) -> None:
        with closing(source.make()) as watch:
            self._follow_with(watch)
        connection.close()  # nobody watches: no connection is held

    def _follow_with(self, watch: source.Source) -> None:
        everything = True
        while watched := self._hub.watched():
            news = watch.wait(self._teams.next_look())
            fresh = self._hub.take_fresh()
            for topic, mark in watched.items() if everything else self._hub.watched().items():
                if isinstance(topic, RunTopic) and (everything or topic.run_id in news.runs or topic in fresh):
                    publish_run(self._hub, topic, mark)
            everything = False
            slugs = {topic.slug for topic in self._hub.watched() if isinstance(topic, TeamTopic)}
            for slug, names in self._teams.stale(slugs, news):
                topic = TeamTopic(slug)
                self._hub.publish(topic, [frames.stale(str(topic), names)])


def publish_run(hub: Hub, topic: RunTopic, mark: int) -> None:
    """Publishes a run's events after `mark`, then each fragment they made stale, rendered once for all viewers."""
    while rows := events_after(topic.run_id, mark):
        batch = [frames.event(str(topic), row) for row in rows]
        mark = rows[-1].seq
        if len(rows) < BATCH:
            batch += fragment_frames(topic, [row.kind for row in rows])
        hub.publish(topic, [*batch, frames.caught_up(str(topic), mark)], mark)


def events_after(run_id: uuid.UUID, seq: int) -> list[RunEvent]:
    return list(RunEvent.objects.filter(run_id=run_id, seq__gt=seq).order_by("seq")[:BATCH])


def fragment_frames(topic: RunTopic, kinds: Iterable[str]) -> list[frames.Frame]:
    """Every fragment that events of these kinds made stale; of those only the page can ask for, that they are."""
    names = fragments.stale_after(kinds)
    run = Run.objects.select_related("workflow", "team", "owner").filter(pk=topic.run_id).first()
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
