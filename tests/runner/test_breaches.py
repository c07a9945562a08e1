"""A bound of the whole sandbox that the kernel saw hit is a limit exceeded, not a fault of the script."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tests.runner.stage import Ran, Silent, Stage

pytestmark = pytest.mark.sandbox

EVENTS = {"memory": ("memory.events", "oom 1\noom_kill 1\n"), "processes": ("pids.events", "max 3\n")}


class Kernel(Silent):
    """Writes into the sandbox's group what the kernel would, once the sandbox is there."""

    group: Path
    bound: str

    def started(self, pid: int, pid_started: str) -> None:
        super().started(pid, pid_started)
        if self.bound:
            name, text = EVENTS[self.bound]
            next(self.group.iterdir()).joinpath(name).write_text(text)


def run(stage: Stage, group: Path, bound: str, code: str) -> Ran:
    """A plain folder stands for the kernel's delegated one."""
    heard = Kernel()
    heard.group, heard.bound = group, bound
    grouped = Stage(stage.data, stage.workflow, dataclasses.replace(stage.host, cgroup=group))
    return grouped.run(code, listeners=heard, step={"limits": {"memory_mb": 300, "processes": 40}})


@pytest.mark.parametrize("bound", ["memory", "processes"])
@pytest.mark.parametrize("code", ["import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n", "raise OSError('no')\n"])
def test_an_end_by_a_bound_of_the_group_names_the_limit(stage: Stage, tmp_path: Path, bound: str, code: str) -> None:
    ran = run(stage, tmp_path, bound, code)
    assert (ran.ending.outcome, ran.ending.reason) == ("limit_exceeded", bound), ran
    assert {"memory": "limits.memory_mb", "processes": "limits.processes"}[bound] in ran.ending.detail


def test_a_step_that_coped_with_it_succeeds(stage: Stage, tmp_path: Path) -> None:
    assert run(stage, tmp_path, "processes", "print('fine')\n").ending.outcome == "succeeded"


def test_an_assertion_stays_one(stage: Stage, tmp_path: Path) -> None:
    assert run(stage, tmp_path, "memory", "assert False\n").ending.outcome == "assertion_failed"


def test_without_a_breach_an_error_is_the_scripts_own(stage: Stage, tmp_path: Path) -> None:
    assert run(stage, tmp_path, "", "raise OSError('no')\n").ending.outcome == "script_error"
