"""What a page lacks since the mark it names, and whether it may have it. Runs in reader threads."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.contrib.auth import HASH_SESSION_KEY, SESSION_KEY, get_user_model
from django.db import close_old_connections
from django.http import Http404
from django.utils.crypto import constant_time_compare

from apps.accounts.access import team_for
from apps.runs import access
from apps.runs.live import frames, logs, tailer, watermarks
from apps.runs.live.frames import Piece
from apps.runs.live.topics import LogTopic, TeamTopic, Topic, TopicRefused

if TYPE_CHECKING:
    from apps.accounts.models import User


def admit(user: User, topic: Topic) -> int:
    """How far the topic is now. Raises TopicRefused, the same whether it does not exist or is not for this user."""
    close_old_connections()
    try:
        if isinstance(topic, TeamTopic):
            team_for(user, topic.slug)
            return 0
        run = access.run_for(user, topic.run_id)
    except Http404:
        raise TopicRefused from None
    return logs.count(topic) if isinstance(topic, LogTopic) else run.last_seq


def still_signed_in(session: Any, user: User) -> bool:
    """Whether the session that opened the socket lives, is this user's, and was not ended by a new password."""
    close_old_connections()
    # What the socket brought was read when it was opened.
    now = import_module(settings.SESSION_ENGINE).SessionStore(session.session_key)
    person = get_user_model().objects.filter(pk=user.pk, is_active=True).first()
    if person is None or now.get(SESSION_KEY) != str(user.pk):
        return False
    known = now.get(HASH_SESSION_KEY, "")
    hashes = [person.get_session_auth_hash(), *person.get_session_auth_fallback_hash()]
    return any(constant_time_compare(known, one) for one in hashes)


def since(topic: Topic, after: int) -> Piece:
    """The frames that bring a page from `after` nearer to now; all of the way when the piece is the last."""
    close_old_connections()
    if isinstance(topic, LogTopic):
        return logs.since(topic, after)
    if isinstance(topic, TeamTopic):
        # A team is not replayed: whoever joins fetches everything once.
        return Piece([frames.stale(str(topic), watermarks.EVERYTHING), frames.caught_up(str(topic), 0)], 0)
    return tailer.piece_after(topic, after) or Piece([frames.caught_up(str(topic), after)], after)
