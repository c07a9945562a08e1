"""Runs a validation block on what a step left: its files, and the workflow database."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from pydantic import JsonValue

from engine import json_values
from engine.validation import checks, schemas
from engine.validation.patience import OutOfPatience, at_most
from engine.validation.report import Check, Status, ValidationReport
from engine.validation.rules import DatabaseRule, FileRule, Validation

CPU_SECONDS = 20.0
MAX_ROWS = 10_000
CURE = "Use a simpler pattern, schema or path, or have the step write a smaller file."

Read = Callable[[str], bytes | None]
Query = Callable[[str, int], Sequence[Mapping[str, JsonValue]]]


class FileUnreadable(Exception):
    """Raised by a reader: the file is there but must not be read (no regular file, a link, too large)."""


class QueryFailed(Exception):
    """Raised by a query: the database refused the statement."""


def check_all(rules: Validation, read: Read, query: Query, *, cpu_seconds: float = CPU_SECONDS) -> ValidationReport:
    """Files first, then the database."""
    return check_files(rules.files, read, cpu_seconds=cpu_seconds) + check_database(
        rules.db, query, cpu_seconds=cpu_seconds
    )


def check_files(rules: Sequence[FileRule], read: Read, *, cpu_seconds: float = CPU_SECONDS) -> ValidationReport:
    """read: the bytes of an output file by its name, None when there is none; it bounds the size."""
    return _bounded([(rule.file_name, partial(_file, rule, read)) for rule in rules], cpu_seconds)


def check_database(
    rules: Sequence[DatabaseRule], query: Query, *, cpu_seconds: float = CPU_SECONDS
) -> ValidationReport:
    """query: rows of one read-only statement, at most so many."""
    return _bounded([(f"db {rule.name}", partial(_rows, rule, query)) for rule in rules], cpu_seconds)


def _bounded(parts: Sequence[tuple[str, Callable[[], Iterator[Check]]]], cpu_seconds: float) -> ValidationReport:
    done: list[Check] = []
    where = ""
    try:
        with at_most(cpu_seconds):
            for where, part in parts:  # noqa: B007 - read when patience ends
                done.extend(part())
    except OutOfPatience:
        message = f"The rules took more than {cpu_seconds:g} s of processor time. What follows was not checked. {CURE}"
        done.append(Check("time", where, Status.FAULTY, message))
    return ValidationReport(tuple(done))


def _file(rule: FileRule, read: Read) -> Iterator[Check]:
    where = rule.file_name
    try:
        data = read(where)
    except FileUnreadable as error:
        yield Check("exists", where, Status.FAILED, f"It must not be read: {error}.")
        return
    if data is None:
        status = Status.FAILED if rule.must_exist else Status.PASSED
        yield Check("exists", where, status, "The file is not there.")
        return
    yield Check("exists", where, Status.PASSED)
    if rule.content is None and not rule.json_checks:
        return
    try:
        document = json_values.load(data)
    except json_values.NotJson as error:
        yield Check("json", where, Status.FAILED, f"It is not JSON: {error}.")
        return
    if rule.content is not None:
        yield _schema(rule.content, document, where)
    for index, check in enumerate(rule.json_checks):
        yield checks.apply(check, document, f"json_checks[{index}]", where)


def _schema(schema: Mapping[str, JsonValue], document: JsonValue, where: str) -> Check:
    try:
        failures = schemas.failures(schema, document)
    except schemas.BadSchema as error:
        return Check("schema", where, Status.FAULTY, f"The schema cannot be applied: {error}.")
    return Check("schema", where, Status.FAILED if failures else Status.PASSED, "; ".join(failures))


def _rows(rule: DatabaseRule, query: Query) -> Iterator[Check]:
    where = f"db {rule.name}"
    wanted = max(rule.min_rows or 0, rule.max_rows + 1 if rule.max_rows is not None else 0, 1)
    try:
        rows = query(rule.sql, min(wanted, MAX_ROWS))
    except QueryFailed as error:
        yield Check("query", where, Status.FAULTY, f"The query cannot be run: {error}.")
        return
    if rule.min_rows is not None:
        enough = len(rows) >= rule.min_rows
        message = f"{len(rows)} rows; at least {rule.min_rows} are wanted."
        yield Check("min_rows", where, Status.PASSED if enough else Status.FAILED, "" if enough else message)
    if rule.max_rows is not None:
        few = len(rows) <= rule.max_rows
        message = f"More than the {rule.max_rows} rows that are wanted at most."
        yield Check("max_rows", where, Status.PASSED if few else Status.FAILED, "" if few else message)
    for index, check in enumerate(rule.checks):
        name = f"checks[{index}]"
        if rows:
            yield checks.apply(check, dict(rows[0]), name, where)
        else:
            yield Check(name, f"{where} {check.path}", Status.FAILED, "There is no first row.")
