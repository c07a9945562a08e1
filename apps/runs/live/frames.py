"""The messages that go out on a page's socket, each one JSON object with a `type` (docs/reference/live.md)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from apps.runs.models import RunEvent
    from engine.logs import Line

TEXT_SHOWN = 4_000  # characters of one log line that travel; the whole line is a download away


@dataclass(frozen=True)
class Frame:
    """One message. `mark` is where the topic stands once the page has it: it resumes from there."""

    topic: str
    text: str
    mark: int | None = None


def event(topic: str, row: RunEvent) -> Frame:
    body = {"seq": row.seq, "kind": row.kind, "at": row.at.isoformat(), "ids": row.ids, "data": row.data}
    return _frame(topic, "event", **body)


def fragment(topic: str, name: str, html: str) -> Frame:
    return _frame(topic, "fragment", name=name, html=html)


def caught_up(topic: str, seq: int) -> Frame:
    return Frame(topic, _text("caught_up", topic=topic, seq=seq), mark=seq)


def stale(topic: str, names: Iterable[str]) -> Frame:
    return _frame(topic, "stale", names=sorted(names))


def refused(topic: str, reason: str) -> Frame:
    return _frame(topic, "refused", reason=reason)


def lines(topic: str, first: int, batch: Sequence[Line], count: int) -> Frame:
    body = _text("lines", topic=topic, first=first, lines=[line_json(line) for line in batch], count=count)
    return Frame(topic, body, mark=count)


def log_count(topic: str, count: int) -> Frame:
    """There are `count` lines now; too many are new to send: the page fetches those that it shows."""
    return Frame(topic, _text("count", topic=topic, count=count), mark=count)


def sealed(topic: str, seal: dict[str, object], count: int) -> Frame:
    return _frame(topic, "sealed", seal=seal, count=count)


def ping(at: str) -> Frame:
    return Frame("", _text("ping", at=at))


def line_json(line: Line) -> list[object]:
    """`[stream, ms, flags, text]`, the text decoded with replacement and cut after TEXT_SHOWN characters."""
    text = line.data.decode("utf-8", "replace")
    if len(text) > TEXT_SHOWN:
        return [line.stream, line.ms, line.flags, text[:TEXT_SHOWN], len(line.data)]
    return [line.stream, line.ms, line.flags, text]


def _frame(topic: str, kind: str, **body: object) -> Frame:
    return Frame(topic, _text(kind, topic=topic, **body))


def _text(kind: str, **body: object) -> str:
    return json.dumps({"type": kind, **body}, separators=(",", ":"), ensure_ascii=False)
