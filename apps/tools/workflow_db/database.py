"""Connections to one workflow's database, each for one thread: bounded, guarded, closed by who opened it."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote
from uuid import UUID

from apps.tools.errors import Code, ToolFailure
from apps.tools.workflow_db import hints, reserved, watch
from apps.tools.workflow_db.functions import Functions
from apps.tools.workflow_db.guard import READ_PRAGMAS, Guard, Mode
from apps.tools.workflow_db.regexp import Regexp
from apps.tools.workflow_db.watch import Running

TIME_LIMIT_S = 10.0
BUSY_S = 5.0
FENCE_PATIENCE_S = 60.0
FENCE_TRY_MS = 200
FIRST_FENCE = 1
VALUE_LIMIT = 4 * 1024 * 1024
MAX_PAGES = 1024 * 1024  # of 4 KiB
PROGRESS_OPS = 20_000
KEPT_OPEN = 8
HEAP = {"soft": 512 * 1024 * 1024, "hard": 1024 * 1024 * 1024}
"""Memory of all that SQLite does in a process: beyond `soft` caches shrink, beyond `hard` a statement fails."""
LIMITS = {
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_LENGTH: VALUE_LIMIT,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 1024 * 1024,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 200,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 200,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 1000,
    sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER: 32_766,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 20,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}

MB = 1024 * 1024
WRITTEN = {Mode.READ: 256 * MB, Mode.WRITE: 1024 * MB, Mode.MIGRATE: 16 * 1024 * MB}
"""Bytes that one call may write: of a query its temporary files, which lie in SQLITE_TMPDIR, else the log as well."""
INSTRUCTIONS = {Mode.READ: 25_000, Mode.WRITE: 25_000, Mode.MIGRATE: 100_000}  # of one statement, as compiled
TABLE_FUNCTIONS = ("json_each('[]')", "json_tree('[]')", *(f"pragma_{name}" for name in sorted(READ_PRAGMAS)))


class Connection:
    """One guarded connection. `for_caller` runs a caller's statements, `for_platform` the platform's own."""

    def __init__(self, path: Path, *, mode: Mode) -> None:
        self.statements = reserved.Statements()
        self._caller_mode = mode
        self._guard = Guard()
        self._regexp = Regexp(lambda: self._deadline)
        self._functions = Functions(lambda: self._deadline, VALUE_LIMIT)
        self._sound_at: int | None = None
        self._deadline = float("inf")
        self._seconds = TIME_LIMIT_S
        self._ended = False
        self.timed_out = False
        self._running: Running | None = None
        suffix = "?mode=ro" if mode is Mode.READ else "?mode=rw"
        self.raw = sqlite3.connect(
            f"file:{quote(str(path))}{suffix}",
            uri=True,
            isolation_level=None,
            timeout=BUSY_S,
            cached_statements=64,
            check_same_thread=False,  # used by one, ended by others
        )
        self._prepare()

    def _prepare(self) -> None:
        raw = self.raw
        raw.execute("PRAGMA foreign_keys=ON")
        # On: views, triggers and checks may use our functions. What they may not use, the guard denies as elsewhere.
        raw.execute("PRAGMA trusted_schema=ON")
        raw.execute("PRAGMA synchronous=NORMAL")
        raw.execute("PRAGMA cache_size=-8000")
        raw.execute(f"PRAGMA max_page_count={MAX_PAGES}").fetchone()
        for bound, most in HEAP.items():
            raw.execute(f"PRAGMA {bound}_heap_limit={most}").fetchone()
        for limit, value in LIMITS.items():
            raw.setlimit(limit, value)
        raw.setlimit(sqlite3.SQLITE_LIMIT_VDBE_OP, INSTRUCTIONS[self._caller_mode])
        self._functions.offer(raw)
        raw.create_function("regexp", 2, self._regexp, deterministic=True)
        # SQLite declares table functions at their first use, which the guard would deny.
        raw.execute(f"SELECT 0 FROM {', '.join(TABLE_FUNCTIONS)} LIMIT 0")  # noqa: S608 - constants
        raw.set_authorizer(self._guard)
        raw.set_progress_handler(self._too_late, PROGRESS_OPS)

    def end(self) -> None:
        """From any thread: the caller's statement that runs is ended, and none begins from here on."""
        self._ended = True
        with suppress(sqlite3.Error):  # it was closed just now
            self.raw.interrupt()
        if (running := self._running) is not None:
            running.stop()

    def _too_late(self) -> int:
        if self._running is not None:
            self._running.look_from_within()
        if self._has_room and time.monotonic() < self._deadline and not self._ended:
            return 0
        self.timed_out = True
        return 1

    @property
    def _has_room(self) -> bool:
        return self._running is None or not self._running.wrote_too_much

    @contextmanager
    def for_caller(self, seconds: float = TIME_LIMIT_S) -> Iterator[sqlite3.Connection]:
        """Statements of a caller: guarded, bounded in time, errors as ToolFailure with the likely fix."""
        self._guard.mode, self._guard.why = self._caller_mode, ""
        self._regexp.problem = self._functions.problem = ""
        self._deadline, self._seconds, self.timed_out = time.monotonic() + seconds, seconds, False
        if self._ended:
            raise _tools_closed()
        watching = watch.watch
        reads = self._caller_mode is Mode.READ
        running = self._running = Running(self.raw, self._deadline, WRITTEN[self._caller_mode], reads)
        watching.begin(running)
        try:
            yield self.raw
            self.check_time()
        except (sqlite3.Error, sqlite3.Warning, OverflowError, MemoryError) as error:
            self._end_of(running, watching)
            self._guard.mode = Mode.PLATFORM  # the hint looks names up
            raise self._failure(error) from None
        finally:
            self._end_of(running, watching)
            self._running = None
            self._guard.mode, self._deadline = Mode.PLATFORM, float("inf")

    def _end_of(self, running: Running, watching: watch.Watch) -> None:
        watching.end(running)
        if running.stopped:
            self.raw.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, VALUE_LIMIT)

    def check_time(self) -> None:
        """Raises ToolFailure when a bound of `for_caller` is passed, or the connection was ended."""
        if self._ended:
            raise _tools_closed()
        if not self._has_room:
            raise self._too_much()
        if time.monotonic() > self._deadline:
            raise self._too_long()

    @property
    def touched(self) -> set[str]:
        """The tables, in small letters, whose rows the statements of a migration wrote, or which they dropped."""
        return self._guard.touched

    def check_reserved(self) -> None:
        """Raises ToolFailure (`database_altered`) when the platform's own tables are not as it made them."""
        (version,) = self.for_platform(self.statements.schema_version).fetchone()
        if version == self._sound_at:
            return
        faults = reserved.faults(self.for_platform(self.statements.reserved).fetchall())
        if faults:
            raise ToolFailure(
                Code.DATABASE_ALTERED,
                f"The workflow's database holds what reaches into the platform's own tables: {', '.join(faults)}."
                " Its receipts cannot be relied on. Nothing was changed.",
                "Take these out of the database, or restore it from a snapshot.",
            )
        self._sound_at = version

    def for_platform(self, statement: str, parameters: tuple[Any, ...] = ()) -> sqlite3.Cursor:
        """One of `self.statements`."""
        return self.raw.execute(statement, parameters)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """One transaction; rolled back, and nothing happened, when the block raises."""
        try:
            self.for_platform(self.statements.begin)
        except sqlite3.OperationalError as error:
            raise ToolFailure(
                Code.BUSY, f"The workflow's database stayed locked: {error}.", "Nothing was done. Try again."
            ) from None
        try:
            yield
            self.for_platform(self.statements.commit)
        except BaseException:
            with suppress(sqlite3.Error):  # SQLite rolls back by itself on some errors
                self.for_platform(self.statements.rollback)
            raise

    def _failure(self, error: Exception) -> ToolFailure:
        if self._ended:
            return _tools_closed()
        if not self._has_room:
            return self._too_much()
        if self.timed_out or time.monotonic() > self._deadline:
            return self._too_long()
        if isinstance(error, MemoryError):
            return ToolFailure(
                Code.LIMIT_EXCEEDED,
                "The statement is too long once it is compiled, or takes too much memory. Nothing was done.",
                "Take it in parts: several statements, one with `param_sets`, or fewer large values at a time.",
            )
        if "locked" in str(error):
            return ToolFailure(Code.BUSY, f"The workflow's database stayed locked: {error}.", "Try again.")
        if self._regexp.problem:
            return ToolFailure(Code.SQL_ERROR, self._regexp.problem, "Use a simpler pattern, LIKE or GLOB.")
        if self._functions.problem:
            problem = self._functions.problem
            return ToolFailure(Code.SQL_ERROR, f"{problem}.", hints.likely_fix(self, problem, ""))
        why = self._guard.why
        message = f"Refused: {why}." if why and _is_denial(error) else f"{error}"
        return ToolFailure(Code.SQL_ERROR, message, hints.likely_fix(self, str(error), why))

    def _too_long(self) -> ToolFailure:
        return ToolFailure(
            Code.LIMIT_EXCEEDED,
            f"The statement did not finish within {self._seconds:g} s and was ended. Nothing was changed.",
            "Narrow it with WHERE, add an index by a migration, or take it in parts.",
        )

    def _too_much(self) -> ToolFailure:
        most = WRITTEN[self._caller_mode] // MB
        return ToolFailure(
            Code.LIMIT_EXCEEDED,
            f"The statement wrote more to the disk than it may ({most} MB, less while many run at a time) and was"
            " ended. Nothing was changed.",
            "Sort, group or take DISTINCT of fewer or shorter values, or take it in parts.",
        )

    def tables(self) -> list[tuple[str, str, str]]:
        """(name, table or view, SQL) of all that a caller may see."""
        return list(self.for_platform(self.statements.tables))

    def columns(self, table: str) -> list[tuple[str, str, int, Any, int]]:
        return list(self.for_platform(self.statements.columns, (table,)))

    def close(self) -> None:
        self.raw.close()
        self._functions.close()


