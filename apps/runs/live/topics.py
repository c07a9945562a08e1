"""What a page can watch: a run (replayed exactly), a team (what is stale), a log (its lines)."""

from __future__ import annotations

import uuid
from dataclasses import dataclass


class TopicRefused(Exception):
    """There is no such topic for this user. Nothing was subscribed; reload the page to see what there is."""


@dataclass(frozen=True)
class RunTopic:
    run_id: uuid.UUID

    def __str__(self) -> str:
        return f"run:{self.run_id}"


@dataclass(frozen=True)
class TeamTopic:
    slug: str

    def __str__(self) -> str:
        return f"team:{self.slug}"


@dataclass(frozen=True)
class LogTopic:
    run_id: uuid.UUID
    step_id: str
    attempt: int

    def __str__(self) -> str:
        return f"log:{self.run_id}/{self.step_id}/{self.attempt}"


Topic = RunTopic | TeamTopic | LogTopic


def parse(text: str) -> Topic:
    """The topic that a page named, e.g. `run:<uuid>`. Raises TopicRefused for anything else."""
    try:
        topic = _read(text)
    except ValueError:
        topic = None
    if topic is None or str(topic) != text or not text.isprintable() or not text.isascii():  # one topic has one name
        raise TopicRefused
    return topic


def _read(text: str) -> Topic | None:
    kind, _, key = text.partition(":")
    if kind == "run":
        return RunTopic(uuid.UUID(key))
    if kind == "team" and key:
        return TeamTopic(key)
    if kind == "log":
        run, step, number = key.split("/")
        return LogTopic(uuid.UUID(run), step, int(number))
    return None
