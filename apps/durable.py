"""Durable transactions: committed to the disk before they return."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection, transaction


@contextmanager
def durable() -> Iterator[None]:
    """A transaction whose commit survives the loss of power: for deliveries, answers and whatever is acknowledged.

    On SQLite the connection is lifted from `synchronous=NORMAL` to `FULL` around the transaction; a second
    connection would deadlock with its own process's first. PostgreSQL's commits are durable as they are.
    Inside an outer transaction it is a savepoint, and as durable as that outer one.
    """
    lift = connection.vendor == "sqlite" and not connection.in_atomic_block
    if lift:
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA synchronous=FULL")
    try:
        with transaction.atomic():
            yield
    finally:
        if lift:
            with connection.cursor() as cursor:
                cursor.execute("PRAGMA synchronous=NORMAL")
