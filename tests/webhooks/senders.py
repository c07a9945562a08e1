"""Senders for the tests: what GitHub and a bearer put on the wire, byte for byte."""

from __future__ import annotations

import hashlib
import hmac
import itertools
import json
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.http import HttpResponse
from django.test import Client

from apps.webhooks import actions
from apps.webhooks.models import Delivery, Trigger
from tests.factories import Cast, document, make_team, make_workflow

PAYLOADS = Path(__file__).parent / "payloads"
BODIES = sorted(path.name for path in PAYLOADS.glob("github__*.json"))
SECRET = "a secret that both sides know"

_numbers = itertools.count(1)


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


@dataclass
class GitHub:
    """Posts to a trigger's hook as GitHub does."""

    trigger: Trigger
    secret: str = SECRET
    client: Client = field(default_factory=lambda: Client(enforce_csrf_checks=True))

    def post(self, body: bytes | None = None, **how: Any) -> HttpResponse:
        body = payload() if body is None else body
        headers = {
            "X-GitHub-Event": how.pop("event", "pull_request"),
            "X-GitHub-Delivery": how.pop("delivery", str(uuid.uuid4())),
            "X-Hub-Signature-256": how.pop("signature", signature(body, self.secret)),
            "User-Agent": "GitHub-Hookshot/044aadd",
            **how.pop("headers", {}),
        }
        kept = {name: value for name, value in headers.items() if value is not None}
        content_type = how.pop("content_type", "application/json")
        assert not how
        return self.client.generic("POST", f"/hooks/{self.trigger.key}", body, content_type, headers=kept)


@dataclass
class Bearer:
    """Posts to a trigger's hook with a token."""

    trigger: Trigger
    token: str
    client: Client = field(default_factory=lambda: Client(enforce_csrf_checks=True))

    def post(self, value: Any = None, **how: Any) -> HttpResponse:
        body = how.pop("body", None)
        body = json.dumps({} if value is None else value).encode() if body is None else body
        headers = {"Authorization": f"Bearer {self.token}", **how.pop("headers", {})}
        if "key" in how:
            headers["Idempotency-Key"] = how.pop("key")
        kept = {name: value for name, value in headers.items() if value is not None}
        content_type = how.pop("content_type", "application/json")
        query = how.pop("query", "")
        assert not how
        return self.client.generic("POST", f"/hooks/{self.trigger.key}{query}", body, content_type, headers=kept)


def make_hook(cast: Cast | None = None, *, kind: str = "github", raw: dict[str, Any] | None = None, **keys: Any) -> Any:
    """A workflow with one trigger, and its sender: GitHub, or Bearer with its token."""
    cast = cast or make_team()
    workflow = make_workflow(cast.team, cast.owner, raw or document())
    wanted = {"kind": kind, "name": f"hook {next(_numbers)}", **keys}
    secret = SECRET if kind == "github" else ""
    made = actions.make_trigger(workflow=workflow, document=wanted, by=cast.owner, secret=secret)
    return GitHub(made.trigger) if kind == "github" else Bearer(made.trigger, made.secret)


def only_delivery() -> Delivery:
    return Delivery.objects.get()
