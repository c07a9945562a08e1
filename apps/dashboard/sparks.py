"""Small bar charts, as numbers that a template draws as SVG."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

WIDTH = 240.0
HEIGHT = 40.0


@dataclass(frozen=True)
class SparkBar:
    """One slot of time: the whole bar, and the part of it that went wrong, from the foot."""

    x: float
    width: float
    y: float
    height: float
    bad_y: float
    bad_height: float


@dataclass(frozen=True)
class Spark:
    bars: tuple[SparkBar, ...]
    total: int
    bad: int
    most: int


def spark(rows: Iterable[tuple[datetime, int, int]], *, end: datetime, step: timedelta, bars: int) -> Spark:
    """`bars` slots of `step` up to the one that begins at `end`, from rows of (slot, all, wrong). Empty: gaps."""
    found = {slot: (count, bad) for slot, count, bad in rows}
    slots = [found.get(end - step * back, (0, 0)) for back in range(bars - 1, -1, -1)]
    most = max(count for count, _ in slots)
    room = WIDTH / bars
    drawn = tuple(_bar(place * room, room, count, bad, most) for place, (count, bad) in enumerate(slots) if count)
    return Spark(drawn, sum(count for count, _ in slots), sum(bad for _, bad in slots), most)


def _bar(x: float, room: float, count: int, bad: int, most: int) -> SparkBar:
    height = max(HEIGHT * count / most, 2.0)
    bad_height = max(HEIGHT * bad / most, 2.0) if bad else 0.0
    gap = min(1.5, room / 4)
    return SparkBar(
        round(x + gap / 2, 2), round(room - gap, 2), round(HEIGHT - height, 2), round(height, 2),
        round(HEIGHT - bad_height, 2), round(bad_height, 2),
    )  # fmt: skip
