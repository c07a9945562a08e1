"""Validation in a process of its own, which can be ended: a pattern or a parser may hold Python's lock for minutes.

The lease of a run is renewed by a thread of the same process as its validation. What could hold that thread up is done
in a child that stays for the next time, bounded in processor time, in memory and by a deadline.
"""

from __future__ import annotations

import atexit
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from multiprocessing.connection import Connection, Pipe
from typing import Any

from pydantic import JsonValue

from engine.validation import running
from engine.validation.report import Check, Status, ValidationReport
from engine.validation.rules import JsonCheck, Validation
from engine.validation.running import FileUnreadable, Query, QueryFailed, Read

LIGHT_BYTES = 128 * 1024
MEMORY = 1024 * 1024 * 1024
KEPT_MEMORY_KB = 256 * 1024
CPU_SECONDS = 10.0
DEADLINE_S = 60.0
"""By the clock, for a machine so busy that the processor time is not had."""
_SERVE = (
    "import sys; sys.path[:] = sys.argv[2:]; from engine.validation import confined; confined.serve(int(sys.argv[1]))"
)


def check_all(
    rules: Validation, read: Read, query: Query, *, cpu_seconds: float = CPU_SECONDS, deadline_s: float = DEADLINE_S
) -> ValidationReport:
    """As `running.check_all`; in the child whenever a rule or a file is such that it could take long in one go."""
    if _light(rules):
        try:
            return running.check_all(rules, partial(_light_read, read), query, cpu_seconds=cpu_seconds)
        except _Heavy:
            pass
    return _Asked(rules, read, query).report(cpu_seconds, deadline_s)


def serve(descriptor: int) -> None:
    """The child: answers requests to the end of its connection."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    connection = Connection(descriptor)
    again = True
    while again:
        try:
            given, cpu_seconds = connection.recv()
        except EOFError:
            return
        try:
            rules = Validation.model_validate(given)
            report = running.check_all(
                rules, partial(_asked_read, connection), partial(_asked_query, connection), cpu_seconds=cpu_seconds
            )
            answer: tuple[str, Any] = ("done", [_plain(check) for check in report.checks])
        except MemoryError:
            answer = ("memory", None)
        again = answer[0] == "done" and _peak_kb() < KEPT_MEMORY_KB
        connection.send((*answer, again))


def _peak_kb() -> int:
    """The most memory this program has had. `ru_maxrss` would count what its parent had when it was started."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))


class _Heavy(BaseException):
    """A file is too large to be looked at here."""


class _Asked:
    """One validation that the child does, and what it asks for meanwhile."""

    def __init__(self, rules: Validation, read: Read, query: Query) -> None:
        self._rules = rules
        self._read = read
        self._query = query

    def report(self, cpu_seconds: float, deadline_s: float) -> ValidationReport:
        with _one_at_a_time:
            return self._report(_child(), cpu_seconds, deadline_s)

    def _report(self, child: _Child, cpu_seconds: float, deadline_s: float) -> ValidationReport:
        try:
            child.connection.send((self._rules.model_dump(mode="json", by_alias=True, exclude_unset=True), cpu_seconds))
            while child.connection.poll(deadline_s):
                kind, *told = child.connection.recv()
                if kind not in {"done", "memory"}:
                    child.connection.send(self._answer(kind, *told))
                    continue
                if not told[1]:
                    child.end()
                return _report(told[0]) if kind == "done" else _faulty("memory", "more memory than they may have")
        except (EOFError, OSError):
            child.end()
            return _faulty("memory", "more memory than they may have")
        except BaseException:
            child.end()
            raise
        child.end()
        return _faulty("time", f"more than {deadline_s:g} s")

    def _answer(self, kind: str, *asked: Any) -> tuple[str, Any]:
        try:
            if kind == "read":
                return "data", self._read(*asked)
            rows = self._query(*asked)
            return "rows", (len(rows), dict(rows[0]) if rows else {})
        except (FileUnreadable, QueryFailed) as refused:
            return "refused", str(refused)


class _Child:
    def __init__(self) -> None:
        self.process_id = os.getpid()
        self.connection, theirs = Pipe()
        with theirs:
            descriptor = theirs.fileno()
            command = [sys.executable, "-S", "-E", "-c", _SERVE, str(descriptor), *sys.path]
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, env={"LANG": "C.UTF-8"}, pass_fds=[descriptor], cwd="/"
            )

    @property
    def usable(self) -> bool:
        return self.process_id == os.getpid() and self._process.poll() is None

    def end(self) -> None:
        self.connection.close()
        if self.process_id == os.getpid():
            self._process.kill()
            self._process.wait()


_kept: list[_Child] = []
_one_at_a_time = threading.Lock()


def _child() -> _Child:
    """The one that is there, or a new one. A fork does not take its parent's along."""
    if _kept and not _kept[0].usable:
        _kept.clear()
    if not _kept:
        _kept.append(_Child())
    return _kept[0]


@atexit.register
def _end_child() -> None:
    for child in _kept:
        child.end()


def _light(rules: Validation) -> bool:
    checks = [check for rule in (*rules.files, *rules.db) for check in _checks(rule)]
    return all(_is_light(check) for check in checks) and not any(_searches(rule.content) for rule in rules.files)


def _checks(rule: Any) -> Sequence[JsonCheck]:
    found: Sequence[JsonCheck] = rule.json_checks if hasattr(rule, "json_checks") else rule.checks
    return found


def _is_light(check: JsonCheck) -> bool:
    """No pattern, and no path that looks everywhere or filters (which may hold a pattern too)."""
    return check.pattern is None and ".." not in check.path and "?" not in check.path


def _searches(schema: Mapping[str, JsonValue] | None) -> bool:
    text = repr(schema)
    return "pattern" in text or "format" in text or "$ref" in text or "$dynamicRef" in text


def _light_read(read: Read, name: str) -> bytes | None:
    data = read(name)
    if data is not None and len(data) > LIGHT_BYTES:
        raise _Heavy
    return data


def _asked_read(connection: Connection, name: str) -> bytes | None:
    connection.send(("read", name))
    kind, data = connection.recv()
    if kind == "refused":
        raise FileUnreadable(data)
    found: bytes | None = data
    return found


def _asked_query(connection: Connection, sql: str, most: int) -> Sequence[Mapping[str, JsonValue]]:
    connection.send(("query", sql, most))
    kind, data = connection.recv()
    if kind == "refused":
        raise QueryFailed(data)
    count, first = data
    return [first] * count


def _plain(check: Check) -> tuple[str, str, str, str]:
    return check.name, check.path, check.status.value, check.message


def _report(found: Sequence[tuple[str, str, str, str]]) -> ValidationReport:
    return ValidationReport(tuple(Check(name, path, Status(status), text) for name, path, status, text in found))


def _faulty(name: str, what: str) -> ValidationReport:
    message = f"The rules took {what}, and were ended. Nothing of the output was checked. {running.CURE}"
    return ValidationReport((Check(name, "validation", Status.FAULTY, message),))
