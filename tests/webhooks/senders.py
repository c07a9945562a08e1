"""Senders for the tests: what GitHub and a bearer put on the wire, byte for byte."""

from __future__ import annotations

import itertools
import json
import uuid
from dataclasses import dataclass
from typing import Any

from asgiref.sync import async_to_sync, sync_to_async
from django.http import HttpResponse

from apps.webhooks import actions
from apps.webhooks.accept import accept_deliveries
from apps.webhooks.arrivals import Answer, Arrival
from apps.webhooks.door import Door
from apps.webhooks.models import Delivery, Trigger
from config.front import Front
from tests.factories import Cast, document, make_team, make_workflow
from tests.webhooks.wire import BODIES, SECRET, event_of, payload, signature

__all__ = [
    "BODIES",
    "SECRET",
    "Bearer",
    "GitHub",
    "event_of",
    "knock",
    "make_hook",
    "only_delivery",
    "payload",
    "scope_of",
    "signature",
    "talk",
]

_numbers = itertools.count(1)


@dataclass
class GitHub:
    """Posts to a trigger's hook as GitHub does."""

    trigger: Trigger
    secret: str = SECRET

    def post(self, body: bytes | None = None, **how: Any) -> HttpResponse:
        body = payload() if body is None else body
        headers = {
            "X-GitHub-Event": how.pop("event", "pull_request"),
            "X-GitHub-Delivery": how.pop("delivery", str(uuid.uuid4())),
            "X-Hub-Signature-256": how.pop("signature", signature(body, self.secret)),
            "User-Agent": "GitHub-Hookshot/044aadd",
            **how.pop("headers", {}),
        }
        headers["Content-Type"] = how.pop("content_type", "application/json")
        assert not how
        return knock(scope_of(self, headers), body)


@dataclass
class Bearer:
    """Posts to a trigger's hook with a token."""

    trigger: Trigger
    token: str

    def post(self, value: Any = None, **how: Any) -> HttpResponse:
        body = how.pop("body", None)
        body = json.dumps({} if value is None else value).encode() if body is None else body
        headers = {"Authorization": f"Bearer {self.token}", **how.pop("headers", {})}
        if "key" in how:
            headers["Idempotency-Key"] = how.pop("key")
        headers["Content-Type"] = how.pop("content_type", "application/json")
        query = how.pop("query", "")
        assert not how
        return knock({**scope_of(self, headers), "query_string": query.encode()}, body)


class Told(HttpResponse):
    """What a sender is told."""

    def json(self) -> Any:
        return json.loads(self.content)


def scope_of(sender: GitHub | Bearer, headers: dict[str, str | None], method: str = "POST") -> dict[str, Any]:
    """The scope that a server makes of a request with these headers; those that are None are not sent."""
    kept = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items() if value is not None]
    path = f"/hooks/{sender.trigger.key}"
    return {"type": "http", "method": method, "path": path, "headers": kept, "client": ["192.0.2.1", 5]}


def knock(scope: dict[str, Any], *pieces: bytes) -> Told:
    """One request through front and door, accepted at once and in this thread: within the test's own transaction."""
    return async_to_sync(talk)(Front(Door(_at_once)), scope, *pieces)


async def talk(application: Any, scope: dict[str, Any], *pieces: bytes) -> Told:
    """One request, its body in these pieces."""
    messages = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]
    messages[-1]["more_body"] = False
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return messages.pop(0)

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await application(scope, receive, send)
    headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return Told(sent[1]["body"], status=sent[0]["status"], headers=headers)


async def _at_once(arrival: Arrival) -> Answer:
    return (await sync_to_async(accept_deliveries)([arrival]))[0]


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
