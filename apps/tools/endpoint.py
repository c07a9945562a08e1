"""The tool socket of one attempt: a listener that *is* an identity (SANDBOX B.10).

One thread accepts, one serves each connection, in order; each opens its own database connections and closes them.
States: armed, open (someone connected), closing, closed. Closing refuses new calls and ends every connection, since a
step may hand an open one to a sibling; what is in flight then is unknown, and is not waited for.
"""

from __future__ import annotations

import enum
import logging
import os
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from django.db import connections

from apps.tools import dispatch, identity, ledger, wire
from apps.tools.actions import token_digest
from apps.tools.desk import Fence, ListenerDesk, Shared
from apps.tools.envelope import Call, Envelope, failure
from apps.tools.errors import BOUNDARY, Code, SessionRefused
from apps.tools.work import Databases
from apps.tools.workflow_db import database
from apps.workflows.places import data_places

IN_FLIGHT = 16
CONNECTIONS = 64
PATIENCE_S = 10.0
LARGE = 256 * 1024
LARGE_AT_ONCE = 4
"""Of larger messages so many are taken in and apart at a time; the others wait in the kernel, not in our memory."""
DRAINED = 64 * 1024 * 1024
IMPORT_EVERY_S = 1
JOIN_S = 1.0
AFTER_FAULT_S = 0.1
logger = logging.getLogger(__name__)


class State(enum.Enum):
    NEW = "new"
    ARMED = "armed"
    OPEN = "open"
    CLOSING = "closing"
    CLOSED = "closed"


