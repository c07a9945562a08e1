"""The floors: what the machine does when nothing of the product is in the way."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PYTHON = "/usr/bin/python3"
RUNNER_UID = 63001
HELLO = 'print("hello")\n'


@dataclass(frozen=True)
class Bare:
    """A step's script in a realistic bubblewrap: all namespaces, read-only system, bounded, dropped uid."""

    command: list[str]

    def run(self) -> bytes:
        """One start to its end; what it printed."""
        drop = {"user": RUNNER_UID, "group": RUNNER_UID, "extra_groups": []} if os.geteuid() == 0 else {}
        done = subprocess.run(
            self.command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env={"PATH": "/usr/bin:/bin"},
            check=True,
            **drop,
        )
        return done.stdout

    def seconds(self, times: int) -> float:
        began = time.perf_counter()
        for _ in range(times):
            self.run()
        return time.perf_counter() - began

    def a_second(self, times: int, at_once: int) -> float:
        """Starts a second, so many at once."""
        began = time.perf_counter()
        with ThreadPoolExecutor(at_once) as pool:
            for done in [pool.submit(self.run) for _ in range(times)]:
                done.result()
        return times / (time.perf_counter() - began)


@contextmanager
def bare(code: str = HELLO) -> Iterator[Bare]:
    folder = Path(tempfile.mkdtemp(prefix="pulse-bare-"))
    folder.chmod(0o755)
    (folder / "main.py").write_text(code)
    try:
        yield Bare(_command(folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _command(folder: Path) -> list[str]:
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        raise SystemExit(
            "bubblewrap is not on this machine, so there is no floor to compare with. Nothing was measured."
        )
    limits = ["prlimit", "--nofile=512", "--fsize=268435456", "--core=1", "--as=1073741824", "--"]
    namespaces = [f"--unshare-{name}" for name in ("user", "ipc", "pid", "net", "uts", "cgroup")]
    links = [part for name in ("bin", "lib", "lib64") for part in ("--symlink", f"usr/{name}", f"/{name}")]
    walls = [
        "--disable-userns",
        "--die-with-parent",
        "--new-session",
        "--cap-drop",
        "ALL",
        "--uid",
        "1000",
        "--gid",
        "1000",
    ]
    mounts = ["--ro-bind", "/usr", "/usr", *links, "--proc", "/proc", "--dev", "/dev"]
    memory = ["--size", "67108864", "--tmpfs", "/dev/shm", "--size", "268435456", "--tmpfs", "/tmp"]
    code = [
        "--bind",
        str(folder),
        "/code",
        "--remount-ro",
        "/proc",
        "--remount-ro",
        "/dev",
        "--remount-ro",
        "/",
    ]
    return [
        *limits,
        bwrap,
        *namespaces,
        *walls,
        *mounts,
        *memory,
        *code,
        "--chdir",
        "/code",
        PYTHON,
        "-I",
        "-u",
        "-B",
        "main.py",
    ]


@contextmanager
def spawned(*command: str) -> Iterator[subprocess.Popen[bytes]]:
    """A helper process that is gone afterwards."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
        process.kill()
        process.wait()
