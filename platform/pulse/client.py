"""The tool socket: frames of a 32-bit big-endian length and UTF-8 JSON, one connection a thread."""

from __future__ import annotations

import _socket
import json
import os
import time
from _thread import _local

from pulse.errors import BOUNDARY_CODES, MutationUnknown, ToolBoundaryError, ToolError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LARGEST = 4 * 1024 * 1024
TRIES = 4
"""The first try and at most three more, and those only for tools that change nothing."""
PATIENCE_S = 300.0
RETRIED_CODES = frozenset({"429", "502", "503", "504", "tool_rate", "busy", "unavailable"})
READING = ("query_", "read_", "get_", "list_", "search_", "describe_")
"""Tools whose names begin so change nothing. Of every other tool the library assumes that it does."""

_held = _local()


def call(tool: str, arguments: dict[str, Any]) -> Any:
    """Sends one call and returns its result. A tool that may change something is sent once, whatever happens."""
    mutates = not tool.startswith(READING)
    call_id = new_id()
    frame = _frame({"id": call_id, "tool": tool, "arguments": arguments}, tool)
    for attempt in range(1, TRIES + 1):
        last = mutates or attempt == TRIES
        try:
            return _result(_exchange(call_id, frame, tool, mutates), tool, call_id)
        except ToolError as error:
            if last or isinstance(error, ToolBoundaryError) or error.code not in RETRIED_CODES:
                raise
            time.sleep(0.1 * 2**attempt)
    raise AssertionError("the loop above returns or raises")


def read_receipt(call_id: str) -> Any:
    """What became of a mutation: a record whose `outcome` is `not_sent`, `refused`, `applied` or `unknown`."""
    return call("read_receipt", {"call_id": call_id})


def new_id() -> str:
    """A new UUIDv7 as text: the mutation's own id, made once and never used for another call."""
    bits = int.from_bytes(os.urandom(10), "big")
    stamp = (time.time_ns() // 1_000_000) & (1 << 48) - 1
    value = stamp << 80 | 0x7 << 76 | (bits >> 68) << 64 | 0b10 << 62 | bits & (1 << 62) - 1
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _frame(message: dict[str, Any], tool: str) -> bytes:
    try:
        body = json.dumps(message, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise ToolError(
            "invalid_arguments", f"the arguments are no JSON: {error}.", "Nothing was sent.", tool
        ) from error
    if len(body) > LARGEST:
        raise ToolError(
            "message_too_large", f"the call has {len(body)} bytes, more than {LARGEST}.", "Nothing was sent.", tool
        )
    return len(body).to_bytes(4, "big") + body


def _exchange(call_id: str, frame: bytes, tool: str, mutates: bool) -> dict[str, Any]:
    """One frame out, one answer in. Once the first byte may have left, a mutation that fails here is unknown."""
    try:
        connection = _connection()
    except OSError as error:
        raise ToolError(
            "unavailable", f"the tool socket did not answer: {error}.", "Nothing was sent.", tool
        ) from error
    try:
        connection.send(frame)
        while True:
            answer = connection.receive()
            if answer.get("id") == call_id:
                return answer
            if answer.get("id") is None and not answer.get("success", True):
                return answer
    except (OSError, ValueError) as error:
        close()
        if mutates:
            raise MutationUnknown(call_id, tool, f"the connection ended after the call was sent ({error}).") from error
        raise ToolError("unavailable", f"the connection to the tools ended: {error}.", "", tool) from error
    except BaseException:
        close()  # an answer may still be on its way: the next call must not read it
        raise


def _result(answer: dict[str, Any], tool: str, call_id: str) -> Any:
    if answer.get("success"):
        return answer.get("result")
    error = answer.get("error") or {}
    code = str(error.get("code") or "error")
    message, hint = str(error.get("message") or "the call failed."), str(error.get("hint") or "")
    if code == "unknown":
        raise MutationUnknown(call_id, tool, message, hint)
    kind = ToolBoundaryError if code in BOUNDARY_CODES else ToolError
    raise kind(code, message, hint, tool, str(error.get("session") or ""), str(error.get("authority") or ""))


class Connection:
    """One thread's way to the tools; closed with the thread that made it."""

    def __init__(self, path: str) -> None:
        self.pid = os.getpid()
        self._socket = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        self._socket.settimeout(PATIENCE_S)
        self._socket.connect(path)
        hello = json.dumps({"v": 1, "token": os.environ.get("PULSE_SESSION_TOKEN", "")}).encode()
        self.send(len(hello).to_bytes(4, "big") + hello)

    def __del__(self) -> None:
        self._socket.close()

    def send(self, frame: bytes) -> None:
        self._socket.sendall(frame)

    def receive(self) -> dict[str, Any]:
        length = int.from_bytes(self._exactly(4), "big")
        answer = json.loads(self._exactly(length))
        if isinstance(answer, dict):
            return answer
        raise ValueError("the answer is no object")

    def _exactly(self, size: int) -> bytes:
        pieces = []
        while size:
            piece = self._socket.recv(min(size, 1 << 20))
            if not piece:
                raise OSError("the platform closed it")
            pieces.append(piece)
            size -= len(piece)
        return b"".join(pieces)


def _connection() -> Connection:
    """This thread's connection; a forked child makes its own, or its answers would mix with its parent's."""
    connection: Connection | None = getattr(_held, "connection", None)
    if connection is None or connection.pid != os.getpid():
        path = os.environ.get("PULSE_TOOLS_SOCKET")
        if not path:
            raise OSError("PULSE_TOOLS_SOCKET is not set")
        connection = _held.connection = Connection(path)
    return connection


def close() -> None:
    """Ends this thread's connection; the next call makes a new one."""
    _held.connection = None