class ToolEndpoint:
    """Serves one session's tools on one Unix socket, from `arm` to `close`."""

    def __init__(
        self, session_id: UUID, token_sha256: str = "", *, fence: Fence | int | None = None, max_calls: int = 20_000
    ) -> None:
        """`fence` is the run's, now or as asked for at each call; `token_sha256`, when given, must be the session's."""
        self.session_id = session_id
        self._token_sha256 = token_sha256
        self.state = State.NEW
        self.refused: set[str] = set()
        self._fence: Fence = fence if callable(fence) else lambda: fence
        self._max_calls = max_calls
        self._lock = threading.Lock()
        self.large = threading.BoundedSemaphore(LARGE_AT_ONCE)
        self._slots = threading.BoundedSemaphore(IN_FLIGHT)
        self._connections: dict[socket.socket, threading.Thread] = {}
        self._databases: set[Databases] = set()
        self._listener: socket.socket | None = None
        self._path: Path | None = None
        self._thread: threading.Thread | None = None

    def arm(self, path: Path, give_up: Callable[[], bool] = lambda: False) -> None:
        """Listen on `path`; when this returns a step can connect. Raises the fence first, which may wait for a writer
        of the workflow's database: when `give_up` says so meanwhile, nothing listens."""
        chain = ledger.chain_of(self.session_id)
        if chain is None or chain.is_ended:
            raise SessionRefused("The session has ended. The socket was not armed.", code=Code.SESSION_ENDED)
        self._check_token()
        if not self._raise_fence(chain, give_up):
            return
        self._listener = _listen(path)
        self._path = path
        self._journal = chain.open()
        self._importing = ledger.Import(self.session_id, self._journal)
        self._shared = Shared(self.session_id, self._journal, self._fence, self._max_calls)
        self.state = State.ARMED
        self._thread = threading.Thread(target=self._accept, name=f"tools-{self.session_id}", daemon=True)
        self._thread.start()

    def shut(self) -> None:
        """Refuse from now on and end every connection and statement. Waits for nothing. Safe to repeat."""
        with self._lock:
            if self.state not in (State.ARMED, State.OPEN):
                return
            self.state = State.CLOSING
            serving = list(self._connections)
        self._journal.stop()
        for each in serving:
            _end(each)
        if self._listener is not None:
            _end(self._listener)
            self._listener.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)
        for databases in list(self._databases):
            databases.end()

    def close(self) -> None:
        """`shut`, then wait a moment for all threads together and import what was answered. Safe to repeat."""
        self.shut()
        if self.state is not State.CLOSING:
            return
        deadline = time.monotonic() + JOIN_S
        with self._lock:
            serving = list(self._connections.values())
        for thread in [self._thread, *serving]:
            if thread is not None:
                thread.join(max(0.0, deadline - time.monotonic()))
        self._importing.try_to_run()
        self._journal.close()
        self.state = State.CLOSED

    @property
    def boundary_refused(self) -> bool:
        """True when a call of this listener was refused with a code of the boundary."""
        return bool(self.refused)

    @property
    def calls(self) -> int:
        return self._shared.calls

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.close()

    def _check_token(self) -> None:
        if not self._token_sha256:
            return
        caller = identity.read_caller(self._token_sha256)
        if caller is None or caller.session.id != self.session_id:
            raise SessionRefused("The token is not this session's. The socket was not armed.", code=Code.NOT_OWNER)

    def _raise_fence(self, chain: ledger.Chain, give_up: Callable[[], bool]) -> bool:
        fence = self._fence()
        if fence is None or chain.run_id is None:
            return True
        path = data_places().workflow(str(chain.team_id), str(chain.workflow_id)).database
        return database.raise_fence(path, chain.run_id, fence, give_up)

    def _accept(self) -> None:
        """Take connections, and once a second import what was written meanwhile: pages see calls as they happen."""
        listener = self._listener
        assert listener is not None  # noqa: S101 - set before the thread starts
        try:
            while self.state in (State.ARMED, State.OPEN):
                try:
                    self._serve_in_thread(listener.accept()[0])
                except BlockingIOError:  # nobody came for a second
                    self._importing.try_to_run()
                except Exception:  # it was shut; or no descriptor or thread is left, for as long as that lasts
                    if self.state in (State.ARMED, State.OPEN):
                        logger.warning("A connection of the tool socket could not be taken.", exc_info=True)
                        time.sleep(AFTER_FAULT_S)
        finally:
            connections.close_all()

    def _serve_in_thread(self, accepted: socket.socket) -> None:
        thread = threading.Thread(target=self._serve, args=(accepted,), name="tools-connection", daemon=True)
        with self._lock:
            if self.state not in (State.ARMED, State.OPEN):
                accepted.close()
                return
            full = len(self._connections) >= CONNECTIONS
            if not full:
                self.state = State.OPEN
                try:
                    thread.start()  # within the lock: `close` joins only threads that have begun
                except RuntimeError:
                    accepted.close()
                    raise
                self._connections[accepted] = thread
        if full:
            busy = failure(Code.BUSY, f"At most {CONNECTIONS} connections at a time.", "Reuse one, or try again.")
            with suppress(OSError):
                accepted.settimeout(1.0)
                accepted.sendall(wire.frame({"id": None, **busy.as_json()}))
            accepted.close()

    def _serve(self, accepted: socket.socket) -> None:
        databases = Databases()
        self._databases.add(databases)
        try:
            Conversation(accepted, self, ListenerDesk(self._shared, databases)).run()
        except OSError:
            pass  # the other side went away, or the endpoint is closing
        except Exception:
            logger.exception("A connection of the tool socket ended on a fault of ours")
        finally:
            with self._lock:
                self._connections.pop(accepted, None)
            accepted.close()
            self._databases.discard(databases)
            databases.close()
            connections.close_all()

    def answer(self, call: Call, desk: ListenerDesk) -> Envelope:
        """Dispatch one call; at most IN_FLIGHT at a time, the others wait their turn."""
        if not self._slots.acquire(timeout=PATIENCE_S):
            return failure(Code.BUSY, f"{IN_FLIGHT} calls are in flight. Nothing was done.", "Try again.")
        try:
            if self.state is not State.OPEN:
                raise ConnectionAbortedError
            envelope = dispatch.call(call, desk)
        finally:
            self._slots.release()
        if envelope.code in BOUNDARY:
            self.refused.add(envelope.code)
        return envelope


