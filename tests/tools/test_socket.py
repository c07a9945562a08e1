"""The tool socket: frames in, answers out in order, a row for each call; bad input ends nothing but itself."""

from __future__ import annotations

import array
import json
import os
import resource
import socket
import stat
import struct
import threading
import time

import pytest

from apps.tools import endpoint, ledger, receipts
from apps.tools.endpoint import State, ToolEndpoint
from apps.tools.errors import SessionRefused
from apps.tools.models import Receipt, ToolCall
from engine.ids import uuid7
from tests.tools import world

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.databases]


@pytest.fixture
def step():
    return world.open_step(world.open_run(world.make_workflow()))


def until(true, seconds=20.0):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_step_writes_and_reads_its_own_workflow_database(step):
    with world.client_of(step) as client:
        assert client.mutate("INSERT INTO notes (who, said) VALUES (?, ?)", "me", "hello")["result"]["changes"] == 1
        assert client.query("SELECT who, said FROM notes")["result"]["rows"] == [{"who": "me", "said": "hello"}]
    assert list(ToolCall.objects.order_by("seq").values_list("seq", "tool", "outcome")) == [
        (1, "mutate_workflow_db", "applied"),
        (2, "query_workflow_db", "succeeded"),
    ]
    world.end(step.session)
    verdict = ledger.verify(step.session.pk)
    assert verdict.ok
    assert verdict.sealed


def test_calls_are_pipelined_and_answered_in_their_order(step):
    with world.client_of(step) as client:
        ids = [client.send_call("query_workflow_db", {"sql": f"SELECT {number} AS n"}) for number in range(200)]
        answers = [client.receive() for _ in ids]
    assert [answer["id"] for answer in answers] == ids
    assert [answer["result"]["rows"][0]["n"] for answer in answers] == list(range(200))
    assert list(ToolCall.objects.order_by("seq").values_list("seq", flat=True)) == list(range(1, 201))


def test_connections_of_one_step_are_served_side_by_side(step):
    slow = (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000000) SELECT count(*) AS c FROM n"
    )
    with world.listening(step) as (_, path):
        first, second = world.Client(path, step.token), world.Client(path, step.token)
        first.send_call("query_workflow_db", {"sql": slow})
        assert second.query("SELECT 1 AS one")["success"]
        assert first.receive()["result"]["rows"] == [{"c": 3000000}]


@pytest.mark.parametrize(
    "body",
    [
        b'{"id": "x", "tool": "query_workflow_db", "arguments": {"sql": NaN}}',
        b'{"id": "x", "id": "y"}',
        b'{"id": "x", "tool": "query_workflow_db", "arguments": {"sql": "\xff"}}',
        b"[" * 100_000,
        b"[]",
        b"5",
        b'{"id": "no-uuid", "tool": "query_workflow_db", "arguments": {}}',
        b'{"id": "01a22aa1-7a10-7f1e-bc04-cd9b67892ba5", "tool": 5, "arguments": {}}',
        b'{"id": "01a22aa1-7a10-7f1e-bc04-cd9b67892ba5", "tool": "query_workflow_db", "arguments": []}',
        b'{"id": "01a22aa1-7a10-7f1e-bc04-cd9b67892ba5", "tool": "query_workflow_db", "arguments": {}, "more": 1}',
        b'{"id": "01a22aa1-7a10-7f1e-bc04-cd9b67892ba5", "tool": "query_workflow_db", "arguments": {}, "session": 5}',
        b'{"id": "01a22aa1-7a10-7f1e-bc04-cd9b67892ba5", "tool": "query_workflow_db", "arguments": {"sql": "\\ud800"}}',
        b'{"id": "01a22aa1-7a10-7f1e-bc04-cd9b67892ba5", "tool": "\\ud800", "arguments": {}}',
        b'{"id": "01a22aa1-7a10-7f1e-bc04-cd9b67892ba5", "tool": "query_workflow_db", "arguments": {"offset": 1e999}}',
    ],
)
def test_a_malformed_call_has_a_typed_error_and_the_connection_lives(step, body):
    with world.client_of(step) as client:
        client.send_raw(body)
        answer = client.receive()
        assert answer["error"]["code"] == "malformed"
        assert client.query("SELECT 1")["success"]
    assert ToolCall.objects.count() == 1


