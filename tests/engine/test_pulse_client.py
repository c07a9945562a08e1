"""The client of the tool socket: what it sends, what it repeats, and what it never sends twice."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pulse
from pulse import client
from tests.engine.wire_server import Answer, Server


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Server]:
    monkeypatch.setenv("PULSE_TOOLS_SOCKET", str(tmp_path / "s"))
    monkeypatch.setenv("PULSE_SESSION_TOKEN", "pst_x")
    monkeypatch.setattr(client.time, "sleep", lambda _: None)
    serving = Server(tmp_path / "s")
    yield serving
    client.close()
    serving.close()


def failing(code: str, **more: str) -> Answer:
    return lambda call: {"success": False, "error": {"code": code, "message": "no", "hint": "do", **more}}


def test_a_call_goes_out_as_published(server: Server) -> None:
    assert pulse.call("query_workflow_db", sql="select 1") == {"sql": "select 1"}
    assert pulse.tools.read_file(path="x") == {"path": "x"}
    assert server.hellos == [{"v": 1, "token": "pst_x"}]
    assert [set(call) for call in server.calls] == [{"id", "tool", "arguments"}] * 2


def test_each_call_has_its_own_time_ordered_id(server: Server) -> None:
    for _ in range(3):
        pulse.call("list_files")
    ids = [uuid.UUID(call["id"]) for call in server.calls]
    assert {(found.version, found.variant) for found in ids} == {(7, uuid.RFC_4122)}
    assert len(set(ids)) == 3


def test_an_error_carries_what_the_platform_said(server: Server) -> None:
    server.answer = failing("sql_error")
    with pytest.raises(pulse.ToolError) as raised:
        pulse.call("query_workflow_db", sql="x")
    assert (raised.value.code, raised.value.message, raised.value.hint) == ("sql_error", "no", "do")
    assert raised.value.tool == "query_workflow_db"
    assert not isinstance(raised.value, pulse.ToolBoundaryError)


@pytest.mark.parametrize(
    "code",
    [
        "not_owner",
        "parent_ended",
        "not_registered",
        "ambiguous",
        "permissions_changed",
        "session_ended",
        "session_unknown",
        "tool_not_found",
        "tool_not_granted",
    ],
)
def test_a_refusal_at_the_boundary_fails_at_once(server: Server, code: str) -> None:
    server.answer = failing(code, session="a", authority="b")
    with pytest.raises(pulse.ToolBoundaryError) as raised:
        pulse.call("query_workflow_db", sql="x")
    assert (raised.value.session, raised.value.authority) == ("a", "b")
    assert len(server.calls) == 1


@pytest.mark.parametrize("code", ["tool_rate", "busy", "unavailable", "429", "502", "503", "504"])
def test_a_reading_call_is_repeated_three_times_with_its_id(server: Server, code: str) -> None:
    server.answer = failing(code)
    with pytest.raises(pulse.ToolError):
        pulse.call("query_workflow_db", sql="x")
    assert len(server.calls) == 4
    assert len({call["id"] for call in server.calls}) == 1


def test_a_reading_call_survives_a_connection_that_ends(server: Server) -> None:
    left = [None, None]
    server.answer = lambda call: left.pop() if left else {"success": True, "result": 1}
    assert pulse.call("read_file", path="x") == 1
    assert len(server.calls) == 3


@pytest.mark.parametrize("code", ["busy", "tool_rate", "503", "sql_error"])
def test_a_mutating_call_is_sent_once(server: Server, code: str) -> None:
    server.answer = failing(code)
    with pytest.raises(pulse.ToolError) as raised:
        pulse.call("mutate_workflow_db", sql="x")
    assert raised.value.code == code
    assert len(server.calls) == 1


def test_a_mutation_without_an_answer_is_unknown_and_names_its_id(server: Server) -> None:
    server.answer = lambda call: None
    with pytest.raises(pulse.MutationUnknown) as raised:
        pulse.call("mutate_workflow_db", sql="x")
    assert [call["id"] for call in server.calls] == [raised.value.call_id]
    server.answer = lambda call: {"success": True, "result": {"outcome": "applied"}}
    assert pulse.read_receipt(raised.value.call_id) == {"outcome": "applied"}
    assert server.calls[-1]["arguments"] == {"call_id": raised.value.call_id}


def test_an_outcome_that_the_platform_calls_unknown_is_unknown(server: Server) -> None:
    server.answer = failing("unknown")
    with pytest.raises(pulse.MutationUnknown):
        pulse.call("mutate_workflow_db", sql="x")


def test_a_mutation_that_was_never_sent_is_not_unknown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PULSE_TOOLS_SOCKET", str(tmp_path / "none"))
    with pytest.raises(pulse.ToolError) as raised:
        pulse.call("mutate_workflow_db", sql="x")
    assert raised.value.code == "unavailable"
    assert "Nothing was sent." in raised.value.hint
    assert not isinstance(raised.value, pulse.MutationUnknown)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"x": float("nan")}, "invalid_arguments"),
        ({"x": {1}}, "invalid_arguments"),
        ({"x": "y" * 5_000_000}, "message_too_large"),
    ],
)
def test_what_cannot_travel_is_not_sent(server: Server, arguments: dict[str, Any], code: str) -> None:
    with pytest.raises(pulse.ToolError) as raised:
        pulse.call("mutate_workflow_db", **arguments)
    assert raised.value.code == code
    assert server.calls == []


def test_threads_have_a_connection_each(server: Server) -> None:
    threads = [threading.Thread(target=pulse.call, args=("read_file",), kwargs={"path": str(n)}) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(server.hellos) == len(server.calls) == 4


def test_a_forked_child_does_not_read_its_parents_answers(server: Server) -> None:
    pulse.call("read_file", path="parent")
    child = os.fork()
    if child == 0:
        os._exit(0 if pulse.call("read_file", path="child") == {"path": "child"} else 1)
    _, status = os.waitpid(child, 0)
    assert status == 0
    assert len(server.hellos) == 2
