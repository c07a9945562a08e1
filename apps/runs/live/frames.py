"""The messages that go out on a page's socket, each one JSON object with a `type` (docs/reference/live.md)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from apps.runs.models import RunEvent
from engine.json_values import readable
from engine.logs import Flag, Line, LogReader

TOPIC_SHOWN = 200  # of a name that is no topic, which may be anything
TEXT_SHOWN = 4_000  # characters of one log line that travel; the whole line is a download away


@dataclass(frozen=True)
class Frame:
    """One message. `mark` is where the topic stands once the page has it: it resumes from there.

    `seq` is the number of the one event it carries: a page that has it already is not sent it again. A `lasting`
    frame is kept for a slow page, whatever else is dropped.
    """

    topic: str
    text: str
    mark: int | None = None
    seq: int | None = None
    lasting: bool = False


@dataclass(frozen=True)
class Piece:
    """Frames that bring a page to `mark`. When it is not the `last` one, more is there already."""

    frames: list[Frame]
    mark: int
    last: bool = True


def event(topic: str, row: RunEvent) -> Frame:
    body = {"seq": row.seq, "kind": row.kind, "at": row.at.isoformat(), "ids": row.ids, "data": row.data}
    return Frame(topic, _text("event", topic=topic, **body), seq=row.seq)


def fragment(topic: str, name: str, html: str) -> Frame:
    return _frame(topic, "fragment", name=name, html=html)


def caught_up(topic: str, seq: int, *, more: bool = False) -> Frame:
    return Frame(topic, _text("caught_up", topic=topic, seq=seq, more=more), mark=seq)


def stale(topic: str, names: Iterable[str]) -> Frame:
    return _frame(topic, "stale", names=sorted(names))


def refused(topic: str, reason: str) -> Frame:
    topic = readable(topic[:TOPIC_SHOWN])
    return Frame(topic, _text("refused", topic=topic, reason=reason), lasting=True)


def lines(topic: str, first: int, reader: LogReader, count: int) -> Frame:
    """The rows from `first` up to `count`."""
    return Frame(topic, _text("lines", topic=topic, **log_json(reader, first, count - first, count)), mark=count)


def log_count(topic: str, reader: LogReader, count: int) -> Frame:
    """There are `count` rows now; too many are new to send: the page fetches those that it shows."""
    return Frame(topic, _text("count", topic=topic, count=count, gap=_gap(reader)), mark=count)


def sealed(topic: str, seal: dict[str, object], count: int) -> Frame:
    return _frame(topic, "sealed", seal=seal, count=count)


def ping(at: str) -> Frame:
    return Frame("", _text("ping", at=at))


def log_json(reader: LogReader, first: int, wanted: int, count: int) -> dict[str, object]:
    """`{first, lines, count, gap}`: row `first + i` at place i of `lines`, null where it was cut away.

    `gap` is `[first, end]`: the rows that were cut, the first of which stands for all of them, or null.
    """
    rows = {line.n: line_json(line) for line in reader.lines(first, wanted, longest=4 * TEXT_SHOWN)}
    numbers = range(first, max(min(first + wanted, count), first))
    return {"first": first, "lines": [rows.get(number) for number in numbers], "count": count, "gap": _gap(reader)}


def line_json(line: Line) -> list[object]:
    """`[stream, ms, flags, text]`, and behind it `true` when the text is cut: decoded with replacement."""
    text = line.text
    if len(text) > TEXT_SHOWN or line.flags & Flag.SHORT:
        return [line.stream, line.ms, line.flags, text[:TEXT_SHOWN], True]
    return [line.stream, line.ms, line.flags, text]


def _gap(reader: LogReader) -> list[int] | None:
    gap = reader.gap()
    return None if gap is None else [gap.first, gap.end]


def _frame(topic: str, type_: str, /, **body: object) -> Frame:
    return Frame(topic, _text(type_, topic=topic, **body))


def _text(type_: str, /, **body: object) -> str:
    return json.dumps({"type": type_, **body}, separators=(",", ":"), ensure_ascii=False)
