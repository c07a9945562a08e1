"""One row of the table, and how rows are told."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """`floor` and `ours` are in `unit`; `aim` is what `ratio`, ours to floor, should be, and `met` whether it is."""

    name: str
    unit: str
    floor: float
    ours: float
    aim: str
    met: Callable[[Row], bool]
    note: str = ""

    @property
    def ratio(self) -> float:
        return self.ours / self.floor if self.floor else float("nan")


HEAD = ("what", "floor", "ours", "ratio", "aim", "met")


def table(rows: Sequence[Row]) -> str:
    lines = [HEAD, *map(_cells, rows)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(HEAD))]
    told = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    told.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join([*told, "", *_notes(rows)])


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.name,
        f"{_short(row.floor)} {row.unit}",
        f"{_short(row.ours)} {row.unit}",
        f"{row.ratio:.2f} x",
        row.aim,
        "yes" if row.met(row) else "no",
    )


def _short(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.3f}"


def _notes(rows: Sequence[Row]) -> Iterator[str]:
    for row in rows:
        if row.note:
            yield f"{row.name}: {row.note}"
