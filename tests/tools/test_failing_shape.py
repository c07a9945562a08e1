"""The fault this product exists to make impossible (BEHAVIOUR 6), as a property.

Three runs of two workflows, a chat and an api session, all live at once, over real sockets and HTTP, while other
sessions start and end at random and strangers try forged, foreign, ended, sibling and lookalike identities.
"""

from __future__ import annotations

import json
import random
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from django.db import connections, transaction
from django.test import Client as Browser
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from apps.tools import actions, ledger
from apps.tools.actions import Opened
from apps.tools.models import OwnershipDiagnostic, ToolCall, ToolSession
from apps.workflows.models import Workflow
from apps.workflows.places import places_of
from engine.ids import uuid7
from tests.tools import world

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.databases]
CALLS = 300
TABLE = "CREATE TABLE marks (workflow TEXT, session TEXT, authority TEXT, n INTEGER)"
INSERT = "INSERT INTO marks VALUES (?, ?, ?, ?)"


@dataclass
class Actor:
    """A rightful session that writes its own name into its own workflow's database, again and again."""

    opened: Opened
    rng: random.Random
    written: int = 0
    read: int = 0
    refusals: list[str] = field(default_factory=list)

    @property
    def session(self) -> ToolSession:
        return self.opened.session

    @property
    def authority(self) -> str:
        return str(self.session.parent_id or self.session.pk)

    def work(self, call: Callable[[str, dict], dict], calls: int) -> None:
        """Writes and reads in a random order; what is refused is kept."""
        for _ in range(calls):
            if self.rng.random() < 0.6:
                mine = [str(self.session.workflow_id), str(self.session.pk), self.authority, self.written]
                answer = call("mutate_workflow_db", {"sql": INSERT, "params": mine})
                self.written += answer["success"]
            else:
                answer = call("query_workflow_db", {"sql": "SELECT count(*) AS c, min(workflow) AS w FROM marks"})
                self.read += answer["success"]
                if answer["success"]:
                    row = answer["result"]["rows"][0]
                    assert row["w"] in (None, str(self.session.workflow_id))
            if not answer["success"]:
                self.refusals.append(answer["error"]["code"])


class Stage:
    """Threads with their failures, and the end of their database connections."""

    def __init__(self) -> None:
        self.threads: list[threading.Thread] = []
        self.errors: list[BaseException] = []

    def start(self, work: Callable[[], None]) -> None:
        def guarded() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - shown by the test
                self.errors.append(error)
            finally:
                connections.close_all()

        thread = threading.Thread(target=guarded)
        self.threads.append(thread)
        thread.start()

    def join(self) -> None:
        for thread in self.threads:
            thread.join()
        if self.errors:
            raise self.errors[0]


def over_http(token: str) -> Callable[[str, dict], dict]:
    browser = Browser()

    def call(tool: str, arguments: dict) -> dict:
        answer = browser.post(
            f"/api/v1/tools/{tool}",
            json.dumps(arguments),
            content_type="application/json",
            headers={"Authorization": f"Bearer {token}", "Idempotency-Key": str(uuid7())},
        )
        return answer.json()

    return call


def on_its_socket(actor: Actor, calls: int) -> None:
    with world.client_of(actor.opened) as client:
        actor.work(client.call, calls)


def comings_and_goings(workflows: list[Workflow], rng: random.Random, stop: threading.Event) -> None:
    """Other sessions of the same names start, call and end all the while."""
    while not stop.is_set():
        run = world.open_run(rng.choice(workflows))
        step = world.open_step(run, step_id=rng.choice(["gate", "review"]))
        with world.client_of(step) as client:
            client.query("SELECT 1")
        with transaction.atomic():
            if rng.random() < 0.5:
                actions.end_sessions_of_run(run.run_id, "done")
            else:
                actions.end_session(step.session.pk, "done")
                actions.end_session(run.pk, "done")


@dataclass
class Stranger:
    """One wrongful call on the socket of a victim: what it presents, what it names, and the code it must get."""

    kind: str
    token: str
    named: str | None
    code: str


def strangers(victim: Opened, sibling: Opened, foreign: Opened, ended: Opened) -> list[Stranger]:
    own = victim.token
    return [
        Stranger("forged", "pst_" + "A" * 43, None, "session_unknown"),
        Stranger("foreign", foreign.token, None, "not_owner"),
        Stranger("sibling", sibling.token, None, "not_owner"),
        Stranger("ended", ended.token, None, "session_ended"),
        Stranger("names a foreign session", own, str(foreign.session.pk), "not_owner"),
        Stranger("names a sibling", own, str(sibling.session.pk), "not_owner"),
        Stranger("names an ended one", own, str(ended.session.pk), "not_owner"),
        Stranger("lookalike", own, f"{victim.session.name}-1", "not_owner"),
        Stranger("the name of several", own, "session-group-default-1", "ambiguous"),
    ]


