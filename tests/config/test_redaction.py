"""What the product writes about itself holds no token and no secret, however it got there."""

from __future__ import annotations

import base64
import io
import json
import logging
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as some

from config.logs import RedactingFormatter, RequestIdFilter
from engine.redaction import MASK, Redactor

CANARY = 'canary "quoted" välue/with+signs'


@pytest.fixture
def redactor():
    made = Redactor()
    made.remember(CANARY)
    return made


@pytest.mark.parametrize(
    "written",
    [
        CANARY,
        json.dumps(CANARY),
        quote(CANARY),
        quote(CANARY, safe=""),
        repr(CANARY),
        base64.b64encode(CANARY.encode()).decode(),
        base64.urlsafe_b64encode(CANARY.encode()).decode(),
        CANARY.encode().hex(),
    ],
)
def test_a_remembered_value_is_masked_in_each_spelling(redactor, written):
    masked = redactor.redact(f"before {written} after")
    assert MASK in masked
    assert "canary" not in masked
    assert masked.startswith("before ")
    assert masked.endswith(" after")


def test_each_line_of_a_multi_line_value_is_masked():
    made = Redactor()
    made.remember("first-long-line\nsecond-long-line\nab")
    assert made.redact("x second-long-line y ab") == f"x {MASK} y ab"


@pytest.mark.parametrize(
    "line",
    [
        "Authorization: Bearer abcdefghijkl",
        "token=abcdefghijkl",
        '{"password": "abcdefghijkl"}',
        "pat_abcdefghijkl",
        "pst_abcdefghijkl",
        "X-Hub-Signature-256: sha256=" + "a1" * 32,
        "postgresql://user:abcdefghijkl@db/x",
        "Cookie: sessionid=abcdefghijkl",
        "Unauthorized: /hooks/abcdefghijkl",
    ],
)
def test_tokens_are_masked_by_their_shape(line):
    masked = Redactor().redact(line)
    assert MASK in masked
    assert "abcdefghijkl" not in masked
    assert "a1a1" not in masked


def test_ordinary_lines_stay_as_they_are():
    line = "run 0190a2 of pr-review: step review succeeded in 120 ms (token count: 12)"
    assert Redactor().redact(line) == line


def test_a_short_value_does_not_black_out_the_log():
    made = Redactor()
    made.remember("e")
    assert made.redact("every letter e stays") == "every letter e stays"


@given(
    value=some.text(min_size=8, max_size=40).filter(lambda text: len(text.strip()) >= 8), around=some.text(max_size=20)
)
def test_whatever_the_value_is_it_does_not_come_through(value, around):
    made = Redactor()
    made.remember(value)
    assert value not in made.redact(around + value + around) or value in MASK


def written(record_of) -> str:
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(RedactingFormatter("%(request_id)s %(message)s"))
    handler.addFilter(RequestIdFilter())
    logger = logging.getLogger("tests.redaction")
    logger.addHandler(handler)
    try:
        record_of(logger)
    finally:
        logger.removeHandler(handler)
    return out.getvalue()


def test_it_masks_in_arguments_tracebacks_and_their_causes():
    def fail(logger: logging.Logger) -> None:
        try:
            try:
                raise ValueError("inner pat_abcdefghijkl")
            except ValueError as wrong:
                raise RuntimeError("outer pst_mnopqrstuvwx") from wrong
        except RuntimeError:
            logger.exception("with %s", "Bearer yzabcdefghij")

    text = written(fail)
    assert "Traceback" in text
    assert not any(part in text for part in ("abcdefghijkl", "mnopqrstuvwx", "yzabcdefghij"))


def test_every_way_out_of_the_products_log_redacts(settings):
    for handler in settings.LOGGING["handlers"].values():
        assert settings.LOGGING["formatters"][handler["formatter"]]["()"] == "config.logs.RedactingFormatter"
    loggers = settings.LOGGING["loggers"].values()
    assert all(not logger.get("handlers") and logger.get("propagate", True) for logger in loggers)
