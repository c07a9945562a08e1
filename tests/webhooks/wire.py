"""What GitHub puts on the wire, byte for byte. Knows nothing of the product."""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path

PAYLOADS = Path(__file__).parent / "payloads"
BODIES = sorted(path.name for path in PAYLOADS.glob("github__*.json"))
SECRET = "a secret that both sides know"


def payload(name: str = "github__pull_request_opened.json") -> bytes:
    return (PAYLOADS / name).read_bytes()


def event_of(name: str) -> str:
    """The event of a payload file: `github__pull_request_opened.json` is of `pull_request`."""
    stem = name.removeprefix("github__").removesuffix(".json")
    known = ("check_run", "issue_comment", "issues", "ping", "pull_request", "push", "workflow_run")
    return next(event for event in known if stem == event or stem.startswith(f"{event}_"))


def signature(body: bytes, secret: str = SECRET) -> str:
    """Computed here and not by the product, so that both must agree with GitHub's own definition."""
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
