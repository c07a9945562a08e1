"""cgroup v2, where a subtree was delegated to the worker: a bound on all memory and processes of a sandbox together.

Optional: rlimits bound each process in any case. Delegated is the folder above the worker's own, when it is marked so
and hands down `memory` and `pids`, as systemd arranges with Delegate= and DelegateSubgroup=.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from pathlib import Path

from engine.sandbox.limits import MEGABYTE, Limits

NEEDED = {"memory", "pids"}
_OWN_PROCESSES = 2
"""bubblewrap itself and the first process inside."""


class Group:
    """The group of one sandbox: made before it starts, gone after it."""

    def __init__(self, parent: Path, limits: Limits) -> None:
        self.folder = parent / f"pulse-{secrets.token_hex(8)}"
        self.folder.mkdir()
        self._set("memory.max", limits.memory_mb * MEGABYTE)
        self._set("pids.max", limits.processes + _OWN_PROCESSES)
        with contextlib.suppress(OSError):  # absent where the kernel counts no swap
            self._set("memory.swap.max", 0)

    def take(self, *pids: int) -> None:
        for pid in pids:
            self._set("cgroup.procs", pid)

    def breach(self) -> str | None:
        """Which bound was hit so far: `memory` when a process was killed for it, `processes` when one was refused."""
        for file, word, name in (("memory.events", "oom_kill", "memory"), ("pids.events", "max", "processes")):
            with contextlib.suppress(OSError):
                counts = dict(line.split() for line in (self.folder / file).read_text().splitlines())
                if int(counts.get(word, "0")):
                    return name
        return None

    def remove(self) -> None:
        """Once its processes are gone; the kernel may take a moment to see that."""
        for _ in range(20):
            try:
                self.folder.rmdir()
            except FileNotFoundError:
                return
            except OSError:
                time.sleep(0.005)

    def _set(self, name: str, value: int) -> None:
        (self.folder / name).write_text(f"{value}\n")


def delegated(mountinfo: Path = Path("/proc/self/mountinfo"), own: Path = Path("/proc/self/cgroup")) -> Path | None:
    """The folder in which a group for each sandbox may be made; None when there is none."""
    root = _root(mountinfo)
    line = next((line for line in own.read_text().splitlines() if line.startswith("0::")), "")
    if root is None or line in {"", "0::/"}:
        return None
    folder = (root / line.removeprefix("0::/")).parent
    try:
        handed_down = set((folder / "cgroup.subtree_control").read_text().split())
    except OSError:
        return None
    return folder if handed_down >= NEEDED and _is_ours(folder) else None


def _root(mountinfo: Path) -> Path | None:
    for line in mountinfo.read_text().splitlines():
        left, _, right = line.partition(" - ")
        if right.startswith("cgroup2 "):
            return Path(left.split()[4])
    return None


def _is_ours(folder: Path) -> bool:
    if not os.access(folder, os.W_OK):
        return False
    for name in ("trusted.delegate", "user.delegate"):
        try:
            if os.getxattr(folder, name) == b"1":
                return True
        except OSError:
            continue
    return os.geteuid() != 0  # an ordinary user can write there only because it was given to it
