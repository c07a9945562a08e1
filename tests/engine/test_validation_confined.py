"""What a step wrote is looked at where it can hold nothing up: a lease is kept while its step is validated."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from engine import validation
from engine.validation import Status, ValidationReport, confined
from engine.validation.rules import Validation

ENDLESS = b'{"a": "' + b"a" * 60 + b'!"}'
MANY = b'{"a": [' + b"[]," * 3_000_000 + b"0]}"
PATTERN = {"json_checks": [{"path": "$.a", "pattern": "^(a+)+$"}]}
SCHEMA = {"schema": {"type": "object", "properties": {"a": {"pattern": "^(a+)+$"}}}}


@pytest.fixture(autouse=True)
def nobody_left():
    yield
    confined._end_child()
    confined._kept.clear()


def check(data: bytes, rule: dict[str, Any], **bounds: float) -> ValidationReport:
    rules = Validation.model_validate({"files": [{"file_name": "a.json", **rule}]})
    return validation.check_all(rules, lambda _: data, lambda _sql, _most: [], **bounds)


def longest_silence(work) -> float:
    """How long another thread, that wants to run every 20 ms, could not while `work` was done."""
    gaps, done = [0.0], threading.Event()

    def beat() -> None:
        last = time.monotonic()
        while not done.wait(0.02):
            gaps.append(time.monotonic() - last)
            last = time.monotonic()

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        work()
    finally:
        done.set()
        thread.join()
    return max(gaps)


@pytest.mark.parametrize(
    ("data", "rule"), [(ENDLESS, PATTERN), (ENDLESS, SCHEMA), (MANY, {"json_checks": [{"path": "$..*"}]})]
)
def test_rules_without_end_are_faulty_and_hold_no_other_thread_up(data, rule):
    found = []
    silence = longest_silence(lambda: found.append(check(data, rule, cpu_seconds=1.0)))
    assert found[0].status is Status.FAULTY
    assert confined.running.CURE in found[0].summary()
    assert silence < 1.5


def test_a_child_that_does_not_answer_is_ended_at_the_deadline():
    report = check(ENDLESS, PATTERN, cpu_seconds=60.0, deadline_s=0.5)
    assert report.status is Status.FAULTY
    assert not confined._kept[0].usable


def test_more_memory_than_there_may_be_is_a_faulty_rule(monkeypatch):
    monkeypatch.setattr(
        confined, "_SERVE", confined._SERVE.replace("confined.serve", "confined.MEMORY = 150 << 20; confined.serve")
    )
    assert check(MANY, {"json_checks": [{"path": "$.a"}]}).checks[0].name == "memory"


def test_a_child_is_started_once_and_only_when_it_is_needed():
    assert check(b'{"a": 1}', {"json_checks": [{"path": "$.a", "min_value": 1}]}).passed
    assert not confined._kept
    plain = {"json_checks": [{"path": "$.a", "pattern": "^x$"}]}
    assert check(b'{"a": "x"}', plain).passed
    first = confined._kept[0]
    assert check(b'{"a": "y"}', plain).status is Status.FAILED
    assert confined._kept[0] is first


def test_what_the_child_asks_for_is_refused_as_it_would_be_here():
    def read(_: str) -> bytes:
        raise validation.FileUnreadable("it is a link")

    def query(_sql: str, _most: int) -> list[dict[str, Any]]:
        raise validation.QueryFailed("no such table: t")

    db = {"name": "q", "sql": "SELECT 1", "checks": [{"path": "$.a", "pattern": "x"}]}
    rules = Validation.model_validate({"files": [{"file_name": "a.json", **PATTERN}], "db": [db]})
    report = validation.check_all(rules, read, query)
    assert [one.status for one in report.checks] == [Status.FAILED, Status.FAULTY]
    assert "it is a link" in report.summary()
    assert "no such table" in report.summary()


def test_rows_of_a_query_are_counted_and_the_first_is_checked():
    db = {"name": "q", "sql": "SELECT 1", "min_rows": 2, "checks": [{"path": "$.a", "pattern": "^x$"}]}
    rules = Validation.model_validate({"db": [db]})
    assert validation.check_all(rules, lambda _: None, lambda _sql, _most: [{"a": "x"}, {"a": "y"}]).passed
