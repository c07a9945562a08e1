"""Why nothing can be stored, when the disk is full or worse: no fault of ours, and told to whoever asked for it."""

from __future__ import annotations

import errno
import sqlite3

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


def why_not(wrong: BaseException | None) -> str:
    """In a few words; empty when neither this exception nor what it came from is about that."""
    while wrong is not None:
        if why := _said(wrong):
            return why
        wrong = wrong.__cause__
    return ""


def _said(wrong: BaseException) -> str:
    if isinstance(wrong, sqlite3.Error):
        return _SQLITE.get(getattr(wrong, "sqlite_errorcode", 0) & 0xFF, "")  # the rest of the number is a detail
    if isinstance(wrong, OSError):
        return _SYSTEM.get(wrong.errno or 0, "")
    return _POSTGRESQL.get(getattr(wrong, "sqlstate", None) or "", "")
