"""Processes by pid and start time: a pid alone may be somebody else's by now."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from functools import cache
from pathlib import Path
from typing import Self

MARK = "pulse-sandbox"
"""What bubblewrap is called when it works for us: its first argument, which others see."""
_STEP_S = 0.02
_TICKS = os.sysconf("SC_CLK_TCK")


def started(pid: int) -> str | None:
    """When the process started: clock ticks since boot and which boot; None when there is none of that pid."""
    fields = _stat(pid)
    return None if fields is None else f"{fields[19]}@{_boot()}"


def alive(pid: int, started_at: str) -> bool:
    """Whether this very process still runs. A zombie does not: the kernel has ended all it held."""
    fields = _stat(pid)
    return fields is not None and fields[0] not in {"Z", "X"} and f"{fields[19]}@{_boot()}" == started_at


class Status:
    """What the kernel tells of a process's state, to be asked again and again."""

    def __init__(self, pid: int) -> None:
        try:
            self._file = os.open(f"/proc/{pid}/status", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._file = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file >= 0:
            os.close(self._file)

    def filters(self) -> int:
        """How many system call filters the process has; 0 when it is gone."""
        try:
            text = os.pread(self._file, 16_384, 0)
        except OSError:
            return 0
        for name in (b"\nSeccomp_filters:", b"\nSeccomp:"):
            _, found, rest = text.partition(name)
            if found:
                return int(rest.split(b"\n", 1)[0])
        return 0


def filters(pid: int) -> int:
    """How many system call filters the process has; 0 when it is gone."""
    with Status(pid) as status:
        return status.filters()


@cache
def tells_children() -> bool:
    """Whether this kernel lists the children of a process."""
    return os.path.exists(f"/proc/self/task/{os.getpid()}/children")


def children(pid: int) -> list[int]:
    """The children of a process of one thread. OSError when it is gone."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def times(pid: int) -> list[tuple[int, str, float, float]]:
    """The process and all below it: pid, start, the processor seconds it used, and those of children it waited for."""
    found = []
    for member in (pid, *(child for child, _ in _below(pid))):
        fields = _stat(member)
        if fields is not None:
            own, ended = (sum(map(int, fields[first : first + 2])) / _TICKS for first in (11, 13))
            found.append((member, fields[19], own, ended))
    return found


def kill_tree(pid: int, started_at: str, *, timeout: float = 5.0) -> bool:
    """Kills the process and all it started; True once they are seen to be gone, False when some still runs.

    For a sandbox, `pid` is its first process: the kernel ends a PID namespace with it, however its processes hid,
    and lets it go only when they are gone. Anything else is followed by its children. Safe to call twice.
    """
    tree = [(pid, started_at), *_below(pid)] if alive(pid, started_at) else [(pid, started_at)]
    for member, since in tree:
        _kill(member, since)
    deadline = time.monotonic() + timeout
    while any(alive(member, since) for member, since in tree):
        if time.monotonic() > deadline:
            return False
        time.sleep(_STEP_S)
    return True


def sweep(uid: int) -> int:
    """Ends sandboxes of `uid` whose worker died while it launched them, before any pid was known. Returns how many.

    They run nothing (no frame came), but would wait for ever. Known by their mark, and by having lost their parent.
    """
    ended = 0
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and _is_left_behind(int(entry.name), uid):
            since = started(int(entry.name))
            ended += since is not None and kill_tree(int(entry.name), since)
    return ended


def wait_gone(pid: int, started_at: str, timeout: float) -> bool:
    """Waits until the process is gone, without polling where the kernel can tell."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return not alive(pid, started_at)
    try:
        if not alive(pid, started_at):
            return True
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        return bool(poll.poll(timeout * 1000)) or not alive(pid, started_at)
    finally:
        os.close(handle)


def _is_left_behind(pid: int, uid: int) -> bool:
    try:
        if os.stat(f"/proc/{pid}").st_uid != uid:
            return False
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    if words[0] != MARK.encode():
        return False
    parent = int((_stat(pid) or ["", "0"])[1])
    return (_stat(parent) or ["Z"])[0] in {"Z", "X"} or _is_reaper(parent)


def _is_reaper(pid: int) -> bool:
    """Whether this process took an orphan over: one that is no worker of ours. In a container a worker may be pid 1."""
    try:
        name = Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return True
    return not name.startswith("python") if pid == 1 else name in {"systemd", "init", "tini", "dumb-init", "catatonit"}


def _kill(pid: int, started_at: str) -> None:
    with contextlib.suppress(OSError):
        handle = os.pidfd_open(pid)
        try:
            if alive(pid, started_at):  # checked after opening: the handle cannot come to mean another process
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        finally:
            os.close(handle)


def _below(pid: int) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    waiting = [pid]
    while waiting:
        for child in _children(waiting.pop()):
            since = started(child)
            if since is not None:
                found.append((child, since))
                waiting.append(child)
    return found


def _children(pid: int) -> list[int]:
    children: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                children += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())
    return children


def _stat(pid: int) -> list[str] | None:
    """Fields of /proc/<pid>/stat from the state on. The name before it may hold spaces and brackets."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    return text[text.rindex(")") + 2 :].split()


@cache
def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()[:8]
    except OSError:
        return "unknown"