@pytest.mark.parametrize(
    "hello",
    [b"{}", b"[]", b'{"v": 2, "token": "x"}', b'{"v": 1, "token": 5}', b'{"v": 1, "token": "x", "more": 1}', b"\xff"],
)
def test_a_malformed_hello_ends_its_connection_and_no_other(step, hello):
    with world.listening(step) as (_, path):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as bad:
            bad.connect(str(path))
            bad.sendall(struct.pack(">I", len(hello)) + hello)
            with bad.makefile("rb") as answers:
                answer = answers.read()
        assert json.loads(answer[4:])["error"]["code"] == "malformed"
        assert world.Client(path, step.token).query("SELECT 1")["success"]


def test_a_message_over_4_mb_is_refused_with_its_code_and_the_connection_lives(step):
    with world.client_of(step) as client:
        client.send_raw(b"x" * (5 * 1024 * 1024))
        answer = client.receive()
        assert answer["id"] is None
        assert answer["error"]["code"] == "message_too_large"
        assert client.query("SELECT 1")["success"]


@pytest.mark.parametrize("value", [b"[],", b'"",', b'"\\\\",', b'{"a":1},'])
def test_a_message_of_too_many_values_is_refused_and_not_taken_apart(step, value):
    with world.client_of(step) as client:
        client.send_raw(b'{"id": "x", "tool": "t", "arguments": {"a": [' + value * (3_900_000 // len(value)) + b"0]}}")
        assert client.receive()["error"]["code"] == "message_too_large"
        assert client.query("SELECT length(?) AS n", params=['[],"\\' * 400_000])["result"]["rows"] == [
            {"n": 2_000_000}
        ]


def test_many_large_messages_at_once_are_all_answered_and_small_ones_meanwhile(step):
    with world.listening(step) as (_, path):
        clients = [world.Client(path, step.token) for _ in range(12)]
        halves = [world.Client(path, step.token) for _ in range(endpoint.LARGE_AT_ONCE - 1)]
        for half in halves:
            half.socket.sendall(struct.pack(">I", 3_000_000) + b'{"id": ')
        sending = [
            threading.Thread(
                target=client.send_call,
                args=("query_workflow_db", {"sql": "SELECT length(?) AS n", "params": ["x" * 3_000_000]}),
            )
            for client in clients
        ]
        for each in sending:
            each.start()
        assert world.Client(path, step.token).query("SELECT 1")["success"]
        assert [client.receive()["result"]["rows"] for client in clients] == [[{"n": 3_000_000}]] * 12
        for each in sending:
            each.join()


def test_a_length_beyond_all_measure_ends_the_connection(step):
    with world.listening(step) as (_, path):
        client = world.Client(path, step.token)
        client.socket.sendall(b"\xff\xff\xff\xff")
        assert client.receive()["error"]["code"] == "message_too_large"
        with pytest.raises(ConnectionError):
            client.receive()
        assert world.Client(path, step.token).query("SELECT 1")["success"]


def test_half_a_frame_and_then_silence_is_ended_while_others_are_served(step, monkeypatch):
    monkeypatch.setattr(endpoint, "PATIENCE_S", 1.0)
    with world.listening(step) as (_, path):
        half = world.Client(path, step.token)
        half.socket.sendall(struct.pack(">I", 100) + b'{"id": ')
        assert world.Client(path, step.token).query("SELECT 1")["success"]
        assert half.receive()["error"]["code"] == "malformed"
        with pytest.raises(ConnectionError):
            half.receive()


def test_silence_between_two_calls_may_last(step, monkeypatch):
    monkeypatch.setattr(endpoint, "PATIENCE_S", 1.0)
    with world.client_of(step) as client:
        assert client.query("SELECT 1")["success"]
        time.sleep(2.2)
        assert client.query("SELECT 1")["success"]


def test_a_connection_that_is_cut_in_a_frame_ends_only_itself(step):
    with world.listening(step) as (_, path):
        cut = world.Client(path, step.token)
        cut.socket.sendall(struct.pack(">I", 100) + b'{"id": ')
        cut.close()
        assert world.Client(path, step.token).query("SELECT 1")["success"]


def test_an_answer_over_4_mb_is_refused_clearly_and_never_cut(step):
    with world.client_of(step) as client:
        answer = client.query("SELECT replace(hex(zeroblob(2000000)), '0', char(9)) AS many")
        assert answer["error"]["code"] == "result_too_large"
        assert "max_rows" in answer["error"]["hint"]


def test_calls_over_the_limit_are_tool_rate_and_the_first_of_them_has_a_row(step):
    with world.client_of(step, max_calls=3) as client:
        codes = [(client.query("SELECT 1")["error"] or {}).get("code") for _ in range(6)]
    assert codes == [None, None, None, "tool_rate", "tool_rate", "tool_rate"]
    assert list(ToolCall.objects.order_by("seq").values_list("verdict", flat=True)) == ["allowed"] * 3 + ["tool_rate"]


def test_more_connections_than_there_may_be_are_told_busy(step, monkeypatch):
    monkeypatch.setattr(endpoint, "CONNECTIONS", 3)
    with world.listening(step) as (_, path):
        clients = [world.Client(path, step.token) for _ in range(3)]
        assert all(client.query("SELECT 1")["success"] for client in clients)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as one_more:
            one_more.connect(str(path))
            with one_more.makefile("rb") as answers:
                assert json.loads(answers.read()[4:])["error"]["code"] == "busy"
        clients[0].close()
        until(lambda: _served(path, step.token))


def test_with_no_descriptor_left_the_listener_goes_on_once_there_are_some(step, caplog):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with world.listening(step) as (_, path), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as early:
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
        try:
            early.connect(str(path))
            until(lambda: "could not be taken" in caplog.text)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert world.Client(path, step.token).query("SELECT 1")["success"]


def _served(path, token) -> bool:
    try:
        return world.Client(path, token).query("SELECT 1")["success"]
    except (ConnectionError, AssertionError, BrokenPipeError):
        return False


def test_the_endpoint_goes_from_armed_to_open_to_closed(step):
    with world.sockets() as folder:
        tools = ToolEndpoint(step.session.pk)
        assert tools.state is State.NEW
        path = folder / "tools.sock"
        tools.arm(path)
        assert tools.state is State.ARMED
        assert stat.S_IMODE(path.stat().st_mode) == 0o666
        client = world.Client(path, step.token)
        assert client.query("SELECT 1")["success"]
        assert tools.state is State.OPEN
        tools.close()
        assert tools.state is State.CLOSED
        assert not path.exists()
        tools.close()


def test_closing_ends_every_open_connection_and_takes_no_new_one(step):
    with world.sockets() as folder:
        tools = ToolEndpoint(step.session.pk)
        tools.arm(folder / "tools.sock")
        clients = [world.Client(folder / "tools.sock", step.token) for _ in range(5)]
        assert all(client.query("SELECT 1")["success"] for client in clients)
        tools.close()
        for client in clients:
            client.socket.settimeout(5)
            with pytest.raises(ConnectionError):
                client.receive()  # it is told without asking
            with pytest.raises(ConnectionError):
                client.query("SELECT 1")
        with pytest.raises((ConnectionError, FileNotFoundError)):
            world.Client(folder / "tools.sock", step.token)
    assert ToolCall.objects.count() == 5


ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"


@pytest.mark.parametrize(
    ("tool", "sql"),
    [
        ("query_workflow_db", f"{ENDLESS} SELECT count(*) FROM n"),
        ("mutate_workflow_db", f"{ENDLESS} INSERT INTO notes (who) SELECT count(*) FROM n"),
    ],
)
def test_closing_ends_what_is_in_flight_and_waits_once_for_all_of_it(step, tool, sql):
    with world.sockets() as folder:
        tools = ToolEndpoint(step.session.pk)
        tools.arm(folder / "tools.sock")
        clients = [world.Client(folder / "tools.sock", step.token) for _ in range(endpoint.IN_FLIGHT)]
        for client in clients:
            client.send_call(tool, {"sql": sql})
        time.sleep(0.5)
        before = time.monotonic()
        tools.shut()
        assert time.monotonic() - before < 1.0
        for client in clients:
            with pytest.raises(ConnectionError):
                client.receive()
        tools.close()
        assert time.monotonic() - before < 8.0  # one after another, each would have had a second for itself
    assert receipts.settle(step.session.attempt_id) == []
    assert set(Receipt.objects.values_list("state", flat=True)) <= {Receipt.State.NOT_SENT}


def test_closing_leaves_no_thread_and_no_descriptor(step):
    def once() -> int:
        with world.client_of(step) as client:
            client.mutate("INSERT INTO notes (who) VALUES ('x')")
        until(lambda: threading.active_count() == threads)
        return len(os.listdir("/proc/self/fd"))

    threads = threading.active_count()
    first = once()  # SQLite keeps descriptors of a file that is open elsewhere, and uses them again
    assert max(once() for _ in range(4)) <= first


def test_a_socket_is_armed_only_for_the_session_of_the_token(step):
    tools = ToolEndpoint(step.session.pk, "0" * 64)
    with world.sockets() as folder, pytest.raises(SessionRefused):
        tools.arm(folder / "tools.sock")


def test_no_socket_is_armed_for_a_session_that_has_ended(step):
    world.end(step.session)
    with world.sockets() as folder, pytest.raises(SessionRefused):
        ToolEndpoint(step.session.pk).arm(folder / "tools.sock")


def test_a_connection_handed_to_a_sibling_stays_its_owners_and_dies_with_it():
    """A step can pass an open connection over a path socket in the shared code folder: no identity moves with it."""
    run = world.open_run(world.make_workflow())
    owner, sibling = world.open_step(run, step_id="owner"), world.open_step(run, step_id="sibling")
    with world.listening(owner) as (tools, path), world.listening(sibling):
        client = world.Client(path, owner.token)
        ours, theirs = socket.socketpair()
        ours.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [client.socket.fileno()]))])
        _, ancillary, *_ = theirs.recvmsg(1, socket.CMSG_LEN(4))
        client.close()
        client.socket = socket.socket(fileno=array.array("i", ancillary[0][2])[0])
        client.socket.settimeout(30)
        ours.close()
        theirs.close()
        assert client.query("SELECT 1")["success"]
        tools.close()
        with pytest.raises((ConnectionError, BrokenPipeError)):
            client.query("SELECT 1")
    assert set(ToolCall.objects.values_list("step_id", flat=True)) == {"owner"}


def test_rows_reach_the_ledger_while_the_step_runs(step):
    with world.client_of(step) as client:
        client.query("SELECT 1")
        until(lambda: ToolCall.objects.count() == 1)


def test_an_argument_that_does_not_fit_is_named_before_anything_runs(step):
    with world.client_of(step) as client:
        for arguments, field in [
            ({"sql": 5}, "sql"),
            ({"sql": "SELECT 1", "max_rows": 0}, "max_rows"),
            ({"sql": "SELECT 1", "max_rows": True}, "max_rows"),
            ({"sql": "SELECT 1", "limit": 5}, "limit"),
            ({"sql": "SELECT 1", "params": [{"a": 1}]}, "params"),
        ]:
            answer = client.call("query_workflow_db", arguments, call_id=str(uuid7()))
            assert answer["error"]["code"] == "arguments_rejected"
            assert field in answer["error"]["message"]
    assert set(ToolCall.objects.values_list("verdict", "error_code")) == {("allowed", "arguments_rejected")}
