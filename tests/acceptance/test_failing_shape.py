"""The fault this product exists to make impossible (BEHAVIOUR 6), against the product as it is started.

Three runs of two workflows, a chat and an api session, all live at once, each calling the same tools, while further
sessions and runs start and end; and calls with identities that are not the caller's, from within steps and over HTTP.
"""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.acceptance.proof import Expected, Sessions
from tests.acceptance.shape import DB_TOOLS, FACTS, INSERT, Client, Http, Reader, World, digest
from tests.product import Product

pytestmark = [pytest.mark.acceptance, pytest.mark.sandbox, pytest.mark.timeout(900)]

CALLS = 1000
COPIES = 20
CALLS_OF_A_COPY = 30
FLOWS = {
    "first": {"steps": ["before", "hammer"], "calls": CALLS},
    "second": {"steps": ["before", "hammer"], "calls": CALLS},
    "passing": {"steps": ["before"], "calls": 0},
    "copies": {"steps": ["hammer"], "calls": CALLS_OF_A_COPY},
    "twins": {"steps": ["hammer"], "calls": CALLS_OF_A_COPY},
}
FORGED = "pst_" + "A" * 43
SIBLING = """
from apps.tools import actions
from apps.tools.models import ToolSession
from django.db import transaction
siblings = {}
with transaction.atomic():
    for run in given["runs"]:
        parent = ToolSession.objects.select_related("workflow", "acting_user").get(run_id=run, kind="run")
        made = actions.open_session(
            kind="agent", name="a sibling", workflow=parent.workflow, acting_user=parent.acting_user, parent=parent,
            run_id=parent.run_id, tools=given["tools"], db_access="read-write")
        siblings[run] = made.token
"""


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with Product(PULSE_RUN_SLOTS=str(COPIES)) as product:
        made = World(product, FLOWS)
        yield made
        made.api.close()


