"""How the product writes its own log: one line a record, with the request's id, and nothing secret in it."""

from __future__ import annotations

import contextlib
import contextvars
import logging
import os
from logging.handlers import WatchedFileHandler

from engine.redaction import redactor

LARGEST = 20 * 1024 * 1024

request_id: contextvars.ContextVar[str] = contextvars.ContextVar("request_id", default="")


class RequestIdFilter(logging.Filter):
    """Gives each record the id of the request it belongs to, or a dash."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.request_id = request_id.get() or "-"
        return True


class LogFile(WatchedFileHandler):
    """A file that several processes append to. Past `LARGEST` it becomes `<name>.1`, and a new one begins."""

    def emit(self, record: logging.LogRecord) -> None:
        super().emit(record)
        if self.stream is not None and self.stream.tell() > LARGEST:
            with contextlib.suppress(OSError):
                os.replace(self.baseFilename, f"{self.baseFilename}.1")


class RedactingFormatter(logging.Formatter):
    """Masks in the finished text: message, arguments, traceback and stack alike."""

    def format(self, record: logging.LogRecord) -> str:
        return redactor.redact(super().format(record))
