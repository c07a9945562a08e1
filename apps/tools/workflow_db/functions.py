"""SQLite's own functions whose work grows faster than their arguments, made anew so that each call is short.

SQLite looks at the clock between its instructions, never inside one: `instr` over two large values would go on for
hours. These do the same in time proportional to their arguments, or ask the clock themselves.
"""

from __future__ import annotations

import math
import re
import sqlite3
import time
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

from apps.tools.workflow_db import matching

WORK = 1 << 32
FEW = 64
SHORT = 1000
SPACE = " "
_PLACE = re.compile(r"%([-+ #!0-9,l.*]*)(.?)", re.DOTALL)
_WIDTH = re.compile(r"\*|[0-9]+")


class Functions:
    """The functions of one connection. SQLite swallows what a function raises: the reason stays in `problem`."""

    def __init__(self, deadline: Callable[[], float], value_limit: int) -> None:
        self._deadline = deadline
        self._limit = value_limit
        self._native: sqlite3.Connection | None = None
        self.problem = ""

    def offer(self, raw: sqlite3.Connection) -> None:
        for name, count, function in (
            ("instr", 2, _instr),
            ("replace", 3, self._replace),
            ("trim", 1, _trim),
            ("trim", 2, _trim),
            ("ltrim", 1, partial(_trim, right=False)),
            ("ltrim", 2, partial(_trim, right=False)),
            ("rtrim", 1, partial(_trim, left=False)),
            ("rtrim", 2, partial(_trim, left=False)),
            ("like", 2, self._like),
            ("like", 3, self._like),
            ("glob", 2, self._glob),
            ("json_patch", 2, partial(self._product, "json_patch")),
            ("jsonb_patch", 2, partial(self._product, "jsonb_patch")),
            ("unhex", 2, partial(self._product, "unhex")),
        ):
            raw.create_function(name, count, self._telling(function), deterministic=True)
        for name in ("printf", "format"):
            raw.create_function(name, -1, self._telling(self._printf, takes_null=True), deterministic=True)

    def close(self) -> None:
        if self._native is not None:
            self._native.close()

    def _telling(self, function: Callable[..., Any], *, takes_null: bool = False) -> Callable[..., Any]:
        def call(*values: Any) -> Any:
            if None in values and not takes_null:
                return None
            try:
                if time.monotonic() > self._deadline():
                    raise TimeoutError
                return function(*values)
            except (ValueError, sqlite3.Error) as error:
                self.problem = str(error)
                raise

        return call

    def _replace(self, given: Any, old: Any, new: Any) -> Any:
        text, part, by = as_text(given), as_text(old), as_text(new)
        if not part:
            return text if isinstance(given, bytes) else given
        grown = text.count(part) * (len(by) - len(part))
        if len(text) + grown > self._limit:
            raise ValueError("string or blob too big")
        return text.replace(part, by)

    def _like(self, pattern: Any, given: Any, escape: Any = "") -> bool:
        if isinstance(pattern, bytes) or isinstance(given, bytes):
            return False
        mark = as_text(escape)
        return matching.like(as_text(pattern), mark).fits(matching.folded(as_text(given)), self._deadline())

    def _glob(self, pattern: Any, given: Any) -> bool:
        if isinstance(pattern, bytes) or isinstance(given, bytes):
            return False
        return matching.glob(as_text(pattern)).fits(as_text(given), self._deadline())

    def _product(self, name: str, one: Any, other: Any) -> Any:
        """SQLite's own walks the one value for each part of the other: the product is bounded."""
        if len(as_text(one)) * len(as_text(other)) > WORK:
            raise ValueError(f"{name}: the two values are too large for each other")
        return self._of_sqlite(f"{name}(?, ?)", one, other)

    def _printf(self, form: Any = None, *values: Any) -> Any:
        """SQLite's own counts each width and precision down, also behind the end of the longest value there is."""
        if form is None:
            return None
        text = as_text(form)
        fixed, starred = _short_widths(text) if len(text) < SHORT else _widths(text)
        for place in starred:
            given = values[place] if place < len(values) else 0
            fixed += abs(self._of_sqlite("CAST(? AS INTEGER)", given) or 0)
        if fixed > self._limit:
            raise ValueError("printf: the widths and precisions are too large")
        return self._of_sqlite(f"printf(?{', ?' * len(values)})", form, *values)

    def _of_sqlite(self, expression: str, *values: Any) -> Any:
        """What a connection of its own gives, whose functions are all SQLite's."""
        if self._native is None:
            self._native = sqlite3.connect(":memory:", check_same_thread=False)
            self._native.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, self._limit)
        return self._native.execute(f"SELECT {expression}", values).fetchone()[0]


def as_text(value: Any) -> str:
    """A value as SQLite makes a text of it."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, float):
        return _number(value)
    return str(value)


def _number(value: float) -> str:
    if math.isinf(value):
        return "Inf" if value > 0 else "-Inf"
    digits, mark, exponent = f"{value:.15g}".partition("e")
    return (digits if "." in digits else f"{digits}.0") + mark + exponent


def _instr(given: Any, part: Any) -> int:
    if isinstance(given, bytes) and isinstance(part, bytes):
        return given.find(part) + 1
    return as_text(given).find(as_text(part)) + 1


def _trim(given: Any, characters: Any = SPACE, *, left: bool = True, right: bool = True) -> str:
    text, away = as_text(given), frozenset(as_text(characters))
    if len(away) <= FEW:  # Python tries them one after the other
        few = "".join(away)
        text = text.lstrip(few) if left and few else text
        return text.rstrip(few) if right and few else text
    start, end = 0, len(text)
    while left and start < end and text[start] in away:
        start += 1
    while right and start < end and text[end - 1] in away:
        end -= 1
    return text[start:end]


def _widths(form: str) -> tuple[int, list[int]]:
    """The sum of all widths and precisions in a format, and the places of the values that hold others (`*`)."""
    fixed, starred, place = 0, [], 0
    for found in _PLACE.finditer(form):
        for width in _WIDTH.findall(found[1]):
            if width == "*":
                starred.append(place)
                place += 1
            else:
                fixed += int(width)
        place += found[2] not in ("%", "n", "")
    return fixed, starred


_short_widths = lru_cache(maxsize=256)(_widths)
