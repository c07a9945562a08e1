"""The little that is read out of SQL text here; what a statement may do is decided by `guard`, not by its text."""

from __future__ import annotations

import re
import sqlite3

from apps.tools.errors import MigrationRefused

_SPACE = re.compile(r"(?:\s+|--[^\n]*(?:\n|\Z)|/\*.*?(?:\*/|\Z))+", re.DOTALL)
_WORD = re.compile(r"[A-Za-z]+")


def first_word(sql: str) -> str:
    """The first keyword, in capitals; empty when there is none."""
    word = _WORD.match(without_lead(sql))
    return word[0].upper() if word else ""


def without_lead(sql: str) -> str:
    """The text from its first word on: no spaces and comments before it."""
    space = _SPACE.match(sql)
    return sql[space.end() :] if space else sql


def statements_of(script: str, *, name: str = "the script") -> list[str]:
    """The statements of a script, comments and all; SQLite itself says where each one ends."""
    statements: list[str] = []
    pending = ""
    for piece in _PIECE.findall(script):
        pending += piece
        if piece.endswith(";") and sqlite3.complete_statement(pending):
            if first_word(pending):
                statements.append(pending.strip())
            pending = ""
    if first_word(pending):
        if not sqlite3.complete_statement(pending + ";"):
            raise MigrationRefused(f"{name}: the last statement is not complete. Nothing was applied.")
        statements.append(pending.strip())
    return statements


_PIECE = re.compile(r"[^;]*;|[^;]+")
