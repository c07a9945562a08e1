"""How the product writes its own log: one line a record, with the request's id, and nothing secret in it."""

from __future__ import annotations

import contextvars
import logging

from engine.redaction import redactor

request_id: contextvars.ContextVar[str] = contextvars.ContextVar("request_id", default="")


class RequestIdFilter(logging.Filter):
    """Gives each record the id of the request it belongs to, or a dash."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.request_id = request_id.get() or "-"
        return True


class RedactingFormatter(logging.Formatter):
    """Masks in the finished text: message, arguments, traceback and stack alike."""

    def format(self, record: logging.LogRecord) -> str:
        return redactor.redact(super().format(record))