@given(seed=st.integers(0, 2**32))
@settings(
    max_examples=3,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_every_call_acts_for_its_own_authority_whoever_else_is_live(transactional_db, seed):
    rng = random.Random(seed)
    first, second = world.make_workflow(migration=TABLE), world.make_workflow(migration=TABLE)
    steps = [Actor(world.open_step(world.open_run(flow)), rng) for flow in (first, first, second)]
    chat = Actor(world.open_client(first, kind="chat"), rng)
    client = Actor(world.open_client(second, kind="api"), rng)
    actors = [*steps, chat, client]
    before = set(OwnershipDiagnostic.objects.values_list("pk", flat=True))

    stage, others, stop = Stage(), Stage(), threading.Event()
    others.start(lambda: comings_and_goings([first, second], random.Random(seed + 1), stop))
    for actor in steps:
        stage.start(lambda actor=actor: on_its_socket(actor, CALLS))
    for actor in (chat, client):
        stage.start(lambda actor=actor: actor.work(over_http(actor.opened.token), CALLS // 4))
    stage.join()
    stop.set()
    others.join()

    assert [actor.refusals for actor in actors] == [[]] * 5
    assert set(OwnershipDiagnostic.objects.values_list("pk", flat=True)) == before
    _each_write_is_where_it_belongs(actors, [first, second])
    _each_row_names_its_own(actors)
    for actor in actors:
        world.end(actor.session)
        verdict = ledger.verify(actor.session.pk)
        assert (verdict.problems, verdict.sealed, verdict.rows) == ((), True, actor.written + actor.read)


def _each_write_is_where_it_belongs(actors: list[Actor], workflows: list[Workflow]) -> None:
    for workflow in workflows:
        with sqlite3.connect(places_of(workflow).database) as raw:
            found = raw.execute(
                "SELECT workflow, session, authority, count(*), count(DISTINCT n) FROM marks GROUP BY 1, 2, 3"
            )
            rows = {tuple(row) for row in found}
        raw.close()
        assert rows == {
            (str(workflow.pk), str(actor.session.pk), actor.authority, actor.written, actor.written)
            for actor in actors
            if actor.session.workflow_id == workflow.pk and actor.written
        }


def _each_row_names_its_own(actors: list[Actor]) -> None:
    for actor in actors:
        rows = ToolCall.objects.filter(session=actor.session)
        assert rows.count() == actor.written + actor.read
        assert {str(key) for key in rows.values_list("authority", flat=True)} == {actor.authority}
        assert set(rows.values_list("workflow_id", "run_id", "step_id", "attempt_id", "verdict")) == {
            (
                actor.session.workflow_id,
                actor.session.run_id,
                actor.session.step_id,
                actor.session.attempt_id,
                "allowed",
            )
        }


def test_every_wrongful_identity_is_refused_with_its_code_and_both_sides_are_named():
    rng = random.Random(7)
    mine, other = world.make_workflow(migration=TABLE), world.make_workflow(migration=TABLE)
    run, twin = world.open_run(mine), world.open_run(mine)
    victim, sibling = world.open_step(run), world.open_step(run, step_id="sibling")
    foreign = world.open_step(world.open_run(other))
    ended = world.open_step(twin)
    world.end(ended.session)
    rightful = Actor(victim, rng)
    wrongful = strangers(victim, sibling, foreign, ended) * 3
    rng.shuffle(wrongful)
    codes: Counter[tuple[str, str]] = Counter()
    with world.listening(victim) as (_, path):
        stage = Stage()
        own = world.Client(path, victim.token)
        stage.start(lambda: rightful.work(own.call, CALLS))
        for stranger in wrongful:
            client = world.Client(path, stranger.token)
            statement = {"sql": INSERT, "params": ["stolen", "stolen", "stolen", 0]}
            answer = client.call("mutate_workflow_db", statement, session=stranger.named)
            assert answer["success"] is False
            assert answer["error"]["code"] == stranger.code, stranger.kind
            codes[stranger.kind, answer["error"]["code"]] += 1
            client.close()
        stage.join()
        own.close()
    assert rightful.refusals == []
    assert set(codes.values()) == {3}
    assert OwnershipDiagnostic.objects.count() == len(wrongful)
    _both_sides_are_named(victim, sibling, foreign, ended)
    for workflow in (mine, other):
        with sqlite3.connect(places_of(workflow).database) as raw:
            assert raw.execute("SELECT count(*) FROM marks WHERE session = 'stolen'").fetchone() == (0,)
        raw.close()


def _both_sides_are_named(victim: Opened, sibling: Opened, foreign: Opened, ended: Opened) -> None:
    rows = OwnershipDiagnostic.objects.all()
    for presented in (sibling, foreign, ended):
        row = rows.filter(caller__contains=str(presented.session.pk))[0]
        assert str(victim.session.pk) in row.tool_session
        assert str(victim.session.parent_id) in row.authority
        assert str(presented.session.parent_id) in row.caller_parent
        assert (row.caller_run_id, row.owner_run_id) == (presented.session.run_id, victim.session.run_id)
    for named in (sibling, foreign, ended):
        row = rows.filter(caller__contains=str(victim.session.pk), tool_session__contains=str(named.session.pk))[0]
        assert row.owner_run_id == named.session.run_id


def test_two_runs_that_register_at_the_same_moment_200_times_each_reach_their_own():
    """The last registration won, once, in a table of executors. There is no table."""
    first, second = world.make_workflow(migration=TABLE), world.make_workflow(migration=TABLE)
    barrier = threading.Barrier(2)
    sessions: dict[str, str] = {}

    def register_and_call(workflow: Workflow) -> None:
        for n in range(100):
            barrier.wait(30)
            opened = world.open_client(workflow)
            sessions[str(opened.session.pk)] = str(workflow.pk)
            mine = [str(workflow.pk), str(opened.session.pk), str(opened.session.pk), n]
            call = over_http(opened.token)
            assert call("mutate_workflow_db", {"sql": INSERT, "params": mine})["success"]

    stage = Stage()
    for workflow in (first, second):
        stage.start(lambda workflow=workflow: register_and_call(workflow))
    stage.join()
    assert len(sessions) == 200
    for workflow in (first, second):
        with sqlite3.connect(places_of(workflow).database) as raw:
            found = dict(raw.execute("SELECT session, workflow FROM marks"))
        raw.close()
        assert found == {session: flow for session, flow in sessions.items() if flow == str(workflow.pk)}
    rows = ToolCall.objects.values_list("session_id", "workflow_id")
    assert {str(session): str(workflow) for session, workflow in rows} == sessions
