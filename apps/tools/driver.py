"""Single statements through the driver itself, for what happens at every call and every attempt.

Django's query building would cost more than all the rest of a tool call. They take part in the caller's transaction,
and their errors are Django's. Values come back as the database keeps them: `as_uuid` reads ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any
from uuid import UUID

from django.db import connection


def one(sql: str, values: Sequence[Any]) -> tuple[Any, ...] | None:
    """The first row, or None. `sql` has a %s for each value."""
    row: tuple[Any, ...] | None = _execute(sql, values).fetchone()
    return row


def every(sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = _execute(sql, values).fetchall()
    return rows


def changed(sql: str, values: Sequence[Any]) -> int:
    """How many rows the statement wrote."""
    return int(_execute(sql, values).rowcount)


@lru_cache(maxsize=8192)
def _uuid(text: str) -> UUID:
    return UUID(text)


def as_uuid(value: Any) -> UUID:
    """SQLite keeps 32 hexadecimal digits, PostgreSQL gives a UUID."""
    return value if isinstance(value, UUID) else _uuid(value)


def as_optional_uuid(value: Any) -> UUID | None:
    return None if value is None else as_uuid(value)


def _execute(sql: str, values: Sequence[Any]) -> Any:
    connection.ensure_connection()
    with connection.wrap_database_errors:
        if connection.vendor == "sqlite":
            return connection.connection.execute(_question_marks(sql), [_for_sqlite(value) for value in values])
        return connection.connection.execute(sql, values)


@lru_cache(maxsize=64)
def _question_marks(sql: str) -> str:
    return sql.replace("%s", "?")


def _for_sqlite(value: Any) -> Any:
    if isinstance(value, UUID):
        return value.hex
    if isinstance(value, datetime):
        return connection.ops.adapt_datetimefield_value(value)
    return value
