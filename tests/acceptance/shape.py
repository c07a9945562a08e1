"""What the tests of the failing shape share: workflows that leave marks, clients over HTTP, wrongful calls."""

from __future__ import annotations

import base64
import hashlib
import http.client
import http.cookiejar
import json
import re
import sqlite3
import subprocess
import sys
import time
import urllib.parse
import urllib.request
import uuid
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.product import ROOT, Product

MARKS = Path(__file__).parent / "marks"
DB_TOOLS = ["query_workflow_db", "mutate_workflow_db"]
INSERT = "INSERT INTO marks VALUES (?, ?, ?, ?, ?)"
PASSWORD = "correct-horse-battery"

PREPARE = """
import pathlib, shutil, tempfile
from apps.accounts import actions as accounts
from apps.accounts.models import User
from apps.workflows import actions as workflows
from apps.workflows.places import places_of
by = User.objects.create_user("somebody", "somebody@example.test", given["password"])
team = accounts.create_team(slug="team", name="Team", owner=by)
databases = {}
for slug, changes in given["flows"].items():
    with tempfile.TemporaryDirectory() as kept:
        folder = shutil.copytree(given["folder"], pathlib.Path(kept, slug))
        document = json.loads((folder / "workflow.json").read_text())
        document["slug"] = slug
        document["variables"][0]["value"] = slug
        document["variables"][1]["value"] = changes["calls"]
        steps = [step for step in document["plan"]["steps"] if step["id"] in changes["steps"]]
        steps[-1].pop("next_step_id", None)
        document["plan"]["steps"] = steps
        (folder / "workflow.json").write_text(json.dumps(document))
        databases[slug] = str(places_of(workflows.import_workflow(team, by, folder)).database)
answer({"token": accounts.make_token(team, by, name="test", scopes=["read", "run", "build"]).secret,
        "databases": databases})
"""

FACTS = """
from apps.tools import ledger
from apps.tools.models import OwnershipDiagnostic, ToolSession
names = ("id", "kind", "name", "workflow__slug", "parent_id", "run_id", "step_id", "token_sha256", "state")
told = ("id", "tool", "reason", "caller", "tool_session", "authority", "caller_parent", "caller_run_id", "owner_run_id")
answer({"sessions": list(ToolSession.objects.values(*names)),
        "diagnostics": list(OwnershipDiagnostic.objects.order_by("pk").values(*told)),
        "ledger": [row for key in ToolSession.objects.values_list("pk", flat=True) for row in ledger.export(key)],
        "siblings": globals().get("siblings")})
"""


def digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


