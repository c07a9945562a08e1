"""What a page lacks since the mark it names, and whether it may have it. Runs in reader threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib.auth import get_user_model
from django.db import close_old_connections
from django.http import Http404

from apps.accounts.access import team_for
from apps.runs import access
from apps.runs.live import frames, logs, tailer, watermarks
from apps.runs.live.topics import LogTopic, RunTopic, TeamTopic, Topic, TopicRefused

if TYPE_CHECKING:
    from apps.accounts.models import User


def check(user: User, topic: Topic) -> None:
    """Raises TopicRefused, the same whether it does not exist or is not for this user."""
    close_old_connections()
    try:
        if isinstance(topic, TeamTopic):
            team_for(user, topic.slug)
        else:
            access.run_for(user, topic.run_id)
    except Http404:
        raise TopicRefused from None


def still_signed_in(session: Any, user: User) -> bool:
    """Whether the session that opened the socket still exists, is this user's, and the user is still active."""
    close_old_connections()
    if not session.exists(session.session_key):
        return False
    return bool(get_user_model().objects.filter(pk=user.pk, is_active=True).exists())


def since(topic: Topic, after: int) -> tuple[list[frames.Frame], int]:
    """The frames that bring a page from `after` to now, and the mark that it then has."""
    close_old_connections()
    if isinstance(topic, RunTopic):
        return _run_since(topic, after)
    if isinstance(topic, LogTopic):
        return logs.since(topic, after)
    # A team is not replayed: whoever joins fetches everything once.
    return [frames.stale(str(topic), watermarks.EVERYTHING), frames.caught_up(str(topic), 0)], 0


def _run_since(topic: RunTopic, after: int) -> tuple[list[frames.Frame], int]:
    batch: list[frames.Frame] = []
    kinds: set[str] = set()
    mark = after
    while rows := tailer.events_after(topic.run_id, mark):
        batch += [frames.event(str(topic), row) for row in rows]
        kinds |= {row.kind for row in rows}
        mark = rows[-1].seq
    if kinds:
        batch += tailer.fragment_frames(topic, kinds)
    return [*batch, frames.caught_up(str(topic), mark)], mark
