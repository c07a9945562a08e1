"""cgroup v2, where a subtree was delegated to the worker: a bound on all memory and processes of a sandbox together.

Optional: rlimits bound each process in any case. Delegated is the folder above the worker's own, when it is marked so
and hands down `memory` and `pids`, as systemd arranges with Delegate= and DelegateSubgroup=.
"""

from __future__ import annotations

import os
from pathlib import Path

NEEDED = {"memory", "pids"}


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