class Http:
    """One kept connection to the product. For one thread."""

    def __init__(self, product: Product, token: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", product.port, timeout=60)
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        sent = None if body is None else json.dumps(body)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self._connection.request(method, f"/api/v1{path}", sent, {**self._headers, **named})
        response = self._connection.getresponse()
        text = response.read()
        return response.status, json.loads(text) if text else None

    def close(self) -> None:
        self._connection.close()


@dataclass
class Client:
    """A chat or api session over HTTP that writes its own name, again and again."""

    product: Product
    flow: str
    id: str
    token: str
    written: int = 0
    calls: int = 0
    refused: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.http = Http(self.product, self.token)

    def call(self, tool: str, arguments: Any) -> Any:
        """A rightful call; its result, or None when it was refused, which is kept."""
        self.calls += 1
        status, answer = self.http("POST", f"/tools/{tool}", arguments, Idempotency_Key=str(uuid.uuid4()))
        if status == 503 and answer["error"]["code"] == "busy":  # nothing was done
            return self.call(tool, arguments)
        if status != 200 or not answer["success"]:
            self.refused.append((status, answer))
            return None
        return answer["result"]

    def write(self) -> None:
        mark = [self.flow, "", "client", digest(self.token), self.written]
        self.written += self.call("mutate_workflow_db", {"sql": INSERT, "params": mark}) is not None

    def read(self) -> None:
        count = "SELECT count(*) AS mine, (SELECT max(flow) FROM marks) AS flow FROM marks WHERE writer = ?"
        answer = self.call("query_workflow_db", {"sql": count, "params": [digest(self.token)]})
        assert answer is None or answer["rows"][0]["mine"] == self.written, answer
        assert answer is None or answer["rows"][0]["flow"] in (None, self.flow), answer


class World:
    """The product with its workflows, and the token of one who may run and build."""

    def __init__(self, product: Product, flows: Mapping[str, Any]) -> None:
        self.product = product
        made = product.ask(PREPARE, folder=str(MARKS), flows=flows, password=PASSWORD)
        self.token, self.databases = made["token"], made["databases"]
        self.api = Http(product, self.token)

    def start(self, flow: str, api: Http | None = None) -> str:
        status, run = (api or self.api)("POST", f"/workflows/{flow}/runs", {})
        assert status == 202, run
        return str(run["run_id"])

    def open(self, kind: str, flow: str, name: str = "", api: Http | None = None) -> Client:
        asked = {"kind": kind, "workflow": flow, "tools": DB_TOOLS, "name": name}
        status, made = (api or self.api)("POST", "/sessions", asked)
        assert status == 201, made
        return Client(self.product, flow, made["id"], made["token"])

    def end(self, client: Client, api: Http | None = None) -> None:
        client.http.close()
        assert (api or self.api)("DELETE", f"/sessions/{client.id}")[0] == 204

    def let_leave(self, runs: Mapping[str, str]) -> None:
        """Once each run, by the workflow it is of, has made all its calls: none ends while another still tries it."""
        self.present(list(runs), sorted(set(runs.values())), "done")
        for run, flow in runs.items():
            client = self.open("chat", flow)
            order = {"sql": "INSERT INTO go VALUES (?, '[]')", "params": [f"{run} leaves"]}
            assert client.call("mutate_workflow_db", order), client.refused
            self.end(client)

    def rows(self, flow: str, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """What is really in the database of a workflow."""
        with closing(sqlite3.connect(f"file:{self.databases[flow]}?mode=ro", uri=True, timeout=30)) as database:
            return database.execute(sql, values).fetchall()

    def present(self, runs: list[str], flows: list[str], step: str) -> dict[str, str]:
        """Wait until the step of each run has said that it is there; their tokens, by run."""

        def all_there() -> dict[str, str] | None:
            there = {
                run: token
                for flow in flows
                for run, token in self.rows(flow, "SELECT run, token FROM present WHERE step = ?", step)
            }
            if set(runs) <= set(there):
                return {run: there[run] for run in runs}
            time.sleep(0.1)
            for run in [run for run in runs if run not in there][:2]:
                over = self._over(run)
                assert over is None, f"a run ended before its step {step} was there: {over}"
            return None

        return self.product.until(all_there, 240)  # a bound, not a measure

    def ended(self, runs: list[str], within_s: float) -> None:
        """Wait until each of the runs has succeeded."""
        for run in runs:
            seen = self.product.until(lambda run=run: self._over(run), within_s)
            assert seen["status"] == "succeeded", seen

    def _over(self, run: str) -> dict[str, Any] | None:
        time.sleep(0.1)  # they have calls to make, which waiting should not slow down
        status, seen = self.api("GET", f"/runs/{run}")
        assert status == 200, seen
        return None if seen["status"] in {"queued", "running"} else dict(seen)

    def told(self, run: str) -> dict[str, Any]:
        """What the step hammer of a run has told of itself, in its log."""
        piece = self.api("GET", f"/runs/{run}/steps/hammer/log?limit=1000000")[1]
        text = base64.b64decode(piece["data_base64"]).decode()
        return dict(json.loads(text[text.index("TOLD ") + 5 :].splitlines()[0]))

    def pages(self, path: str, name: str = "items") -> list[dict[str, Any]]:
        """All of a list of the API."""
        found, cursor = [], ""
        while cursor is not None:
            status, page = self.api("GET", f"{path}?limit=200" + (f"&cursor={cursor}" if cursor else ""))
            assert status == 200, page
            found += page[name]
            cursor = page["next_cursor"]
        return found

    def chains_hold(self) -> None:
        """`manage.py verify_ledger` says so."""
        done = subprocess.run(
            [sys.executable, "manage.py", "verify_ledger"],
            cwd=ROOT,
            env=self.product.environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert ", 0 with faults" in done.stdout


class Reader:
    """Somebody who signs in and looks at pages."""

    def __init__(self, product: Product) -> None:
        self._url = product.url
        cookies = http.cookiejar.CookieJar()
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(cookies))
        form = self.page("/accounts/login/")
        found = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', form)
        assert found is not None
        fields = {"csrfmiddlewaretoken": found[1], "login": "somebody", "password": PASSWORD}
        asked = urllib.request.Request(
            f"{self._url}/accounts/login/",
            urllib.parse.urlencode(fields).encode(),
            {"Referer": f"{self._url}/accounts/login/", "Origin": self._url},
        )
        self._opener.open(asked, timeout=30).close()

    def page(self, path: str) -> str:
        with self._opener.open(self._url + path, timeout=30) as response:
            return str(response.read().decode())