class Shape:
    """The three runs and the two clients, and what is tried against them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.runs = [world.start("first"), world.start("first"), world.start("second")]
        self.chat = world.open("chat", "first", "session-group-default-1")
        self.api = world.open("api", "second", "session-group-default-1")
        self.gone = world.open("chat", "first")
        world.end(self.gone)
        self.hammers = world.present(self.runs, ["first", "second"], "hammer")
        self.befores = world.present(self.runs, ["first", "second"], "before")
        listed = world.pages("/sessions")
        self.looks = next(row["name"] for row in listed if row["kind"] == "run" and row["run_id"] == self.runs[0])
        self.lookalike = world.open("chat", "first", self.looks)
        facts = world.product.ask(SIBLING + FACTS, runs=self.runs, tools=DB_TOOLS)
        self.siblings = facts["siblings"]
        self.sessions = Sessions(facts)
        self.expected: list[Expected] = []

    def flow(self, run: str) -> str:
        return "second" if run == self.runs[2] else "first"

    def client(self, run: str) -> Client:
        return self.api if self.flow(run) == "second" else self.chat

    def tries_of(self, run: str) -> list[tuple[str, str, str | None, str]]:
        """What a step tries on its own socket: kind, token (its own when empty), session it names, the right code."""
        id_of = self.sessions.of_run
        foreign, twin = self.runs[2 if run != self.runs[2] else 0], self.runs[1 if run != self.runs[1] else 0]
        own = self.sessions.of(self.hammers[run])
        of_sibling = self.sessions.of(self.siblings[run])["id"]
        return [
            ("rightful: names itself", "", own["id"], "served"),
            ("rightful: names its authority", "", own["parent_id"], "served"),
            ("forged", FORGED, None, "session_unknown"),
            ("foreign", self.hammers[foreign], None, "not_owner"),
            ("twin", self.hammers[twin], None, "not_owner"),
            ("sibling", self.siblings[run], None, "not_owner"),
            ("ended sibling", self.befores[run], None, "session_ended"),
            ("ended client", self.gone.token, None, "session_ended"),
            ("chat", self.chat.token, None, "not_owner"),
            ("lookalike", self.lookalike.token, None, "not_owner"),
            ("names a foreign session", "", self.sessions.of(self.hammers[foreign])["id"], "not_owner"),
            ("names a foreign authority", "", id_of(foreign)["id"], "not_owner"),
            ("names a sibling", "", of_sibling, "not_owner"),
            ("names an ended sibling", "", self.sessions.of(self.befores[run])["id"], "not_owner"),
            ("names a chat", "", self.chat.id, "not_owner"),
            ("names what looks like a child", "", id_of(run)["name"] + "-hammer", "not_owner"),
            ("names what two are called", "", "session-group-default-1", "ambiguous"),
        ]

    def go(self) -> None:
        """Give each step its orders, through the client of its own workflow."""
        for run in self.runs:
            tries = self.tries_of(run)
            own = self.sessions.of(self.hammers[run])["id"]
            order = [run, json.dumps([try_[:3] for try_ in tries])]
            assert self.client(run).call("mutate_workflow_db", {"sql": "INSERT INTO go VALUES (?, ?)", "params": order})
            for _, token, named, code in tries:
                if code != "served":
                    self.expect(code, token or self.hammers[run], own if token else named or "")

    def expect(self, code: str, presented: str, meant: str) -> None:
        self.expected.append(self.sessions.refusal(code, presented, meant))

    def trespass_over_http(self) -> None:
        """Calls over HTTP with a session that is not one's own, and what each must be answered."""
        victim = self.sessions.of(self.hammers[self.runs[1]])["id"]
        looks = self.looks
        chat, api = self.chat.token, self.api.token
        for token, named, status, code in [
            (FORGED, victim, 401, "session_unknown"),
            (self.gone.token, None, 401, "session_ended"),
            (self.befores[self.runs[0]], None, 401, "session_ended"),
            (self.gone.token, victim, 401, "session_ended"),
            (chat, self.api.id, 403, "not_owner"),
            (chat, victim, 403, "not_owner"),
            (api, self.sessions.of_run(self.runs[2])["id"], 403, "not_owner"),
            (api, self.gone.id, 403, "not_owner"),
            (chat, f"{looks}-hammer", 403, "not_owner"),
            (chat, looks, 403, "ambiguous"),
            (self.siblings[self.runs[0]], self.sessions.of(self.hammers[self.runs[0]])["id"], 403, "not_owner"),
        ]:
            self._try(token, named, status, code, in_body=False)
            if named is not None:
                self._try(token, named, status, code, in_body=True)

    def _try(self, token: str, named: str | None, status: int, code: str, *, in_body: bool) -> None:
        http = Http(self.world.product, token)
        stolen = {"sql": INSERT, "params": ["stolen", "", "stolen", digest(token), -1]}
        body = {"arguments": stolen, "session": named} if in_body else stolen
        headers = {"X_Pulse_Session": named} if named is not None and not in_body else {}
        answered, answer = http("POST", "/tools/mutate_workflow_db", body, **headers)
        http.close()
        assert (answered, answer["success"], answer["error"]["code"]) == (status, False, code), (named, answer)
        assert answer["error"]["message"] == "mutate_workflow_db caller does not own this tool session"
        self.expect(code, token, named or self.sessions.of(token)["id"])


class ComingsAndGoings:
    """Other sessions and runs of the same names start, call and end all the while."""

    def __init__(self, world: World, seed: int) -> None:
        self._world = world
        self._rng = random.Random(seed)
        self._stop = threading.Event()
        self.clients: list[Client] = []
        self.runs: list[str] = []
        self.cancelled: list[str] = []

    def go_on(self) -> None:
        api = Http(self._world.product, self._world.token)
        live: list[Client] = []
        while not self._stop.wait(0.05):
            choice = self._rng.random()
            if choice < 0.5 or not live:
                live.append(self._begin(api))
            elif choice < 0.9:
                self._world.end(live.pop(self._rng.randrange(len(live))), api)
            elif len(self.runs) < 12:
                self._pass_by(api)
            for one in live:
                one.write()
                one.read()
        for one in live:
            self._world.end(one, api)
        api.close()

    def _begin(self, api: Http) -> Client:
        kind, flow = self._rng.choice(["chat", "api"]), self._rng.choice(["first", "second"])
        self.clients.append(self._world.open(kind, flow, "session-group-default-1", api))
        return self.clients[-1]

    def _pass_by(self, api: Http) -> None:
        """A short run, which may be cancelled at any moment of it."""
        self.runs.append(self._world.start("passing", api))
        if self._rng.random() < 0.3:
            self._stop.wait(self._rng.random())
            if api("POST", f"/runs/{self.runs[-1]}/cancel")[0] == 202:
                self.cancelled.append(self.runs[-1])

    def stop(self) -> None:
        self._stop.set()


