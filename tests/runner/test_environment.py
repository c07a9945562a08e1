"""Every documented variable reaches the process, and nothing else does; on every road the same contract."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from engine import environment
from engine.environment import RUN_SUPPLIED
from tests.runner.stage import Silent, Stage, scripted
from tests.runner.test_stopping import Listening

pytestmark = pytest.mark.sandbox

SHOW = "import json, os, sys\nsys.__stdout__.write(json.dumps(dict(os.environ)))\n"
ROADS = ("manual", "schedule", "github", "standard", "bearer", "function", "internal", "slack", "mcp", "api", "builder")
UNTRIGGERED = {"manual", "schedule", "api", "builder"}
STEP: dict[str, Any] = {
    "secrets": ["TOKEN", {"name": "SPARE", "optional": True}],
    "requires": ["VAR_BASE_URL"],
    "script_parameters": {"limit": {"type": "integer", "description": "How many.", "default": 5}},
    "access": {"db": "read-write", "knowledgebase": "read"},
}


@contextmanager
def everything(stage: Stage, data_root: Path, road: str) -> Iterator[dict[str, Any]]:
    """All that a run on this road can be given."""
    triggered = road not in UNTRIGGERED
    deliveries = stage.workflow.root / "deliveries"
    for folder in (deliveries, stage.workflow.knowledgebase):
        if not folder.exists():
            stage.make(folder)
    files = {}
    for name in ("delivery", "thread"):
        path = deliveries / f"{name}.json"
        path.write_text(json.dumps({"payload": {}, "entry_path": road}))
        stage.own(path, 0o660)
        files[name] = path
    with Listening(data_root / "sockets" / f"{road}.sock") as socket:
        yield {
            "entry_path": road,
            "group_values": {"BASE_URL": "https://example.test", "COUNT": 3, "NESTED": {"a": [1]}},
            "secrets": {"TOKEN": "correct horse battery"},
            "allowed_secrets": frozenset({"TOKEN", "SPARE", "OTHER"}),
            "delivery": files["delivery"] if triggered else None,
            "thread": files["thread"] if road == "slack" else None,
            "session_token": "pst_" + "x" * 43,
            "tools_socket": socket,
            "route_id": "deep" if road == "internal" else "",
            "task_id": "task-1" if road == "internal" else "",
        }


def seen_by(stage: Stage, data_root: Path, road: str = "slack", **keys: Any) -> dict[str, str]:
    with everything(stage, data_root, road) as given:
        ran = stage.run(SHOW, step=STEP, **{**given, **keys})
    found: dict[str, str] = json.loads(ran.log.replace("***", "masked"))
    return found


def test_the_process_has_exactly_the_documented_names(stage: Stage, data_root: Path) -> None:
    env = seen_by(stage, data_root)
    documented = set(environment.FIXED) | environment.RESOLVED | RUN_SUPPLIED - {"STEP_ROUTE_ID", "STEP_TASK_ID"}
    configured = {"VAR_BASE_URL", "VAR_COUNT", "VAR_NESTED", "SECRET_TOKEN", "SECRET_SPARE"}
    assert set(env) == documented | configured


def test_delegated_calls_have_their_route_and_task(stage: Stage, data_root: Path) -> None:
    env = seen_by(stage, data_root, "internal")
    assert (env["STEP_ROUTE_ID"], env["STEP_TASK_ID"]) == ("deep", "task-1")


@pytest.mark.parametrize("road", ["manual", "github"])
def test_a_trigger_file_is_named_on_triggered_runs_only(stage: Stage, data_root: Path, road: str) -> None:
    env = seen_by(stage, data_root, road)
    assert ("WORKFLOW_TRIGGER_INPUT_FILE" in env) == (road == "github")
    assert "WORKFLOW_TRIGGER_CONTEXT_FILE" not in env


def test_the_values_are_the_documented_ones(stage: Stage, data_root: Path) -> None:
    env = seen_by(stage, data_root)
    wanted = {
        "VAR_BASE_URL": "https://example.test",
        "VAR_COUNT": "3",
        "VAR_NESTED": '{"a":[1]}',
        "VAR_GROUP_NAME": "default",
        "SECRET_SPARE": "",
        "STEP_ID": "work",
        "STEP_PARAMS_JSON": '{"limit":5}',
        "RUN_ENTRY_PATH": "slack",
        "RUN_FOLDER": "/pulse/run",
        "STEP_OUTPUT_DIR": "/pulse/run/out",
        "WORKFLOW_CODE_ROOT": "/pulse/code",
        "WORKFLOW_DB_ACCESS": "read-write",
        "WORKFLOW_KB_ACCESS": "read",
        "WORKFLOW_TRIGGER_INPUT_FILE": "/pulse/run/trigger.json",
        "WORKFLOW_TRIGGER_CONTEXT_FILE": "/pulse/run/context.json",
        "PULSE_TOOLS_SOCKET": "/run/pulse/tools.sock",
        "PATH": "/pulse/deps/bin:/usr/bin:/bin",
        "HOME": "/tmp",
        "USER": "step",
        "TZ": "UTC",
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    assert {name: env[name] for name in wanted} == wanted


def test_every_path_that_a_variable_names_can_be_opened(stage: Stage, data_root: Path) -> None:
    code = """
