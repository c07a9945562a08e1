"""What an attempt wrote, as its page shows it: read through the one safe way into step-writable folders."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from django.utils.safestring import SafeString

from apps.runs import markdown, outputs
from apps.runs.models import Attempt
from engine.json_values import indented
from engine.sandbox.errors import Absent, FileRefused
from engine.sandbox.files import Beneath

PREVIEW_BYTES = 48 * 1024
DOWNLOAD_BYTES = 256 * 1024 * 1024
PIECE_BYTES = 256 * 1024
PREVIEWS = 8
_TEXTS = frozenset({"txt", "csv", "log", "html", "svg", "xml", "yaml", "yml"})


@dataclass(frozen=True)
class Output:
    """One file. `form` is json, markdown or text when it can be looked at here; `problem` says why it is not sent."""

    path: str
    size: int
    sha256: str
    form: str
    problem: str


@dataclass(frozen=True)
class Preview:
    output: Output
    text: str
    html: SafeString | None


class Download:
    """One open output on its way out, in pieces that no worker of the web waits for. Closed with its response."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.size = os.fstat(file.fileno()).st_size

    async def __aiter__(self) -> AsyncIterator[bytes]:
        # Asynchronous, for Django collects the whole of any other iterator before the first byte goes out.
        left = self.size
        while left > 0 and (piece := await asyncio.to_thread(self._file.read, min(PIECE_BYTES, left))):
            left -= len(piece)
            yield piece

    def close(self) -> None:
        self._file.close()


def listing(attempt: Attempt) -> list[Output]:
    """What was collected when the attempt ended; empty while it runs."""
    return [_output(said) for said in attempt.outputs]


def previews(attempt: Attempt, listed: list[Output]) -> list[Preview]:
    """Those that are small enough to be read on the page, at most PREVIEWS."""
    small = [one for one in listed if one.form and not one.problem and one.size <= PREVIEW_BYTES]
    shown = (_preview(attempt, output) for output in small[:PREVIEWS])
    return [found for found in shown if found is not None]


def opened(attempt: Attempt, path: str) -> Download:
    """One output, opened to be sent.

    Raises FileRefused: not collected, with a problem, no plain file, a link, or too large to be sent.
    """
    output = next((one for one in listing(attempt) if one.path == path), None)
    if output is None or output.problem:
        raise Absent(path, "it is no output of this attempt that may be sent.")
    with Beneath(outputs.of_attempt(attempt).out) as folder:
        return Download(folder.open(path, DOWNLOAD_BYTES))


def _output(said: dict[str, Any]) -> Output:
    problem = said.get("problem") or ("it contains a secret" if said.get("contains_secret") else "")
    path = said["path"]
    return Output(path, said.get("bytes") or 0, said.get("sha256") or "", _form(path), problem)


def _preview(attempt: Attempt, output: Output) -> Preview | None:
    try:
        with Beneath(outputs.of_attempt(attempt).out) as folder:
            text = folder.read(output.path, PREVIEW_BYTES).decode("utf-8", "replace")
    except FileRefused:
        return None
    if output.form == "json":
        return Preview(output, _indented(text), None)
    return Preview(output, text, markdown.harmless(text) if output.form == "markdown" else None)


def _form(path: str) -> str:
    ending = path.rsplit(".", 1)[-1].lower()
    forms = {"json": "json", "md": "markdown", "markdown": "markdown"}
    return forms.get(ending, "text" if ending in _TEXTS else "")


def _indented(text: str) -> str:
    try:
        return indented(json.loads(text))
    except (ValueError, RecursionError):
        return text