def work(client: Client, until: threading.Event, seed: int) -> None:
    rng = random.Random(seed)
    while not until.wait(0.02):  # the steps are to have a share of the processor too
        client.write() if rng.random() < 0.6 else client.read()


def test_every_call_acts_for_its_own_authority_and_every_wrongful_one_is_refused(world: World) -> None:
    shape = Shape(world)
    others = [ComingsAndGoings(world, seed) for seed in (1, 2)]
    over = threading.Event()
    with ThreadPoolExecutor(5) as pool:
        busy = [pool.submit(one.go_on) for one in others]
        try:
            shape.go()
            busy += [pool.submit(work, shape.chat, over, 3), pool.submit(work, shape.api, over, 4)]
            shape.trespass_over_http()
            world.let_leave({run: shape.flow(run) for run in shape.runs})
            world.ended(shape.runs, 240)
        finally:
            over.set()
            for one in others:
                one.stop()
        for one in busy:
            one.result()
    world.ended([run for one in others for run in one.runs if run not in one.cancelled], 240)
    told = {run: world.told(run) for run in shape.runs}
    clients = [shape.chat, shape.api, *(client for one in others for client in one.clients)]

    for run in shape.runs:
        assert told[run]["refused"] == {}, "a rightful call was refused"
        assert told[run]["wrong"] == [], "a step read what is not its own"
        assert told[run]["tries"] == {kind: code for kind, _, _, code in shape.tries_of(run)}
        assert told[run]["calls"] >= CALLS
    assert [client.refused for client in clients if client.refused] == []
    assert min(client.calls for client in (shape.chat, shape.api)) > 50, "they were live all the while"
    for client in (shape.chat, shape.api, shape.lookalike):
        world.end(client)
    every_write_is_where_it_belongs(world, shape, told, clients)
    world.chains_hold()
    sessions = Sessions(world.product.ask(FACTS))
    every_row_of_the_ledger_names_its_own(world, shape, sessions, told, clients)
    every_refusal_is_told_to_both_sides(world, shape, sessions)


def every_write_is_where_it_belongs(world: World, shape: Shape, told: dict, clients: list[Client]) -> None:
    for flow in ("first", "second"):
        sql = "SELECT flow, run, step, writer, count(*), count(DISTINCT n), max(n) + 1 FROM marks GROUP BY 1, 2, 3, 4"
        mine = [run for run in shape.runs if shape.flow(run) == flow]
        expected = {
            *((flow, run, "hammer", digest(shape.hammers[run]), *[told[run]["writes"]] * 3) for run in mine),
            *((flow, run, "before", digest(shape.befores[run]), 3, 3, 3) for run in mine),
            *((flow, "", "client", digest(one.token), *[one.written] * 3) for one in clients if one.flow == flow),
        }
        served = {(flow, run, "stolen", digest(shape.hammers[run]), 2, 1, 0) for run in mine}
        assert set(world.rows(flow, sql)) == {row for row in expected if row[4]} | served


def every_row_of_the_ledger_names_its_own(
    world: World, shape: Shape, sessions: Sessions, told: dict, clients: list[Client]
) -> None:
    seals = {row["seal"] for row in sessions.ledger if "seal" in row}
    assert seals == set(sessions.rows), "every session has ended, and every chain is sealed"
    rows = [row for row in sessions.ledger if "seal" not in row]
    for row in rows:
        session = sessions.rows[row["session_id"]]
        assert row["authority_id"] == (session["parent_id"] or session["id"])
        assert (row["run_id"] or None, row["step_id"]) == (session["run_id"], session["step_id"])
    allowed = Counter(row["session_id"] for row in rows if row["verdict"] == "allowed")
    for client in clients:
        assert allowed[client.id] == client.calls
    for run in shape.runs:
        own = sessions.of(shape.hammers[run])["id"]
        served = sum(code == "served" for _, _, _, code in shape.tries_of(run))
        assert allowed[own] == told[run]["calls"] + served
        listed = world.pages(f"/runs/{run}/tool-calls")
        assert {row["run_id"] for row in listed} == {run}
        assert Counter(row["session"] for row in listed) == Counter(
            row["session_id"] for row in rows if row["run_id"] == run
        )


