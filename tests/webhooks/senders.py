"""Senders for the tests: what GitHub and a bearer put on the wire, byte for byte."""

from __future__ import annotations

import itertools
import json
import uuid
from dataclasses import dataclass, field
from typing import Any

from django.http import HttpResponse
from django.test import Client

from apps.webhooks import actions
from apps.webhooks.models import Delivery, Trigger
from tests.factories import Cast, document, make_team, make_workflow
from tests.webhooks.wire import BODIES, SECRET, event_of, payload, signature

__all__ = ["BODIES", "SECRET", "Bearer", "GitHub", "event_of", "make_hook", "only_delivery", "payload", "signature"]

_numbers = itertools.count(1)


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
