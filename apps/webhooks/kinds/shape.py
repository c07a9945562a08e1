"""What each kind of trigger gives: the shape that the modules of this package share."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from apps.webhooks.errors import Malformed, UnsupportedType
from engine import json_values

LONGEST_ID = 200
DEEPEST = 200  # brackets within brackets


@dataclass(frozen=True)
class Definition:
    """The parts of a trigger's document that say how to read a delivery."""

    events: tuple[str, ...] = ()
    mode: str = "raw"
    allowed_variables: tuple[str, ...] = ()
    mappings: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Definition:
        return cls(
            events=tuple(document.get("events") or ()),
            mode=document.get("mode") or "raw",
            allowed_variables=tuple(document.get("allowed_variables") or ()),
            mappings=document.get("mappings") or {},
        )

    def listens_to(self, event: str) -> bool:
        """An empty list listens to all; `pull_request` to each action of it; `pull_request.opened` to that one."""
        return not self.events or event in self.events or event.partition(".")[0] in self.events


@dataclass(frozen=True)
class Said:
    """A delivery as read: `payload_text` is the JSON that goes into the delivery file, byte for byte as sent."""

    delivery_id: str
    event: str
    payload: Any
    payload_text: str
    group: str = ""
    variables: Mapping[str, Any] = field(default_factory=dict)
    sender: str = ""
    ping: bool = False


@dataclass(frozen=True)
class Credentials:
    """What a trigger can be proven with: up to two of each, so that one can be replaced without a gap."""

    secrets: Sequence[str] = ()
    token_sha256: Sequence[str] = ()


def content_type(headers: Mapping[str, str]) -> str:
    """The media type, lower-case. Refuses what would have to be unpacked or re-coded before it could be read."""
    if headers.get("content-encoding", "identity").strip().lower() not in {"", "identity"}:
        raise UnsupportedType("Compressed bodies are not taken. Send the JSON as it is. No run was made.")
    media, *parameters = (part.strip() for part in headers.get("content-type", "").lower().split(";"))
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "charset" and value.strip().strip('"') not in {"utf-8", "utf8", "us-ascii"}:
            raise UnsupportedType(f"The charset must be utf-8, not {plain(value.strip(), 40)}. No run was made.")
    return media


def parse_json(raw: bytes | str) -> tuple[Any, str]:
    """The value and its text. Refuses what is not UTF-8 JSON, and numbers that JSON does not have."""
    try:
        text = raw.decode("utf-8") if isinstance(raw, bytes) else raw
        value = json.loads(text, parse_constant=_no_constant, parse_float=json_values.finite)
        if text.count("[") + text.count("{") > DEEPEST and not json_values.shallow(value, DEEPEST):
            raise RecursionError
    except UnicodeDecodeError:
        raise Malformed("The body is not UTF-8. No run was made.") from None
    except RecursionError:
        raise Malformed("The body is nested too deeply. No run was made.") from None
    except ValueError as error:
        why = "a whole number has too many digits" if "set_int_max_str_digits" in str(error) else error
        raise Malformed(f"The body is not JSON ({why}). No run was made.") from None
    return value, text


def member_text(text: str, name: str) -> str:
    """The text of one member of the object that `text` is, as it was sent; empty when there is none of that name.

    Of a name that stands twice it is the last, as `json.loads` has it. `text` must have been parsed before.
    """
    found, decoder, at = "", json.JSONDecoder(), text.index("{") + 1
    while text[at := _past_space(text, at)] != "}":
        if text[at] == ",":
            at = _past_space(text, at + 1)
        key, end = decoder.raw_decode(text, at)
        start = _past_space(text, _past_space(text, end) + 1)
        _, at = decoder.raw_decode(text, start)
        if key == name:
            found = text[start:at]
    return found


def checked_id(given: str, header: str) -> str:
    """The sender's delivery id: printable ASCII, at most 200 characters."""
    if len(given) > LONGEST_ID or not (given.isascii() and given.isprintable()):
        raise Malformed(f"{header} must be at most {LONGEST_ID} printable ASCII characters. No run was made.")
    return given


def plain(text: object, limit: int) -> str:
    """Text of the sender's as any database can hold it and any page show it: printable ASCII, cut."""
    if not isinstance(text, str):
        return ""
    ascii_only = text[:limit].encode("ascii", "backslashreplace").decode()
    return "".join(letter if letter.isprintable() else "?" for letter in ascii_only)[:limit]


def _past_space(text: str, at: int) -> int:
    while text[at] in " \t\r\n":
        at += 1
    return at


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")
