"""How the product writes its own log: one line a record, with the request's id, and nothing secret in it."""

from __future__ import annotations

import contextlib
import contextvars
import logging
import os
import sys
from logging.handlers import WatchedFileHandler
from typing import Any

from engine.redaction import redactor

LARGEST = 20 * 1024 * 1024

request_id: contextvars.ContextVar[str] = contextvars.ContextVar("request_id", default="")


class RequestIdFilter(logging.Filter):
    """Gives each record the id of the request it belongs to, or a dash."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.request_id = request_id.get() or "-"
        return True


class LogFile(WatchedFileHandler):
    """A file that several processes append to. Past `LARGEST` it becomes `<name>.1`, and a new one begins.

    A line that cannot be written, on a full disk or for whatever reason, is lost and is never an error of whoever
    logged it: standard error tells of the first one, and the file how many there were, once it can be written again.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._lost = 0

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self.reopenIfNeeded()
            if self.stream is None:
                self.stream = self._open()
                self._statstream()
            lost = f"\n[{self._lost} lines before this one could not be written]\n" if self._lost else ""
            self.stream.write(f"{lost}{self.format(record)}{self.terminator}")
            self.stream.flush()
            self._lost = 0
            if self.stream.tell() > LARGEST:
                os.replace(self.baseFilename, f"{self.baseFilename}.1")
        except OSError as wrong:
            self._lose(wrong)
        except Exception:  # noqa: BLE001 - a record that cannot be formatted: logging tells of it, and raises nothing
            self.handleError(record)

    def _lose(self, wrong: OSError) -> None:
        self._lost += 1
        stream, self.stream = self.stream, None  # what it still holds must not come later
        with contextlib.suppress(OSError):
            if self._lost == 1:
                sys.stderr.write(f"The log {self.baseFilename} cannot be written: {wrong.strerror}.\n")
        with contextlib.suppress(OSError):
            if stream is not None:
                stream.close()


class RedactingFormatter(logging.Formatter):
    """Masks in the finished text: message, arguments, traceback and stack alike."""

    def format(self, record: logging.LogRecord) -> str:
        return redactor.redact(super().format(record))
