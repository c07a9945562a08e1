"""The little that is read out of SQL text here; what a statement may do is decided by `guard`, not by its text."""

from __future__ import annotations

import re
import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence

from apps.tools.errors import Code, MigrationRefused, ToolFailure

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


MOST_COPIES = 5000
DEEPEST = 200
_TOKEN = re.compile(
    r"""(?P<skip>'(?:[^']|'')*'|--[^\n]*|/\*.*?(?:\*/|\Z))"""
    r"""|"(?P<double>(?:[^"]|"")*)"|\[(?P<square>[^\]]*)\]|`(?P<back>(?:[^`]|``)*)`|(?P<word>[^\W\d][\w$]*)|(?P<paren>[()])""",
    re.DOTALL,
)
_WITH = re.compile(r"\bWITH\b", re.IGNORECASE)


def check_copies(sql: str) -> None:
    """Raises ToolFailure for tables of WITH that name each other so often that SQLite would not end compiling them.

    It copies such a table at each place that names it, and what that one names in turn, and looks at no clock then.
    """
    if _WITH.search(sql) is None:
        return
    pieces = [
        next(filter(None, (found["double"], found["square"], found["back"], found["word"], found["paren"])), "").lower()
        for found in _TOKEN.finditer(sql)
        if not found["skip"]
    ]
    bodies = _bodies(pieces)
    copies: dict[str, int] = {}
    if any(_copies(name, bodies, copies, frozenset()) > MOST_COPIES for name in bodies):
        raise ToolFailure(
            Code.LIMIT_EXCEEDED,
            f"The tables of WITH would be copied more than {MOST_COPIES} times. Nothing was done.",
            "Name each of them fewer times within the others.",
        )


def _bodies(pieces: Sequence[str]) -> Mapping[str, list[str]]:
    """What stands in the parentheses after each `name AS`, or `name (...) AS`."""
    closes: dict[int, int] = {}
    opened: list[int] = []
    for place, piece in enumerate(pieces):
        if piece == "(":
            opened.append(place)
        elif piece == ")" and opened:
            closes[opened.pop()] = place
    opens = {end: start for start, end in closes.items()}
    bodies: dict[str, list[str]] = defaultdict(list)
    for place, piece in enumerate(pieces):
        if piece != "as" or place == 0:
            continue
        start = place + 1
        while pieces[start : start + 1] in (["not"], ["materialized"]):
            start += 1
        if start in closes:
            named = opens.get(place - 1, place) - 1
            bodies[pieces[named]].extend(pieces[start + 1 : closes[start]])
    return bodies


def _copies(name: str, bodies: Mapping[str, list[str]], known: dict[str, int], within: frozenset[str]) -> int:
    if name in within or len(within) > DEEPEST:
        return 1
    if name not in known:
        inner = within | {name}
        known[name] = 1 + sum(_copies(each, bodies, known, inner) for each in bodies[name] if each in bodies)
    return known[name]