class Conversation:
    """One connection: hello, then calls, each answered in the order it came."""

    def __init__(self, accepted: socket.socket, endpoint: ToolEndpoint, desk: ListenerDesk) -> None:
        self._socket = accepted
        self._endpoint = endpoint
        self._desk = desk
        self._buffer = bytearray()
        # The kernel's own time-outs: a blocking socket without Python's two extra system calls a message.
        accepted.setblocking(True)
        patience = struct.pack("ll", int(PATIENCE_S), 0)
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, patience)
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, patience)

    def run(self) -> None:
        try:
            hello = self._message()
            if hello is None:
                return
            token = _hello(hello)
        except wire.Malformed as error:
            self._send(None, failure(Code.MALFORMED, f"{error} The connection was ended."))
            return
        while self._one_call(token):
            pass

    def _one_call(self, token: str) -> bool:
        answered: str | None = None
        try:
            message = self._message()
            if message is None:
                return False
            answered = _id_of(message)
            call = _call(message, token)
        except _TooLarge as error:
            self._send(None, failure(Code.MESSAGE_TOO_LARGE, f"{error} Nothing was done.", "Send it in parts."))
            return error.drained
        except wire.TooManyValues as error:
            self._desk.count_call()
            self._send(None, failure(Code.MESSAGE_TOO_LARGE, f"{error} Nothing was done.", "Send it in parts."))
            return True
        except wire.Malformed as error:
            self._desk.count_call()
            self._send(answered, failure(Code.MALFORMED, f"{error} Nothing was done."))
            return True
        except TimeoutError:
            self._send(None, failure(Code.MALFORMED, f"A frame was not complete within {PATIENCE_S:g} s."))
            return False
        self._send(answered, self._endpoint.answer(call, self._desk))
        return True

    def _message(self) -> Any:
        """The next frame's JSON; None at the end. A frame that has begun must end within PATIENCE_S."""
        header = self._exactly(wire.HEADER.size)
        if header is None:
            return None
        (length,) = wire.HEADER.unpack(header)
        if length > wire.MAX_FRAME:
            raise _TooLarge(length, drained=self._drain(length))
        if length <= LARGE:
            return self._body(length)
        with self._endpoint.large:
            return self._body(length)

    def _body(self, length: int) -> Any:
        body = self._exactly(length)
        return None if body is None else wire.parse(body)

    def _exactly(self, count: int) -> bytes | None:
        buffer = self._buffer
        while len(buffer) < count:
            try:
                piece = self._socket.recv(max(65_536, min(count - len(buffer), 1 << 20)))
            except BlockingIOError:
                if buffer or count != wire.HEADER.size:
                    raise TimeoutError from None
                continue  # silence between two calls may last
            if not piece:
                return None
            buffer += piece
        taken = bytes(buffer[:count])
        del buffer[:count]
        return taken

    def _drain(self, length: int) -> bool:
        """Read past a frame that is too large, so that its sender can read why. False when that is too much as well."""
        if length > DRAINED:
            return False
        left = length - len(self._buffer)
        del self._buffer[:length]
        while left > 0:
            try:
                piece = self._socket.recv(min(left, 1 << 20))
            except BlockingIOError:
                return False
            if not piece:
                return False
            left -= len(piece)
        return True

    def _send(self, answered: str | None, envelope: Envelope) -> None:
        frame = wire.frame({"id": answered, **envelope.as_json()})
        if len(frame) > wire.HEADER.size + wire.MAX_FRAME:
            frame = wire.frame({"id": answered, **_too_large_an_answer(len(frame)).as_json()})
        self._socket.sendall(frame)


class _TooLarge(Exception):
    def __init__(self, length: int, *, drained: bool) -> None:
        super().__init__(f"The message has {length} bytes, more than {wire.MAX_FRAME}.")
        self.drained = drained


def _hello(message: Any) -> str:
    """The token's digest. Whose it is, is asked at each call."""
    if not isinstance(message, dict) or set(message) != {"v", "token"} or message["v"] != 1:
        raise wire.Malformed('The first message must be {"v": 1, "token": "..."}.')
    if not isinstance(message["token"], str):
        raise wire.Malformed("The token must be a text.")
    return token_digest(message["token"])


def _id_of(message: Any) -> str | None:
    given = message.get("id") if isinstance(message, dict) else None
    return given if isinstance(given, str) and len(given) <= 64 and given.isascii() else None


def _call(message: Any, token: str) -> Call:
    if not isinstance(message, dict) or not {"id", "tool", "arguments"} <= set(message) <= _CALL_KEYS:
        raise wire.Malformed('A call is {"id", "tool", "arguments"} and may have "session".')
    tool, arguments, named = message["tool"], message["arguments"], message.get("session")
    if not isinstance(tool, str) or not isinstance(arguments, dict):
        raise wire.Malformed("tool must be a text and arguments an object.")
    if named is not None and not isinstance(named, str):
        raise wire.Malformed("session must be a text.")
    return Call(wire.call_id(message["id"]), tool, arguments, token, () if named is None else (named,))


def _too_large_an_answer(size: int) -> Envelope:
    return failure(
        Code.RESULT_TOO_LARGE,
        f"The result has {size} bytes, more than {wire.MAX_FRAME}. Nothing of it was cut off and shown.",
        "Select fewer columns, or take it in pages with max_rows and offset.",
    )


def _listen(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(path))
        os.chmod(path, 0o666)  # noqa: S103 - only this sandbox is given the name; the folder is 0711
        listener.listen(CONNECTIONS)
        # The kernel's own time-out: with Python's, a listener that was shut down would be polled in a busy loop.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", IMPORT_EVERY_S, 0))
    except OSError:
        listener.close()
        raise
    return listener


def _end(each: socket.socket) -> None:
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)


_CALL_KEYS = {"id", "tool", "arguments", "session"}
