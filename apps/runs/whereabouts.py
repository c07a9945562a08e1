"""Which process this is, for leases: the host by its boot, the process by pid and start time."""

from __future__ import annotations

import os
import socket
import uuid
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from engine.sandbox import processes


@dataclass(frozen=True)
class Here:
    """This process, and the supervisor it works for (None outside a cluster)."""

    worker_id: uuid.UUID | None
    pid: int
    pid_started: str


_worker_id: uuid.UUID | None = None


def work_for(worker_id: uuid.UUID | None) -> None:
    """From now on this process, and what it forks, holds its leases for that supervisor."""
    global _worker_id  # noqa: PLW0603
    _worker_id = worker_id


def here() -> Here:
    return Here(_worker_id, os.getpid(), processes.started(os.getpid()) or "")


def gone_with_its_boot(host_name: str) -> bool:
    """Whether it names this machine before its last start: no process of then can still run."""
    boot, _, machine = host_name.partition(" ")
    return host_name != host() and machine == host().partition(" ")[2] and boot != "unknown"


@cache
def host() -> str:
    """The boot's own id and the host name: processes of an earlier boot are known to be gone."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()[:8]
    except OSError:
        boot = "unknown"
    return f"{boot} {socket.gethostname()}"[:120]
