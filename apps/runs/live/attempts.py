"""The attempt whose log a topic names."""

from __future__ import annotations

from typing import Any

from apps.runs import outputs
from apps.runs.live.topics import LogTopic, TopicRefused
from apps.runs.models import Attempt
from engine.places import AttemptPlaces


def places(topic: LogTopic) -> AttemptPlaces:
    return outputs.of_attempt(_attempt(topic))


def seal(topic: LogTopic) -> dict[str, Any] | None:
    """The log's seal once the attempt has ended; an attempt that ended without one has an empty seal."""
    attempt = _attempt(topic)
    return None if attempt.finished_at is None else attempt.seal or {}


def _attempt(topic: LogTopic) -> Attempt:
    if "\0" in topic.step_id:  # PostgreSQL would refuse the query
        raise TopicRefused
    found = (
        Attempt.objects.select_related("step_run__run__workflow")
        .filter(step_run__run_id=topic.run_id, step_run__step_id=topic.step_id, number=topic.attempt)
        .first()
    )
    if found is None:
        raise TopicRefused
    return found
