"""The journal of a session: one line a call, written before the call is answered, chained by an HMAC.

A line is one `write` to the file: it survives the death of the process. Rows are imported into the ledger in batches.
Several processes may append; each holds the file's lock for the length of one line.
"""

from __future__ import annotations

import fcntl
import hmac
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from apps.tools.errors import JournalClosed

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TAIL = 8192
SEAL = "seal"


class Entry(NamedTuple):
    """What one row of the ledger says, apart from its place in the chain."""

    call_id: str
    session_id: str
    authority_id: str
    workflow_id: str
    run_id: str
    step_id: str
    attempt_id: str
    tool: str
    argument_digest: str
    verdict: str
    outcome: str
    error_code: str
    started_us: int
    duration_us: int


@dataclass(frozen=True, slots=True)
class Row:
    """An entry in its place."""

    seq: int
    entry: Entry
    previous_hmac: str
    hmac: str


@dataclass(frozen=True, slots=True)
class Seal:
    rows: int
    last_hmac: str
    hmac: str


class Journal:
    """The journal of one session. Threads of one process share an instance; processes share the file."""

    def __init__(self, path: Path, key: bytes) -> None:
        self.path = path
        self._key = key
        self._lock = threading.RLock()
        self._held = 0
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        self._end = -1
        self._seq = 0
        self._last = ""
        self._sealed = False
        self._stopped = False

    def append(self, entry: Entry) -> Row:
        """Write the row; when this returns it is in the file. Raises JournalClosed once the chain is sealed."""
        with self._lock:
            if self._stopped:
                raise JournalClosed("The listener of this session has closed.")
            with self.exclusive():
                return self._append(entry)

    def append_settled(self, entry: Entry) -> Row:
        """Write a row on behalf of a process that is gone. Takes place under `exclusive`."""
        with self.exclusive():
            return self._append(entry)

    def stop(self) -> None:
        """This instance takes no row from here on: what is in flight stays unknown until it is settled."""
        with self._lock:
            self._stopped = True

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Nobody else appends meanwhile, in any process."""
        with self._lock:
            if self._held == 0:
                fcntl.flock(self._file, fcntl.LOCK_EX)
            self._held += 1
            try:
                yield
            finally:
                self._held -= 1
                if self._held == 0:
                    fcntl.flock(self._file, fcntl.LOCK_UN)

    def seal(self) -> Seal:
        """Close the chain; the same seal when it is closed already."""
        with self.exclusive():
            self._catch_up()
            seal = Seal(self._seq, self._last, seal_hmac(self._key, self._seq, self._last))
            if not self._sealed:
                self._write(_spelled([SEAL, seal.rows, seal.last_hmac, seal.hmac]) + b"\n")
                self._sealed = True
            return seal

    def rows(self, offset: int = 0) -> Iterator[tuple[Row, int]]:
        """Rows from a byte offset on, each with the offset behind it. A torn last line is no row."""
        with open(self.path, "rb") as file:
            file.seek(offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                offset += len(line)
                fields = json.loads(line)
                if fields[0] != SEAL:
                    yield _row(fields), offset

    def last_seq(self) -> int:
        """The number of the last row there is, whoever wrote it; 0 when there is none."""
        with self.exclusive():
            self._catch_up()
            return self._seq

    def size(self) -> int:
        """Bytes of whole lines, as of the last look."""
        return self._end

    def close(self) -> None:
        """Let go of the file. A thread that still wants to append is refused before it touches a descriptor."""
        with self._lock:
            self._stopped = True
            if self._file >= 0:
                os.close(self._file)
            self._file = -1

    def _append(self, entry: Entry) -> Row:
        self._catch_up()
        if self._sealed:
            raise JournalClosed("The chain of this session is sealed.")
        message = _spelled([self._seq + 1, self._last, *entry])
        row = Row(self._seq + 1, entry, self._last, hmac.digest(self._key, message, "sha256").hex())
        self._write(b'%b,"%b"]\n' % (message[:-1], row.hmac.encode()))
        self._seq, self._last = row.seq, row.hmac
        return row

    def _write(self, line: bytes) -> None:
        written = os.write(self._file, line)
        if written != len(line):
            os.ftruncate(self._file, self._end)
            raise OSError(f"{self.path.name}: only {written} of {len(line)} bytes of a row could be written")
        self._end += len(line)

    def _catch_up(self) -> None:
        """Read what another process has added, and drop a line that its writer did not live to end."""
        size = os.fstat(self._file).st_size
        if size == self._end:
            return
        start = max(0, size - TAIL)
        tail = os.pread(self._file, size - start, start)
        whole = tail[: tail.rfind(b"\n") + 1]
        if len(whole) != len(tail):
            size = start + len(whole)
            os.ftruncate(self._file, size)
        self._end = size
        if not whole:
            self._seq, self._last, self._sealed = 0, "", False
            return
        fields = json.loads(whole[whole.rfind(b"\n", 0, -1) + 1 :])
        self._sealed = fields[0] == SEAL
        self._seq, self._last = (fields[1], fields[2]) if self._sealed else (fields[0], fields[-1])


def row_hmac(key: bytes, seq: int, previous: str, entry: Entry) -> str:
    return hmac.digest(key, _spelled([seq, previous, *entry]), "sha256").hex()


def seal_hmac(key: bytes, rows: int, last: str) -> str:
    return hmac.digest(key, _spelled([SEAL, rows, last]), "sha256").hex()


def microseconds(at: datetime) -> int:
    return (at - EPOCH) // timedelta(microseconds=1)


def moment(at_us: int) -> datetime:
    return EPOCH + timedelta(microseconds=at_us)


def text(value: UUID | None) -> str:
    return "" if value is None else str(value)


def _spelled(fields: list[Any]) -> bytes:
    return _encode(fields).encode()


def _row(fields: list[Any]) -> Row:
    seq, previous, *facts, digest = fields
    return Row(seq, Entry(*facts), previous, digest)


_encode = json.JSONEncoder(separators=(",", ":")).encode