class Database:
    """A workflow's database for one thread: a read-only connection and a writing one, each opened when first needed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._reader: Connection | None = None
        self._writer: Connection | None = None
        self._ended = False

    @property
    def reader(self) -> Connection:
        if self._reader is None:
            make(self.path)
            self._reader = Connection(self.path, mode=Mode.READ)
            if self._ended:
                self._reader.end()
        return self._reader

    @property
    def writer(self) -> Connection:
        if self._writer is None:
            make(self.path)
            self._writer = Connection(self.path, mode=Mode.WRITE)
            if self._ended:
                self._writer.end()
        return self._writer

    def end(self) -> None:
        """From any thread: see `Connection.end`."""
        self._ended = True
        for connection in (self._reader, self._writer):
            if connection is not None:
                connection.end()

    def close(self) -> None:
        for connection in (self._reader, self._writer):
            if connection is not None:
                connection.close()
        self._reader = self._writer = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        self.close()


def make(path: Path) -> None:
    """The database with the platform's tables, made when it is not there yet. Closed to all but the platform's user.

    It is held open for a while by one more connection that nobody uses: SQLite writes the whole log back, with a sync,
    each time the last connection of a process closes, and attempts open and close theirs all the time.
    """
    with _keeping:
        if _is_kept(path):
            return
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
        raw = sqlite3.connect(path, isolation_level=None, timeout=BUSY_S, check_same_thread=False)
        _make_tables(raw)
        raw.set_authorizer(Guard())  # nothing of the workflow's runs inside what we write with it
        _keep(path, raw)


def raise_fence(path: Path, run_id: UUID, fence: int, give_up: Callable[[], bool] = lambda: False) -> bool:
    """From now on a writer with a lower fence of this run changes nothing: `writing.mutate` compares.

    Waits for a statement that still holds the lock: it ends at its bound. False when `give_up` said so meanwhile. A
    run's first holder has nobody before it and waits for none.
    """
    until = time.monotonic() + FENCE_PATIENCE_S
    while not give_up():
        try:
            make(path)
            if fence > FIRST_FENCE:
                with _keeping:
                    _kept[path].raw.execute(f"PRAGMA busy_timeout={FENCE_TRY_MS}")
                    _kept[path].raw.execute(reserved.RAISE_FENCE, (str(run_id), fence))
        except sqlite3.DatabaseError as error:
            if _is_denial(error):
                return True  # a trigger on the platform's tables: nothing is mutated there at all
            if "locked" not in str(error) or time.monotonic() > until:
                raise
        else:
            return True
        time.sleep(0.05)
    return False


def _make_tables(raw: sqlite3.Connection) -> None:
    present = raw.execute("SELECT count(*) FROM sqlite_master WHERE name GLOB '_pulse_*' AND type = 'table'")
    if present.fetchone()[0] == len(reserved.TABLES):
        return
    raw.execute("PRAGMA journal_mode=WAL").fetchone()
    raw.execute("BEGIN IMMEDIATE")
    for table in reserved.TABLES:
        raw.execute(table)
    raw.execute("COMMIT")


@dataclass(frozen=True)
class _Kept:
    inode: int
    process: int
    raw: sqlite3.Connection


_keeping = threading.Lock()
_kept: OrderedDict[Path, _Kept] = OrderedDict()
_inherited: list[_Kept] = []


def _is_kept(path: Path) -> bool:
    kept = _kept.get(path)
    if kept is None or kept.process != os.getpid():
        return False
    try:
        return path.stat().st_ino == kept.inode
    except FileNotFoundError:
        return False


def _keep(path: Path, raw: sqlite3.Connection) -> None:
    old = [_kept.pop(path, None)]
    if len(_kept) >= KEPT_OPEN:
        old.append(_kept.popitem(last=False)[1])
    for kept in old:
        if kept is not None and kept.process == os.getpid():
            kept.raw.close()
        elif kept is not None:
            _inherited.append(kept)  # a forked child leaves its parent's open
    _kept[path] = _Kept(path.stat().st_ino, os.getpid(), raw)


def _tools_closed() -> ToolFailure:
    return ToolFailure(Code.UNAVAILABLE, "The tools of this attempt were closed. Nothing was changed.")


def _is_denial(error: Exception) -> bool:
    text = str(error)
    return "not authorized" in text or "prohibited" in text or "authoriz" in text
