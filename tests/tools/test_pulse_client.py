"""The library that a step imports, against the endpoint: its errors are what the dispatcher's codes mean."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings

from tests.tools import world

pytestmark = [pytest.mark.django_db(transaction=True)]
SCRIPT = """
import threading, pulse
from pulse import client
made = pulse.tools.mutate_workflow_db(sql="INSERT INTO notes (who) VALUES (?)", params=["step"])
assert made["changes"] == 1, made
read = lambda: pulse.call("query_workflow_db", sql="SELECT 1")
threads = [threading.Thread(target=read) for _ in range(8)]
[t.start() for t in threads]; [t.join() for t in threads]
for tool, arguments, kind, code in [
    ("execute_step", {}, pulse.ToolBoundaryError, "tool_not_found"),
    ("query_workflow_db", {"sql": "SELECT nothing"}, pulse.ToolError, "sql_error"),
    ("query_workflow_db", {"sql": 5}, pulse.ToolError, "arguments_rejected"),
]:
    try:
        pulse.call(tool, **arguments)
    except kind as error:
        assert error.code == code, error
    else:
        raise AssertionError(tool)
assert client.read_receipt(client.new_id())["outcome"] == "not_sent"
print("rows", pulse.call("query_workflow_db", sql="SELECT count(*) AS c FROM notes")["rows"])
"""


def run(path: Path, token: str) -> subprocess.CompletedProcess[str]:
    environment = {
        "PULSE_TOOLS_SOCKET": str(path),
        "PULSE_SESSION_TOKEN": token,
        "PYTHONPATH": str(Path(settings.BASE_DIR) / "platform"),
        "PATH": os.environ["PATH"],
    }
    return subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, timeout=60)


def test_a_script_calls_its_tools_and_is_told_each_fault_in_its_kind():
    step = world.open_step(world.open_run(world.make_workflow()))
    with world.listening(step) as (endpoint, path):
        ended = run(path, step.token)
        assert endpoint.boundary_refused
    assert ended.stderr == ""
    assert ended.stdout == "rows [{'c': 1}]\n"


def test_a_script_with_a_foreign_token_fails_fast():
    run_session = world.open_run(world.make_workflow())
    step, sibling = world.open_step(run_session, step_id="a"), world.open_step(run_session, step_id="b")
    with world.listening(step) as (_, path):
        ended = run(path, sibling.token)
    assert ended.returncode == 1
    assert "ToolBoundaryError" in ended.stderr
    assert "not_owner" in ended.stderr
