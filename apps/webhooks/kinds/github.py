"""GitHub: `X-Hub-Signature-256` over the raw bytes, JSON or form encoded bodies."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from urllib.parse import parse_qs

from apps.webhooks.errors import Malformed, UnsupportedType, Unverified
from apps.webhooks.kinds.shape import Credentials, Definition, Said, checked_id, content_type, parse_json, plain

SIGNATURE = "x-hub-signature-256"
DELIVERY = "x-github-delivery"


def sign(secret: str, body: bytes) -> str:
    """The header's value for these exact bytes."""
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def verify(headers: Mapping[str, str], body: bytes, credentials: Credentials) -> str:
    """How the delivery was verified. Compares bytes: `compare_digest` raises on text that is not ASCII."""
    given = headers.get(SIGNATURE, "").encode("utf-8", "surrogateescape")
    if not given:
        raise Unverified("no X-Hub-Signature-256 header")
    fits = [hmac.compare_digest(given, sign(secret, body).encode()) for secret in credentials.secrets]
    if not any(fits):
        raise Unverified("the signature does not fit the bytes that came")
    return f"signature fits secret {fits.index(True) + 1} of {len(fits)}"


def read(headers: Mapping[str, str], body: bytes, definition: Definition) -> Said:
    """`payload` is the body as sent; the event carries its action: `pull_request.opened`."""
    payload, text = parse_json(_payload_text(content_type(headers), body))
    if not isinstance(payload, dict):
        raise Malformed("A GitHub payload is a JSON object. No run was made.")
    delivery_id = checked_id(headers.get(DELIVERY, ""), "X-GitHub-Delivery")
    event = checked_id(headers.get("x-github-event", ""), "X-GitHub-Event")
    if not delivery_id or not event:
        raise Malformed("X-GitHub-Delivery and X-GitHub-Event are needed. No run was made.")
    action, sender = plain(payload.get("action"), 60), payload.get("sender")
    return Said(
        delivery_id=delivery_id,
        event=f"{event}.{action}"[:120] if action else event[:120],
        payload=payload,
        payload_text=text,
        sender=plain(sender.get("login"), 100) if isinstance(sender, dict) else "",
        ping=event == "ping",
    )


def _payload_text(media: str, body: bytes) -> bytes | str:
    if media == "application/json":
        return body
    if media != "application/x-www-form-urlencoded":
        raise UnsupportedType("GitHub sends application/json or application/x-www-form-urlencoded. No run was made.")
    try:
        fields = parse_qs(body.decode("ascii"), strict_parsing=True, errors="strict", max_num_fields=8)
    except ValueError:
        raise Malformed("The form could not be read. No run was made.") from None
    if len(fields.get("payload", ())) != 1:
        raise Malformed("The form must have exactly one field `payload`. No run was made.")
    return fields["payload"][0]
