"""A step reaches its tools from inside its sandbox, by its own socket and for as long as it lives."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.engine.wire_server import Server
from tests.runner.stage import Silent, Stage

pytestmark = pytest.mark.sandbox


class Serving(Silent):
    """Listeners that serve tools as the platform does: armed before the launch, closed first at the end."""

    server: Server

    def arm(self, socket: Path) -> None:
        super().arm(socket)
        self.server = Server(socket)
        socket.chmod(0o666)

    def close_tools(self) -> None:
        super().close_tools()
        self.server.close()


@pytest.fixture
def socket(data_root: Path) -> Path:
    folder = data_root / "sockets"
    folder.mkdir()
    folder.chmod(0o711)
    return folder / "tools.sock"


def test_a_call_from_the_sandbox_is_answered(stage: Stage, socket: Path) -> None:
    heard = Serving()
    code = "import pulse\nprint(pulse.call('query_workflow_db', sql='select 1'), pulse.tools.read_file(path='x'))\n"
    ran = stage.run(code, listeners=heard, tools_socket=socket, session_token="pst_" + "k" * 43)
    assert ran.log == "{'sql': 'select 1'} {'path': 'x'}\n", ran
    assert heard.server.hellos == [{"v": 1, "token": "pst_" + "k" * 43}]
    assert [call["tool"] for call in heard.server.calls] == ["query_workflow_db", "read_file"]


def test_programs_that_the_script_starts_have_the_same_tools(stage: Stage, socket: Path) -> None:
    code = "import subprocess\nsubprocess.run(['python3', '-c', 'import pulse; print(pulse.tools.list_files())'])\n"
    ran = stage.run(code, listeners=Serving(), tools_socket=socket)
    assert ran.log == "{}\n", ran


def test_the_socket_cannot_be_replaced_from_inside(stage: Stage, socket: Path) -> None:
    code = (
        "import os\nfor act in (os.unlink, lambda p: os.rename(p, p + 'x')):\n"
        "    try: act(os.environ['PULSE_TOOLS_SOCKET'])\n    except OSError as e: print(e.errno in (16, 30))\n"
    )
    ran = stage.run(code, listeners=Serving(), tools_socket=socket)
    assert ran.log == "True\nTrue\n", ran


def test_a_boundary_error_ends_the_step_as_one(stage: Stage, socket: Path) -> None:
    class Refusing(Serving):
        def arm(self, socket: Path) -> None:
            super().arm(socket)
            self.refused = True
            self.server.answer = lambda call: {
                "success": False,
                "error": {"code": "session_ended", "message": "it has ended", "hint": "", "session": "step 1"},
            }

    ran = stage.run("import pulse\npulse.call('query_workflow_db')\n", listeners=Refusing(), tools_socket=socket)
    assert (ran.ending.outcome, ran.ending.reason) == ("tool_boundary", "tool_boundary"), ran
    assert ran.ending.claims["exception"]["class"] == "pulse.errors.ToolBoundaryError"


def test_an_unknown_mutation_that_is_not_handled_ends_the_step_in_an_error(stage: Stage, socket: Path) -> None:
    class Silenced(Serving):
        def arm(self, socket: Path) -> None:
            super().arm(socket)
            self.server.answer = lambda call: None

    heard = Silenced()
    ran = stage.run("import pulse\npulse.call('mutate_workflow_db')\n", listeners=heard, tools_socket=socket)
    assert ran.ending.outcome == "script_error", ran
    assert ran.ending.claims["exception"]["class"] == "pulse.errors.MutationUnknown"
    assert len(heard.server.calls) == 1
    assert json.dumps(ran.ending.claims)


def test_a_script_that_prints_only_does_not_touch_the_socket(stage: Stage, socket: Path) -> None:
    heard = Serving()
    stage.run("print(1)\n", listeners=heard, tools_socket=socket)
    assert heard.server.hellos == []
