"""All checks of the host in their order. Each says what it found, and what to do where it is not as it should be."""

from __future__ import annotations

import ctypes
import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from engine.doctor import planted, trial, volume
from engine.sandbox import canary, cgroup, host
from engine.sandbox.access import READ, Runner
from engine.sandbox.beneath import has_openat2
from engine.sandbox.checks import Check
from engine.sandbox.errors import SandboxRefused
from engine.sandbox.host import HostTools

SAFE_PYTHON = (3, 11, 14)
_UNSYNCHRONISED = 0x40


@dataclass(frozen=True)
class Facts:
    """Where things are. `closed`: what the uid that runs steps must not be able to read."""

    data_root: Path
    release: Path
    runtime: str = ""
    bwrap: str = ""
    interpreter: str = ""
    runner_uid: int = 0
    closed: tuple[Path, ...] = ()


def examine(facts: Facts) -> Iterator[Check]:
    """Looks at one thing after the other; what needs a sandbox is left out once there can be none."""
    yield from volume.checks(facts.data_root, facts.release)
    yield _python()
    yield _clock()
    yield _openat2()
    try:
        who = host.runner(facts.data_root, facts.runner_uid)
        host.prepare_data(facts.data_root, who)
    except (SandboxRefused, OSError) as error:
        yield _refused("the uid that runs steps", error)
        return
    yield from _runner(who, facts)
    try:
        tools = host.find(
            facts.data_root, bwrap=facts.bwrap, interpreter=facts.interpreter, runner_uid=facts.runner_uid
        )
        runtime = host.runtime_folder(facts.data_root, facts.runtime)
    except (SandboxRefused, OSError) as error:
        yield _refused("bubblewrap and interpreter", error)
        return
    yield from _tools(tools, runtime)
    yield from canary.check(tools, facts.data_root, runtime)
    yield planted.check(tools, facts.data_root)
    yield trial.check(tools, facts.data_root)
    yield _cgroup()


def _refused(name: str, error: SandboxRefused | OSError) -> Check:
    if isinstance(error, SandboxRefused):
        return Check(name, False, error.detail, error.cure)
    return Check(name, False, str(error), "Mend the folder's owner and mode, or name another.")


def _runner(who: Runner, facts: Facts) -> Iterator[Check]:
    name = "steps run as another user than the platform"
    if who.dropped:
        yield Check(name, True, note=f"uid {who.uid}")
    else:
        yield Check(
            name,
            False,
            f"web, worker and steps share uid {who.uid}: the sandbox is the only wall before database and keys.",
            "Fine for one team on its own machine; else start the worker as root, and steps get a uid of their own.",
            required=False,
        )
        return
    readable = [str(path) for path in facts.closed if path.exists() and _can_read(who, path)]
    cause = f"uid {who.uid}, which runs steps, can read {', '.join(readable)}" if readable else ""
    yield Check("database, keys and settings are closed to steps", not readable, cause, "chmod o-rwx them.")


def _can_read(who: Runner, path: Path) -> bool:
    return who.barred_from(path) is None and who.may(path.stat(), READ)


def _tools(tools: HostTools, runtime: Path) -> Iterator[Check]:
    yield Check("bubblewrap", True, note=f"{tools.bwrap.path} {tools.bwrap.version}")
    yield Check("interpreter of steps", True, note=f"{tools.interpreter.path} {tools.interpreter.version}")
    barred = tools.runner.barred_from(runtime / "x")
    cause, cure = f"uid {tools.runner.uid} cannot enter {barred}", "Set PULSE_RUNTIME to a folder that it can enter."
    yield Check("folder of sockets", barred is None, cause, cure, note=str(runtime))


def _python() -> Check:
    cause = "its archive modules have known faults"
    cure, note = "Update to 3.11.14 or newer.", platform.python_version()
    return Check("Python of the platform", sys.version_info[:3] >= SAFE_PYTHON, cause, cure, required=False, note=note)


def _clock() -> Check:
    """adjtimex(2), asked without changing anything."""
    state = ctypes.create_string_buffer(512)
    told = ctypes.CDLL(None, use_errno=True).adjtimex(state)
    status = int.from_bytes(state.raw[40:44], "little")  # modes, padding, offset, freq, maxerror, esterror, status
    ok = told >= 0 and not status & _UNSYNCHRONISED
    cause = "no time service keeps the clock; webhooks with a timestamp are refused when it is minutes off"
    return Check("clock", ok, cause, "Install chrony or enable systemd-timesyncd.", required=False)


def _openat2() -> Check:
    cause = "this kernel, or the container's filter, has no openat2; folders are walked part by part instead"
    return Check("openat2", has_openat2(), cause, "Use Linux 5.6 or newer.", required=False)


def _cgroup() -> Check:
    found = cgroup.delegated()
    note = f"each sandbox gets a group in {found}" if found else "none is delegated; rlimits bound memory and processes"
    return Check("cgroup v2", True, note=note)


def failed(checks: list[Check]) -> bool:
    """Whether a required one did not hold, so that no step may run."""
    return any(check.required and not check.ok for check in checks)
