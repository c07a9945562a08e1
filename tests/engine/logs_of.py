"""Ways to write a log and read it again, for tests."""

from __future__ import annotations

from pathlib import Path

from engine.logs import LogReader, LogWriter, Masker, Seal, Stream
from engine.places import AttemptPlaces
from engine.sandbox.limits import Limits


def written(
    root: Path, *pieces: bytes | tuple[Stream, bytes], secrets: dict[str, str] | None = None, log_mb: int = 64
) -> tuple[LogReader, Seal]:
    """A sealed log of these pieces, one after the other, and its seal."""
    places = AttemptPlaces(root)
    writer = LogWriter(places, Masker(secrets), Limits(log_mb=log_mb))
    for at, piece in enumerate(pieces):
        stream, data = piece if isinstance(piece, tuple) else (Stream.OUT, piece)
        writer.write(stream, data, at)
    seal = writer.seal(len(pieces))
    return LogReader(places), seal


def everything(reader: LogReader) -> bytes:
    return b"".join(reader.chunks())
