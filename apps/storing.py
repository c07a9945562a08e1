"""Why nothing can be stored, when the disk is full or worse: no fault of ours, and told to whoever asked for it."""

from __future__ import annotations

import errno
import sqlite3

from django.db import Error as DatabaseError

_FULL = "the disk of the server is full"
_SYSTEM = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: "the disk quota of the server is used up",
    errno.EROFS: "the disk of the server is read-only",
    errno.EIO: "the disk of the server fails",
}
_SQLITE = {
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_IOERR: "the disk of the server is full or fails",
    sqlite3.SQLITE_READONLY: "the database can only be read",
}
_POSTGRESQL = {"53100": "the disk of the database is full", "25006": "the database can only be read"}


def why_not(wrong: BaseException) -> str:
    """In a few words; empty when this exception is about something else."""
    if isinstance(wrong, DatabaseError):
        told = wrong.__cause__
        code = getattr(told, "sqlite_errorcode", 0) & 0xFF  # the rest of the number is a detail
        return _SQLITE.get(code) or _POSTGRESQL.get(getattr(told, "sqlstate", None) or "", "")
    return _SYSTEM.get(wrong.errno or 0, "") if isinstance(wrong, OSError) else ""