import os, socket
for name in ("STEP_OUTPUT_DIR", "RUN_FOLDER", "WORKFLOW_CODE_ROOT", "WORKFLOW_CODE_DEPS", "HOME", "TMPDIR"):
    os.listdir(os.environ[name])
for name in ("WORKFLOW_TRIGGER_INPUT_FILE", "WORKFLOW_TRIGGER_CONTEXT_FILE"):
    open(os.environ[name]).read()
for name in ("PATH", "PYTHONPATH"):
    for part in os.environ[name].split(":"):
        os.listdir(part)
socket.socket(socket.AF_UNIX).connect(os.environ["PULSE_TOOLS_SOCKET"])
open(os.environ["STEP_OUTPUT_DIR"] + "/x", "w").write("x")
os.makedirs(os.environ["PYTHONPYCACHEPREFIX"])
os.listdir("/pulse/kb")
print(os.getcwd(), os.environ["SECRET_SPARE"] == "")
"""
    with everything(stage, data_root, "slack") as given:
        ran = stage.run(code, step=STEP, **given)
    assert ran.log == "/pulse/code/work True\n", ran


def test_nothing_of_the_platforms_own_environment_is_inherited(
    stage: Stage, data_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VAR_FROM_WORKER", "canary-1")
    monkeypatch.setenv("PULSE_SECRET_KEY", "canary-2")
    ran = stage.run(SHOW, ambient={"VAR_FROM_WORKER": "canary-1", "LANGUAGE": "xx"})
    assert "canary" not in ran.log
    assert [dropped.name for dropped in ran.contract.dropped] == ["VAR_FROM_WORKER"]
    assert "inherits nothing" in ran.contract.dropped[0].rule


def test_the_fingerprint_is_the_same_on_every_road(stage: Stage, data_root: Path) -> None:
    stage.write({"work/main.py": "print(1)\n"})
    prints, names = set(), set()
    for road in ROADS:
        with everything(stage, data_root, road) as given:
            contract = stage.resolve(scripted(**STEP), **given)
        prints.add(contract.fingerprint)
        names.add(frozenset(contract.env) - RUN_SUPPLIED)
        (data_root / "sockets" / f"{road}.sock").unlink()
        (data_root / "sockets").rmdir()
    assert len(prints) == 1
    assert len(names) == 1


def test_a_group_leaves_nothing_behind_for_the_next_one(stage: Stage) -> None:
    first = stage.run(SHOW, group="one", group_values={"A": "1", "ONLY_ONE": "x"})
    second = stage.run(SHOW, group="two", group_values={"A": "2"})
    again = stage.run(SHOW, group="one", group_values={"A": "1", "ONLY_ONE": "x"})
    assert json.loads(second.log)["VAR_A"] == "2"
    assert "VAR_ONLY_ONE" not in json.loads(second.log)
    assert {**json.loads(first.log), **_ids(again.log)} == json.loads(again.log)


def test_a_secret_the_step_does_not_name_is_absent(stage: Stage) -> None:
    ran = stage.run(SHOW, secrets={"OTHER": "correct horse"}, allowed_secrets=frozenset({"OTHER"}))
    assert "SECRET_OTHER" not in json.loads(ran.log)
    assert [dropped.name for dropped in ran.contract.dropped] == ["SECRET_OTHER"]


def test_a_secret_is_in_no_argument_and_no_record(stage: Stage) -> None:
    secret = "correct horse battery"
    lines: list[str] = []

    class Looking(Silent):
        def log_grew(self, lines_: int, size: int) -> None:
            for entry in Path("/proc").iterdir():
                if entry.name.isdigit():
                    try:
                        lines.append((entry / "cmdline").read_text(errors="replace"))
                    except OSError:
                        continue

    code = "import time\nprint('up', flush=True)\ntime.sleep(0.3)\n"
    ran = stage.run(
        code,
        step={"secrets": ["KEY"]},
        secrets={"KEY": secret},
        allowed_secrets=frozenset({"KEY"}),
        listeners=Looking(),
    )
    assert any("boot.py" in line for line in lines)
    assert not any(secret in line for line in lines)
    shown = json.dumps([ran.contract.record(), ran.ending.policy, repr(ran.contract), repr(ran.ending)], default=str)
    assert secret not in shown


def _ids(log: str) -> dict[str, str]:
    return {name: value for name, value in json.loads(log).items() if name in {"RUN_ID", "STEP_RUN_ID"}}
