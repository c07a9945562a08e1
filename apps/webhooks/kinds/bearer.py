"""Bearer: `Authorization: Bearer <token>`; the body is the payload, or an envelope when the trigger says so."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Any

from apps.webhooks.errors import Malformed, UnsupportedType, Unverified
from apps.webhooks.kinds.shape import Credentials, Definition, Said, checked_id, content_type, member_text, parse_json

DELIVERY = "idempotency-key"
ENVELOPE = frozenset({"group", "variables", "payload"})


def digest(token: str) -> str:
    """What is kept of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


def verify(headers: Mapping[str, str], body: bytes, credentials: Credentials) -> str:
    """How the delivery was verified. A token in the address is never looked at."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if not token or scheme.lower() != "bearer":
        raise Unverified("no Authorization: Bearer header")
    given = hashlib.sha256(token.strip().encode("utf-8", "surrogateescape")).hexdigest()
    fits = [hmac.compare_digest(given, kept) for kept in credentials.token_sha256]
    if not any(fits):
        raise Unverified("the token is not one of this trigger's")
    return f"token {fits.index(True) + 1} of {len(fits)}"


def read(headers: Mapping[str, str], body: bytes, definition: Definition) -> Said:
    """An empty body is the payload `{}`. Without an Idempotency-Key each POST is new."""
    media = content_type(headers)
    if body and media != "application/json" and not (media.startswith("application/") and media.endswith("+json")):
        raise UnsupportedType("This hook takes application/json. No run was made.")
    delivery_id = checked_id(headers.get(DELIVERY, ""), "Idempotency-Key")
    payload, text = parse_json(body or b"{}")
    if definition.mode != "envelope":
        return Said(delivery_id=delivery_id, event="", payload=payload, payload_text=text)
    group, variables, inner = _open(payload)
    return Said(
        delivery_id=delivery_id,
        event="",
        payload=inner,
        payload_text=member_text(text, "payload") or "{}",
        group=group,
        variables=variables,
    )


def _open(envelope: Any) -> tuple[str, Mapping[str, Any], Any]:
    if not isinstance(envelope, dict):
        raise Malformed("The body must be an envelope {group, variables, payload}. No run was made.")
    if unknown := sorted(set(envelope) - ENVELOPE):
        raise Malformed(
            f"The envelope has no key {unknown[0][:80]!r}: it is {{group, variables, payload}}. No run was made."
        )
    group, variables = envelope.get("group", ""), envelope.get("variables", {})
    if not isinstance(group, str) or not isinstance(variables, dict):
        raise Malformed("`group` must be text and `variables` an object. No run was made.")
    return group, variables, envelope.get("payload", {})
