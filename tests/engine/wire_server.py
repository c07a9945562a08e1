"""A server that speaks the wire of the tool socket (SANDBOX B.10), for tests of its client."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

Answer = Callable[[dict[str, Any]], dict[str, Any] | None]


class Server:
    """`answer` makes the reply to a call; None ends the connection instead."""

    def __init__(self, path: Path) -> None:
        self.answer: Answer = lambda call: {"success": True, "result": call["arguments"]}
        self.hellos: list[dict[str, Any]] = []
        self.calls: list[dict[str, Any]] = []
        self._connections: list[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Ends the listener and every connection."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def _accept(self) -> None:
        while True:
            try:
                accepted, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(accepted)
            threading.Thread(target=self._serve, args=(accepted,), daemon=True).start()

    def _serve(self, accepted: socket.socket) -> None:
        with accepted, accepted.makefile("rb") as stream:
            try:
                self.hellos.append(_frame(stream.read))
                while True:
                    call = _frame(stream.read)
                    self.calls.append(call)
                    answer = self.answer(call)
                    if answer is None:
                        return
                    body = json.dumps({"id": call["id"], "result": None, "error": None, **answer}).encode()
                    accepted.sendall(struct.pack(">I", len(body)) + body)
            except (struct.error, OSError):
                return


def _frame(read: Callable[[int], bytes]) -> dict[str, Any]:
    (length,) = struct.unpack(">I", read(4))
    found: dict[str, Any] = json.loads(read(length))
    return found
