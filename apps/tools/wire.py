"""What travels: strict JSON, its canonical form, and frames of a 32-bit big-endian length and UTF-8 JSON."""

from __future__ import annotations

import hashlib
import json
import struct
from typing import Any
from uuid import UUID

from engine import json_values

MAX_FRAME = 4 * 1024 * 1024
MAX_DEPTH = 64
MAX_VALUES = 200_000
HEADER = struct.Struct(">I")


class Malformed(Exception):
    """The bytes are no JSON that we take; the text says why."""


class TooManyValues(Malformed):
    """More than MAX_VALUES: taking them apart would hold up all other threads for too long."""


def parse(raw: bytes) -> Any:
    """JSON out of bytes. Refuses invalid UTF-8, NaN and Infinity, duplicate keys, and more than MAX_DEPTH levels.

    Lone surrogates and numbers beyond what a float holds are refused by `canonical`, which each call goes through.
    """
    _refuse_too_many(raw)
    try:
        value = _decoder.decode(raw.decode())
    except UnicodeDecodeError:
        raise Malformed("The message is not valid UTF-8.") from None
    except RecursionError:
        raise Malformed(f"The message is nested deeper than {MAX_DEPTH} levels.") from None
    except ValueError as error:
        raise Malformed(f"The message is not valid JSON: {error}.") from None
    if raw.count(b"[") + raw.count(b"{") > MAX_DEPTH and not json_values.shallow(value, MAX_DEPTH):
        raise Malformed(f"The message is nested deeper than {MAX_DEPTH} levels.")
    return value


def _refuse_too_many(raw: bytes) -> None:
    """Counts what stands before or around each value; texts are left out of it only when there may be too many.

    Linear, and quick, whatever the bytes are.
    """
    if len(raw) <= MAX_VALUES or _marks(raw) <= MAX_VALUES:
        return
    plain = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    if plain.count(b'"') > 2 * MAX_VALUES or _marks(b"".join(plain.split(b'"')[::2])) > MAX_VALUES:
        raise TooManyValues(f"The message has more than {MAX_VALUES} values.")


def _marks(raw: bytes) -> int:
    return sum(map(raw.count, (b",", b":", b"[", b"{")))


def canonical(value: Any) -> bytes:
    """One spelling for equal values: sorted keys, no spaces, UTF-8."""
    try:
        return json_values.dump(value)
    except json_values.NotJson as error:
        raise Malformed(f"The message is not valid JSON: {error}.") from None


def argument_digest(tool: str, arguments: Any) -> str:
    return hashlib.sha256(canonical([tool, arguments])).hexdigest()


def frame(value: Any) -> bytes:
    """The bytes of one frame; larger than HEADER + MAX_FRAME is for the caller to refuse."""
    body = _compact(value).encode()
    return HEADER.pack(len(body)) + body


def call_id(text: Any) -> UUID:
    """The id of a call, as its client made it."""
    if isinstance(text, str) and len(text) == 36:
        try:
            return UUID(text)
        except ValueError:
            pass
    raise Malformed("The call's id must be a UUID in its 36 character form, made once for each call.")


def printable(text: str) -> str:
    """On one line, without what could end the quotes it is shown in."""
    return "".join(character if character.isprintable() and character != '"' else "?" for character in text)


def unknown_name(text: str) -> str:
    """What stands for a name that is none of ours: it may be anything, a secret among them, and is kept nowhere."""
    return f"unknown-{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"


_decoder = json.JSONDecoder(object_pairs_hook=json_values.without_twins, parse_constant=json_values.no_constant)
_compact = json.JSONEncoder(separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode
