"""PostgreSQL and Redis for the suite: each started on a free port, in a folder that is thrown away."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def postgresql_programs() -> Path | None:
    """The folder of the newest PostgreSQL server on this machine, or None."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    return found[-1].parent if found else None


@contextmanager
def postgresql() -> Iterator[str]:
    """A throw-away server; yields its postgresql:// address. PostgreSQL refuses root, so root lends it `postgres`."""
    programs = postgresql_programs()
    if programs is None:
        raise RuntimeError("PostgreSQL is not installed")
    folder = Path(tempfile.mkdtemp(prefix="pulse-pg-"))
    user = "postgres" if os.geteuid() == 0 else None
    if user:
        entry = pwd.getpwnam(user)
        os.chown(folder, entry.pw_uid, entry.pw_gid)
    port = free_port()
    server = None
    try:
        subprocess.run(
            [programs / "initdb", "-D", folder / "data", "-U", "pulse", "-A", "trust", "-E", "UTF8", "--no-sync"],
            check=True, capture_output=True, user=user, cwd=folder,
        )  # fmt: skip
        server = subprocess.Popen(
            [programs / "postgres", "-D", folder / "data", "-p", str(port), "-k", folder, "-c", "fsync=off",
             "-c", "listen_addresses=127.0.0.1", "-c", "max_connections=200"],
            user=user, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        _until(
            lambda: subprocess.run([programs / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port)]).returncode == 0
        )
        subprocess.run([programs / "createdb", "-h", "127.0.0.1", "-p", str(port), "-U", "pulse", "pulse"], check=True)
        yield f"postgresql://pulse@127.0.0.1:{port}/pulse"
    finally:
        if server is not None:
            server.terminate()
            server.wait(20)
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def redis() -> Iterator[str]:
    """A throw-away server without persistence; yields its redis:// address."""
    port = free_port()
    server = subprocess.Popen(
        ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _until(lambda: _answers(port))
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        server.terminate()
        server.wait(20)


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


def _until(ready: object, seconds: float = 30) -> None:
    assert callable(ready)
    deadline = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > deadline:
            raise RuntimeError(f"the server was not ready after {seconds} s")
        time.sleep(0.05)