def every_refusal_is_told_to_both_sides(world: World, shape: Shape, sessions: Sessions) -> None:
    assert sessions.seen() == Counter(shape.expected), "none is missing, none is of a rightful call"
    reader = Reader(world.product)
    for run in shape.runs:
        wanted = {row["id"] for row in sessions.diagnostics if run in (row["caller_run_id"], row["owner_run_id"])}
        assert len(wanted) > len(shape.tries_of(run)) - 2, "those of others against it are among them"
        assert {row["id"] for row in world.pages(f"/runs/{run}/ownership")} == wanted
        page = reader.page(f"/runs/{run}/")
        assert {one for one in wanted if f'id="rejection-{one}"' in page} == wanted
        events = world.api("GET", f"/runs/{run}/events?limit=1000")[1]["items"]
        assert {row["ids"]["diagnostic_id"] for row in events if row["kind"] == "tool.rejected"} <= wanted
    newest = [row["id"] for row in sessions.diagnostics[-20:]]
    page = reader.page("/sessions/")
    assert [one for one in newest if f'id="rejection-{one}"' not in page] == []


def test_of_twenty_copies_that_register_at_once_none_takes_the_calls_of_another(world: World) -> None:
    """The last registration won, once, in a table of executors."""
    barrier = threading.Barrier(COPIES + 1)
    flows = ["copies", "twins"]

    def register(number: int) -> tuple[str, Client]:
        api = Http(world.product, world.token)
        barrier.wait(30)
        made = world.start(flows[number % 2], api), world.open("chat", flows[number % 2], "the same name", api)
        api.close()
        return made

    with ThreadPoolExecutor(COPIES) as pool:
        registered = [pool.submit(register, number) for number in range(COPIES)]
        barrier.wait(30)
        made = [one.result() for one in registered]
        runs, clients = [run for run, _ in made], [client for _, client in made]
        present = world.present(runs, flows, "hammer")
        last = [world.open(kind, flow, "the same name") for flow in flows for kind in ("chat", "api")]
        for client in last:
            client.write()
        for run, client in made:
            sql = "INSERT INTO go VALUES (?, '[]')"
            assert client.call("mutate_workflow_db", {"sql": sql, "params": [run]})
        calling = [pool.submit(lambda one=one: [one.write() or one.read() for _ in range(10)]) for one in clients]
        for one in calling:
            one.result()
    world.let_leave({run: flows[number % 2] for number, run in enumerate(runs)})
    world.ended(runs, 240)

    told = {run: world.told(run) for run in runs}
    assert [one["refused"] for one in told.values()] == [{}] * COPIES
    assert [one["wrong"] for one in told.values()] == [[]] * COPIES
    assert [client.refused for client in [*clients, *last]] == [[]] * (COPIES + len(last))
    for number, flow in enumerate(flows):
        marks = world.rows(flow, "SELECT flow, run, writer, count(*), count(DISTINCT n) FROM marks GROUP BY 1, 2, 3")
        assert set(marks) == {
            *((flow, run, digest(present[run]), *[told[run]["writes"]] * 2) for run in runs[number::2]),
            *((flow, "", digest(one.token), *[one.written] * 2) for one in [*clients, *last] if one.flow == flow),
        }
    for client in [*clients, *last]:
        world.end(client)
    world.chains_hold()
    sessions = Sessions(world.product.ask(FACTS))
    for run in runs:
        rows = world.pages(f"/runs/{run}/tool-calls")
        assert {(row["run_id"], row["session"], row["authority"], row["verdict"]) for row in rows} == {
            (run, sessions.of(present[run])["id"], sessions.of_run(run)["id"], "allowed")
        }
        assert len(rows) == told[run]["calls"]
        assert world.pages(f"/runs/{run}/ownership") == []
