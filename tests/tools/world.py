"""Teams, workflows and sessions for the tests of tools; a client that speaks the wire itself."""

from __future__ import annotations

import json
import shutil
import socket
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from django.db import transaction

from apps.accounts.models import Membership, Team, User
from apps.accounts.roles import Role
from apps.tools import actions
from apps.tools.actions import Opened, RunSession
from apps.tools.endpoint import ToolEndpoint
from apps.tools.models import ToolSession
from apps.workflows.models import Workflow
from apps.workflows.places import places_of
from engine.ids import uuid7

DB_TOOLS = ("query_workflow_db", "mutate_workflow_db", "read_receipt")
CREATE = "CREATE TABLE notes (id INTEGER PRIMARY KEY, who TEXT NOT NULL, said TEXT UNIQUE)"


def make_user(role: Role | None = Role.EDITOR, team: Team | None = None) -> User:
    user = User.objects.create_user(f"user-{uuid7().hex[-12:]}")
    if team is not None and role is not None:
        Membership.objects.create(team=team, user=user, role=role)
    return user


def make_workflow(team: Team | None = None, *, slug: str = "", migration: str = CREATE) -> Workflow:
    team = team or Team.objects.create(slug=f"team-{uuid7().hex[-12:]}", name="A team")
    owner = make_user(Role.OWNER, team)
    workflow = Workflow.objects.create(
        team=team,
        owner=owner,
        slug=slug or f"flow-{uuid7().hex[-12:]}",
        title="A workflow",
        schema_version=1,
        code_layout_version=1,
        contract_version="1.0.44",
    )
    if migration:
        places = places_of(workflow)
        places.migrations.mkdir(parents=True, exist_ok=True)
        (places.migrations / "0001_start.sql").write_text(migration)
        from apps.tools import workflow_db

        workflow_db.apply_migrations(workflow)
    return workflow


def open_run(workflow: Workflow, run_id: UUID | None = None) -> ToolSession:
    wanted = RunSession(run_id or uuid7(), "session-group-default-1", workflow, workflow.owner, [], "none")
    with transaction.atomic():
        return actions.open_run_sessions([wanted])[0]


def open_step(
    run: ToolSession,
    *,
    step_id: str = "gate",
    tools: tuple[str, ...] = DB_TOOLS,
    db_access: str = "read-write",
    attempt_id: UUID | None = None,
) -> Opened:
    with transaction.atomic():
        return actions.open_session(
            kind="step",
            name=f"{run.name}-{step_id}",
            workflow=run.workflow,
            acting_user=run.acting_user,
            parent=run,
            run_id=run.run_id,
            step_id=step_id,
            attempt_id=attempt_id or uuid7(),
            tools=tools,
            db_access=db_access,
        )


def open_client(
    workflow: Workflow,
    user: User | None = None,
    *,
    kind: str = "api",
    tools: tuple[str, ...] = DB_TOOLS,
    db_access: str = "read-write",
) -> Opened:
    with transaction.atomic():
        return actions.open_session(
            kind=kind,
            name=f"a {kind} client",
            workflow=workflow,
            acting_user=user or workflow.owner,
            tools=tools,
            db_access=db_access,
        )


def end(session: ToolSession, reason: str = "done") -> bool:
    with transaction.atomic():
        return actions.end_session(session.pk, reason)


@dataclass
class Client:
    """Speaks frames on one connection. Knows nothing of the server's code."""

    path: Path
    token: str
    timeout: float = 30.0

    def __post_init__(self) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(self.timeout)
        try:
            self.socket.connect(str(self.path))
        except OSError:
            self.socket.close()
            raise
        self.send({"v": 1, "token": self.token})

    def send(self, message: Any) -> None:
        self.send_raw(json.dumps(message).encode())

    def send_raw(self, body: bytes) -> None:
        self.socket.sendall(struct.pack(">I", len(body)) + body)

    def send_call(self, tool: str, arguments: Any, *, call_id: str = "", session: str | None = None) -> str:
        call_id = call_id or str(uuid7())
        message = {"id": call_id, "tool": tool, "arguments": arguments}
        if session is not None:
            message["session"] = session
        self.send(message)
        return call_id

    def receive(self) -> dict[str, Any]:
        (length,) = struct.unpack(">I", self._exactly(4))
        return json.loads(self._exactly(length))

    def call(self, tool: str, arguments: Any = None, **more: Any) -> dict[str, Any]:
        call_id = self.send_call(tool, arguments or {}, **more)
        answer = self.receive()
        assert answer["id"] == call_id
        return answer

    def query(self, sql: str, **more: Any) -> dict[str, Any]:
        return self.call("query_workflow_db", {"sql": sql, **more})

    def mutate(self, sql: str, *params: Any) -> dict[str, Any]:
        return self.call("mutate_workflow_db", {"sql": sql, "params": list(params)})

    def close(self) -> None:
        self.socket.close()

    def __del__(self) -> None:
        if hasattr(self, "socket"):
            self.socket.close()

    def _exactly(self, count: int) -> bytes:
        pieces = b""
        while len(pieces) < count:
            piece = self.socket.recv(count - len(pieces))
            if not piece:
                raise ConnectionError("closed by the platform")
            pieces += piece
        return pieces


@contextmanager
def sockets() -> Iterator[Path]:
    """A short folder for sockets: a Unix path may have 107 bytes."""
    folder = Path(tempfile.mkdtemp(prefix="pt-", dir="/tmp"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def listening(opened: Opened, **more: Any) -> Iterator[tuple[ToolEndpoint, Path]]:
    with sockets() as folder:
        endpoint = ToolEndpoint(opened.session.pk, **more)
        path = folder / "tools.sock"
        endpoint.arm(path)
        try:
            yield endpoint, path
        finally:
            endpoint.close()


@contextmanager
def client_of(opened: Opened, **more: Any) -> Iterator[Client]:
    """A client on the socket of its own session."""
    with listening(opened, **more) as (_, path):
        client = Client(path, opened.token)
        try:
            yield client
        finally:
            client.close()
