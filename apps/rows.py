"""Rows written without building a query, for what happens at every attempt: the text of a statement is made once.

Values go through the fields, as Django's own writing does; the statements take part in the caller's transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, TypeVar

from django.db import connection, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import AutoField, CharField, Field, Model, QuerySet, TextField

Row = TypeVar("Row", bound=Model)


def insert(rows: Sequence[Model]) -> None:
    """Inserts rows of one model that are not there yet. They are not told their ids, when the database makes those."""
    if not rows:
        return
    model = type(rows[0])
    real = transaction.get_connection()  # asking a proxy for each attribute costs more than the values do
    values = [value for row in rows for value in _values(row, real)]
    with real.cursor() as cursor:
        cursor.execute(_insertion(model, len(rows)), values)
    for row in rows:
        row._state.adding, row._state.db = False, real.alias  # noqa: SLF001 - as Django's own saving does


def newest(streams: Iterable[QuerySet[Row]], count: int, order: Callable[[Row], Any]) -> list[Row]:
    """The first `count` of several querysets, each sorted by `order`, newest first.

    The newest rows of one team stand together in an index, those of several do not: sorting them would read them all.
    """
    found = [row for rows in streams for row in rows[:count]]
    return sorted(found, key=order, reverse=True)[:count]


def update(model: type[Model], changes: Mapping[str, Any], where: str, values: Iterable[Any]) -> int:
    """Changes the rows that `where` finds, a constant text with a %s for each of `values`; how many there were."""
    real = transaction.get_connection()
    given = [
        _prepared(field, value, real)
        for field, value in zip(_named(model, tuple(changes)), changes.values(), strict=True)
    ]
    with real.cursor() as cursor:
        cursor.execute(_change(model, tuple(changes), where), [*given, *values])
        return int(cursor.rowcount)


def key(value: Any) -> Any:
    """A UUID as the database keeps it: SQLite without its dashes."""
    return value if connection.features.has_native_uuid_field else value.hex


def _values(row: Model, real: BaseDatabaseWrapper) -> list[Any]:
    fields, timed, read = _reading(type(row))
    for field in timed:
        setattr(row, field.attname, field.pre_save(row, add=True))
    pairs = zip(fields, read(row), strict=True)
    return [value if value is None else _prepared(field, value, real) for field, value in pairs]


@lru_cache
def _reading(model: type[Model]) -> tuple[Sequence[Field[Any, Any]], Sequence[Field[Any, Any]], Callable[[Model], Any]]:
    """The columns, those that set themselves to the moment of adding, and what reads a row's values all at once."""
    fields = _columns(model)
    timed = [field for field in fields if getattr(field, "auto_now", False) or getattr(field, "auto_now_add", False)]
    return fields, timed, attrgetter(*(field.attname for field in fields))


def _prepared(field: Field[Any, Any], value: Any, real: BaseDatabaseWrapper) -> Any:
    if value is None or (type(value) is str and type(field) in {CharField, TextField}):
        return value  # what the field would come to as well, after some calls
    return field.get_db_prep_save(value, real)


@lru_cache
def _columns(model: type[Model]) -> tuple[Field[Any, Any], ...]:
    return tuple(field for field in model._meta.concrete_fields if not isinstance(field, AutoField))  # noqa: SLF001


@lru_cache
def _named(model: type[Model], names: tuple[str, ...]) -> tuple[Field[Any, Any], ...]:
    return tuple(model._meta.get_field(name) for name in names)  # type: ignore[misc]  # noqa: SLF001


@lru_cache
def _insertion(model: type[Model], count: int) -> str:
    quoted = ", ".join(map(_quoted, _columns(model)))
    places = ", ".join([f"({', '.join(['%s'] * len(_columns(model)))})"] * count)
    return f"INSERT INTO {connection.ops.quote_name(model._meta.db_table)} ({quoted}) VALUES {places}"  # noqa: S608, SLF001


@lru_cache(maxsize=512)
def _change(model: type[Model], names: tuple[str, ...], where: str) -> str:
    changes = ", ".join(f"{_quoted(field)} = %s" for field in _named(model, names))
    return f"UPDATE {connection.ops.quote_name(model._meta.db_table)} SET {changes} WHERE {where}"  # noqa: S608, SLF001


def _quoted(field: Field[Any, Any]) -> str:
    return connection.ops.quote_name(str(field.column))
