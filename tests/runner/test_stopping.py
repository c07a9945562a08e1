"""Whoever wishes it, an attempt ends whole: tools first, then every process, however it hid."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.runner import Stop, StopKind, execute
from engine.sandbox import processes
from tests.runner.stage import Silent, Stage

pytestmark = pytest.mark.sandbox

HIDES = """
import os, signal, sys, time
print("up", flush=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for n in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(n, signal.SIG_IGN)
        os.closerange(0, 100)
        while True:
            time.sleep(1)
    os._exit(0)
"""


def steps_running(stage: Stage) -> list[int]:
    """Processes that have this stage's folders mounted: they are inside one of its sandboxes."""
    name = stage.data.root.name
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                mounted = Path(entry.path, "mountinfo").read_text()
            except OSError:
                continue
            if f"/{name}/environments/" in mounted:
                found.append(int(entry.name))
    return found


def after(lines: int, stop: Stop) -> tuple[Silent, Callable[[], Stop | None]]:
    """Listeners that wish for the end once so many lines are there."""
    heard = Silent()
    heard.wish = lambda: stop if heard.grown and heard.grown[-1][0] >= lines else None
    return heard, heard.wish


@pytest.mark.parametrize(
    ("kind", "outcome", "reason"),
    [
        (StopKind.CANCELLED, "cancelled", "cancelled"),
        (StopKind.LEASE_LOST, "worker_lost", "lease_lost"),
        (StopKind.OPERATOR, "worker_lost", "stopped_by_operator"),
    ],
)
def test_a_wish_to_stop_ends_a_tree_that_hides(stage: Stage, kind: StopKind, outcome: str, reason: str) -> None:
    heard, _ = after(1, Stop(kind, "By Ann."))
    began = time.monotonic()
    ran = stage.run(HIDES + "time.sleep(60)\n", listeners=heard)
    assert (ran.ending.outcome, ran.ending.reason) == (outcome, reason), ran
    assert "By Ann." in ran.ending.detail
    assert ran.ending.tree_gone
    assert steps_running(stage) == []
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("moment", ["arm", "started"])
def test_a_wish_before_the_code_is_let_go_lets_nothing_of_it_run(
    stage: Stage, data_root: Path, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = Silent()
    known = getattr(heard, moment)
    monkeypatch.setattr(heard, moment, lambda *given: known(*given) or Stop(StopKind.CANCELLED, "By Ann."))
    with listening(data_root) as path:
        ran = stage.run("print('ran', flush=True)\n", listeners=heard, tools_socket=path)
    assert (ran.ending.outcome, ran.ending.tree_gone) == ("cancelled", True), ran
    assert heard.said == (["arm", "close_tools"] if moment == "arm" else ["arm", "started", "close_tools"])
    assert ran.ending.pid is None
    assert ran.log == ""
    assert steps_running(stage) == []


def test_a_clock_that_is_set_meanwhile_is_not_how_long_a_step_took(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, behind = time.time, [0.0]
    monkeypatch.setattr(time, "time", lambda: now() - behind[0])
    heard = Silent()
    heard.wish = lambda: behind.__setitem__(0, 3600.0)
    ran = stage.run("import time\ntime.sleep(0.3)\n", listeners=heard)
    assert behind == [3600.0]
    assert ran.ending.finished_at > ran.ending.started_at


def test_a_tree_that_hides_can_be_seen(stage: Stage) -> None:
    """Else the tests here would prove nothing."""
    seen: list[list[int]] = []
    heard = Silent()
    heard.wish = lambda: seen.append(steps_running(stage))
    stage.run(HIDES + "time.sleep(1)\n", listeners=heard)
    assert max(len(pids) for pids in seen) >= 3


def test_a_step_that_ends_leaves_nobody_behind(stage: Stage) -> None:
    ran = stage.run(HIDES)
    assert ran.ending.outcome == "succeeded", ran
    assert ran.ending.tree_gone
    assert steps_running(stage) == []


def test_tools_are_closed_before_anything_is_killed(stage: Stage, data_root: Path) -> None:
    heard, _ = after(1, Stop(StopKind.CANCELLED))
    alive: list[bool] = []
    heard.close_tools = lambda: alive.append(processes.alive(heard.pid, heard.pid_started))  # type: ignore[method-assign]
    with listening(data_root) as path:
        stage.run("import time\nprint('up', flush=True)\ntime.sleep(60)\n", listeners=heard, tools_socket=path)
    assert alive == [True]


@pytest.mark.parametrize(
    ("limits", "outcome", "code"),
    [({}, "cancelled", 0), ({}, "cancelled", 3), ({"timeout_s": 1}, "timed_out", 3)],
)
def test_a_step_that_ends_because_its_tools_were_closed_was_ended_by_us(
    stage: Stage, data_root: Path, limits: dict[str, int], outcome: str, code: int
) -> None:
    stop = None if limits else Stop(StopKind.CANCELLED)
    heard = Silent(wish=lambda: stop if heard.grown else None)
    listener = listening(data_root)
    with listener as socket_path:
        heard.close_tools = lambda: hang_up(listener.socket)  # type: ignore[method-assign]
        ran = stage.run(
            "import os, socket, sys\ntools = socket.socket(socket.AF_UNIX)\n"
            "tools.connect(os.environ['PULSE_TOOLS_SOCKET'])\nprint('up', flush=True)\ntools.recv(1)\n"
            f"os._exit({code})\n",
            listeners=heard,
            tools_socket=socket_path,
            step={"limits": limits},
        )
    assert ran.ending.outcome == outcome, ran


def hang_up(server: socket.socket) -> None:
    """Ends the one connection, and gives the step the time to end by that."""
    server.accept()[0].close()
    time.sleep(0.5)


def test_what_a_stopped_run_is_told_is_told_once(stage: Stage) -> None:
    heard, _ = after(1, Stop(StopKind.OPERATOR, "It had not ended when the time to drain was over."))
    ran = stage.run("import time\nprint('up', flush=True)\ntime.sleep(60)\n", listeners=heard)
    assert ran.ending.detail.count("stopped") == 1
    assert "drain" in ran.ending.detail


def test_the_order_in_which_listeners_are_told(stage: Stage, data_root: Path) -> None:
    with listening(data_root) as path:
        ran = stage.run("print(1)\n", tools_socket=path)
    assert ran.heard.said == ["arm", "started", "close_tools"], ran
    assert ran.heard.pid
    assert ran.heard.grown[-1] == (1, 2)


def test_code_does_not_run_when_its_start_cannot_be_recorded(stage: Stage) -> None:
    """Without a pid in its row an attempt never ran."""

    class Broken(Silent):
        def started(self, pid: int, pid_started: str) -> None:
            raise RuntimeError("the database is gone")

    stage.write({"work/main.py": "import pulse\npulse.write_json('ran.json', 1)\nprint('ran')\n"})
    contract = stage.resolve()
    with pytest.raises(RuntimeError, match="the database is gone"):
        execute(contract, Broken())
    assert list(contract.ask.attempt.out.iterdir()) == []
    assert contract.ask.attempt.log.read_bytes() == b""
    assert steps_running(stage) == []


def test_what_a_listener_raises_later_ends_the_tree_and_is_raised_again(stage: Stage) -> None:
    def broken() -> Stop | None:
        raise RuntimeError("the lease cannot be read")

    with pytest.raises(RuntimeError, match="the lease cannot be read"):
        stage.run("import time\ntime.sleep(60)\n", listeners=Silent(wish=broken))
    assert steps_running(stage) == []


def test_a_socket_that_is_not_armed_refuses_the_start(stage: Stage, data_root: Path) -> None:
    (data_root / "sockets").mkdir(mode=0o711)
    ran = stage.run("print('ran')\n", tools_socket=data_root / "sockets" / "none.sock")
    assert (ran.ending.outcome, ran.ending.reason) == ("harness_rejected", "tools_unavailable"), ran
    assert ran.log == ""


def listening(data_root: Path) -> Listening:
    return Listening(data_root / "sockets" / "tools.sock")


class Listening:
    """A socket that somebody listens on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.socket = socket.socket(socket.AF_UNIX)

    def __enter__(self) -> Path:
        self._path.parent.mkdir(mode=0o711)
        self._path.parent.chmod(0o711)
        self.socket.bind(str(self._path))
        self._path.chmod(0o666)
        self.socket.listen()
        return self._path

    def __exit__(self, *_: object) -> None:
        self.socket.close()
